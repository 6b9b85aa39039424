"""Convolutions in another basis: one product per element of the transformed tiles, and the input gradient.

`winograd.py` and `fft.py` transform tiles of pixels and the filters, sum over channels by one matrix product per
element of a tile, and transform the results back. Their input gradient is the same convolution of dy with rotated
filters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from core.gpu.compilation.arrays import Filters
from core.gpu.compilation.cuda import cuda
from core.gpu.launch import blocks_of
from core.gpu.ops.conv import im2col
from core.gpu.ops.dense.product import SIDE, TILE
from core.gpu.teaching.candidates import geometry
from core.gpu.teaching.kernel import DeviceArray, TeachingKernel, at, indices, kernel, over
from core.gpu.teaching.step_arrays import StepArrays
from core.ops.registry import KernelCase
from core.ops.window import read_window

Convolve: TypeAlias = Callable[[StepArrays, DeviceArray, DeviceArray, DeviceArray, DeviceArray, tuple[int, int]], None]
"""(arrays, x, weight, bias, out, padding at the top and left)."""


@kernel
def rotate_filters(weight: Filters, rotated: Filters) -> None:
    """``(O, KH, KW, C)`` to ``(C, KH, KW, O)``, taps in reverse order: the filters of the input gradient."""
    i = cuda.grid(1)
    if i < rotated.size:
        c, ky, kx, o = indices(i, rotated.shape)
        rotated[c, ky, kx, o] = weight[o, rotated.shape[1] - 1 - ky, rotated.shape[2] - 1 - kx, c]


def multiply_elements(product: TeachingKernel, a: DeviceArray, b: DeviceArray, c: DeviceArray) -> None:
    """``c[k] = A[k] B[k]`` for each element k of a tile, c (elements, rows, columns): a product's slices, not added."""
    elements, rows, columns = c.shape
    where = at((blocks_of(rows, TILE), blocks_of(columns, TILE), elements), (SIDE, SIDE))
    product[where](a, b, c, a.shape[1] // elements)


def forward(convolve: Convolve, case: KernelCase, arrays: StepArrays) -> None:
    convolve(arrays, arrays["x"], arrays["weight"], arrays["bias"], arrays["out"], geometry(case)[1])


def backward_input(convolve: Convolve, case: KernelCase, arrays: StepArrays) -> None:
    dy, weight, dx = arrays["dy"], arrays["weight"], arrays["dx"]
    filters, height, width, depth = weight.shape
    rotated = arrays.scratch("rotated filters", (depth, height, width, filters))
    rotate_filters[over(rotated.size)](weight, rotated)
    (top, left), zeros = geometry(case)[1], arrays.zeros(depth)
    convolve(arrays, dy, rotated, zeros, dx, (height - 1 - top, width - 1 - left))


def refuse(case: KernelCase) -> str:
    if read_window(case.attributes).stride != (1, 1):
        return "This level computes every pixel; it is for stride 1."
    return im2col.refuse(case)
