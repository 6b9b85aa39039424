"""The geometry of the GPU's convolutions: no kernel touches memory that is not its own."""

import pytest

from core.gpu.kernels.parts.fragments import ELEMENT
from core.gpu.launch import Tensor
from core.gpu.ops.conv.image_launches import group_of
from core.gpu.ops.conv.packing import taps_of
from core.ops.window import Window

FIRST = {"squeezenet1_0": (96, 7, 2), "squeezenet1_1": (64, 3, 2), "mobilenetv2": (32, 3, 2), "odd": (64, 5, 4)}
"""Filters, kernel and stride of the first convolution of a network."""

SIDES = (*range(64, 80), *range(220, 260), 272, 299, 384)


def last_byte_read(group, x, out, window, taps):
    """Past the end of what any lane's `ldmatrix` reads in the second group's image rows, in the kernel's order."""
    (kh, _), steps, row_bytes = taps.kernel, taps.channels * x.element // 32, x.row_pitch * x.element
    down, right = window.stride[0] * row_bytes, window.stride[1] * x.pitch * x.element
    filters = out.padded * (kh * steps * 32 + 16)
    furthest = 0
    for r in range(group.rows):
        for fragment in range(-(-out.width // 16)):
            for lane in range(32):
                start = r * down + (fragment * 16 + (lane & 15)) * right + (lane >> 4) * 16
                furthest = max(furthest, start + (kh - 1) * row_bytes + (steps - 1) * 32 + 16)
    return filters + group.span + furthest


@pytest.mark.parametrize("arithmetic", sorted(ELEMENT))
@pytest.mark.parametrize("network", sorted(FIRST))
def test_the_image_convolution_reads_no_shared_memory_past_its_own(network, arithmetic):
    columns, kernel, stride = FIRST[network]
    window, element, taken = Window((kernel, kernel), (stride, stride), (0, 0, 0, 0)), ELEMENT[arithmetic], 0
    for side in SIDES:
        wide = side + side % 2
        x = Tensor(0, side, wide, 3, 4, element)
        height, width = window.output(side, wide)
        out = Tensor(0, height, width, columns, columns, element)
        taps = taps_of(x, window, True)
        group = group_of(x, out, window, taps, 227 << 10)
        if group is not None:
            taken += 1
            assert last_byte_read(group, x, out, window, taps) <= group.shared, side
    assert taken
