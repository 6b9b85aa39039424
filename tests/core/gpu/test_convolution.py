"""The geometry of the GPU's convolutions: no kernel touches memory that is not its own."""

from __future__ import annotations

import pytest

from core.gpu.kernels.parts.fragments import ELEMENT
from core.gpu.launch import Tensor
from core.gpu.ops.conv.packing import taps_of
from core.gpu.writers.convolution import forward_photo
from core.ops.window import Window

FIRST = {"squeezenet1_0": (96, 7, 2), "squeezenet1_1": (64, 3, 2), "mobilenetv2": (32, 3, 2), "odd": (64, 5, 4)}
"""Filters, kernel and stride of the first convolution of a network."""

SIDES = (*range(64, 80), *range(220, 260), 272, 299, 384)


def last_byte_read(launch):
    """Past the end of what any lane's `ldmatrix` reads in the second group's photo rows, walked as the kernel walks."""
    _, columns, kh, steps, _ = launch.recipe.arguments
    rows, across = launch.values[8], launch.values[11]
    row_bytes, span, down, right = (launch.values[i] for i in (12, 14, 15, 16))
    filters = columns * (kh * steps * 32 + 16)
    furthest = 0
    for r in range(rows):
        for fragment in range(across):
            for lane in range(32):
                start = r * down + (fragment * 16 + (lane & 15)) * right + (lane >> 4) * 16
                furthest = max(furthest, start + (kh - 1) * row_bytes + (steps - 1) * 32 + 16)
    return filters + span + furthest


@pytest.mark.parametrize("arithmetic", sorted(ELEMENT))
@pytest.mark.parametrize("network", sorted(FIRST))
def test_the_photo_convolution_reads_no_shared_memory_past_its_own(network, arithmetic):
    columns, kernel, stride = FIRST[network]
    window, element, taken = Window((kernel, kernel), (stride, stride), (0, 0, 0, 0)), ELEMENT[arithmetic], 0
    for side in SIDES:
        wide = side + side % 2
        x = Tensor(0, side, wide, 3, 4, element)
        height, width = window.output(side, wide)
        out = Tensor(0, height, width, columns, columns, element)
        launch = forward_photo(
            "first", arithmetic, 3, x, out, window, taps_of(x, window, True), 0, 0, "relu", 132, 227 << 10
        )
        if launch is not None:
            taken += 1
            assert last_byte_read(launch) <= launch.shared, side
    assert taken
