"""The max pool's kernels for bf16 are the general ones, run as plain Python."""

import numpy as np
import pytest

from core.gpu.launch import RELU, Tensor, make_launch
from core.gpu.ops.pool import max_pool
from core.gpu.parts.winners import STOPPED
from tests.helpers.emulated_gpu import Machine, Memory
from tests.helpers.rounded import to_bits

PHOTOS, CHANNELS = 2, 16
SIDES = {(3, 3, 2, 2): (6, 3), (2, 3, 2, 1): (5, 3), (2, 2, 2, 2): (4, 2)}
"""Kernel and stride to (side of the photo, of the result); the last windows of the first may hang over."""


def run(memory, factory, arguments, shape, grid, addresses, **more):
    side, out = SIDES[shape]
    signature = max_pool.GRADIENT if "gradient" in factory else max_pool.FORWARD
    names = [argument.name for argument in signature.flat]
    values = dict(zip(names[:3], addresses, strict=True)) | {
        **Tensor(0, grid, grid, CHANNELS, CHANNELS, arguments[0]).pixel_values(PHOTOS), "height": side, "width": side,
        "ho": out, "wo": out, "ldx": CHANNELS, "ldo": CHANNELS, "ldp": CHANNELS, "top": 0, "left": 0, **more,
    }
    Machine(memory).run(make_launch("pool", "forward", getattr(max_pool, factory), arguments, signature,
                                    values, (1,), (-(-values["total"] // 32) * 32,)))  # fmt: skip


@pytest.mark.parametrize("activation", ["relu", "relu6"])
@pytest.mark.parametrize("shape", sorted(SIDES), ids=str)
def test_value_and_place_found_by_one_maximum_are_those_of_comparisons(shape, activation):
    draw, memory, found, (side, out) = np.random.default_rng(4), Memory(1 << 16), [], SIDES[shape]
    top = 6 if activation == "relu6" else np.inf  # whole numbers: many are equal, and some windows are all 0
    values = np.round(np.clip(draw.normal(-1, 4, (PHOTOS, side, side, CHANNELS)), 0, top))
    x = memory.place(to_bits(values))
    for special in (False, True):
        count = PHOTOS * out * out * CHANNELS
        y, places = memory.reserve(2 * count), memory.reserve(count)
        run(memory, "make_max_pool", (2, shape, special), shape, out, (x, y, places), activation=RELU[activation])
        found.append((memory.get(y, count, np.uint16), memory.get(places, count, np.uint8)))
    (wanted, marks), (got, same) = found
    assert np.array_equal(got, wanted)
    assert np.array_equal(same, marks)
    assert set(np.unique(marks)) >= {0, 1, STOPPED}


@pytest.mark.parametrize("accumulate", [0, 1])
@pytest.mark.parametrize("shape", sorted(SIDES), ids=str)
def test_the_gradient_in_pairs_is_that_of_single_numbers(shape, accumulate):
    draw, memory, found, (side, out) = np.random.default_rng(5), Memory(1 << 16), [], SIDES[shape]
    dy = draw.integers(-9, 10, (PHOTOS, out, out, CHANNELS))  # small: sums are exact
    marks = draw.integers(0, shape[0] * shape[1], (PHOTOS, out, out, CHANNELS), dtype=np.uint8)
    marks[draw.random(marks.shape) < 0.2] = STOPPED
    places = memory.place(marks)
    before = draw.integers(-9, 10, (PHOTOS, side, side, CHANNELS))
    grid = -(-side // min(shape[2:]))
    for element, kind, stored in ((2, np.uint16, to_bits), (4, np.float32, np.float32)):
        given, dx = memory.place(stored(dy)), memory.place(stored(before))
        run(memory, "make_max_pool_gradient", (element, shape), shape, grid, (given, dx, places), accumulate=accumulate)
        found.append(memory.get(dx, before.size, kind))
    assert np.array_equal(found[0], to_bits(found[1]))
    assert len(np.unique(found[0])) > 9
