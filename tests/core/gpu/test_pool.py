"""The max pool for numbers that passed a ReLU is the general one."""

from __future__ import annotations

import numpy as np
import pytest

from core.gpu.convolution import RELU
from core.gpu.kernels import pool_fast
from core.gpu.kernels.fragments import fast_divisor
from core.gpu.plain_launches import simple_launch
from tests.helpers.emulated_gpu import Machine, Memory

PHOTOS, SIDE, OUT, CHANNELS = 2, 6, 3, 16


@pytest.mark.parametrize("activation", ["relu", "relu6"])
def test_value_and_place_found_by_one_maximum_are_those_of_comparisons(activation):
    draw, memory, found = np.random.default_rng(4), Memory(1 << 16), []
    values = np.round(np.clip(draw.normal(0, 4, (PHOTOS, SIDE, SIDE, CHANNELS)), 0, None)).astype(np.float32)
    values = np.minimum(values, 6) if activation == "relu6" else values  # whole numbers: many are equal, some windows 0
    x = memory.reserve(2 * values.size)
    memory.put(x, (values.view(np.uint32) >> 16).astype(np.uint16))
    lanes, total = CHANNELS // 8, PHOTOS * OUT * OUT * CHANNELS // 8
    for factory, arguments in (
        ("make_max_pool", (2, (3, 3, 2, 2))), ("make_positive_max_pool", ((3, 3, 2, 2),)),
    ):  # fmt: skip
        out, places = memory.reserve(2 * total * 8), memory.reserve(total * 8)
        launch_values = (
            x, out, places, total, lanes, *fast_divisor(lanes), *fast_divisor(OUT * OUT), *fast_divisor(OUT), OUT * OUT,
            OUT, SIDE, SIDE, OUT, OUT, CHANNELS, CHANNELS, CHANNELS, 0, 0, RELU[activation], 0,
        )
        Machine(memory).run(
            simple_launch(
                "pool", "forward", "fused", "pool_fast", factory, arguments, pool_fast.ARGUMENTS,
                (1, 1, 1), (64, 1, 1), launch_values,
            )
        )
        found.append((memory.get(out, total * 8, np.uint16), memory.get(places, total * 8, np.uint8)))
    (wanted, marks), (got, same) = found
    assert np.array_equal(got, wanted)
    assert np.array_equal(same, marks)
    assert (marks == 255).any()
    assert (marks == 8).any() or activation == "relu6"
