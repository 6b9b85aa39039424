"""What convolutions in another basis share: a product for each place of the transformed tiles, and the input gradient.

`winograd.py` and `fft.py` transform tiles of pixels and the filters, sum over channels by one matrix product a place,
and transform the results back. Their input gradient is the same convolution of dy with turned filters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from core.gpu.compilation.arrays import Filters
from core.gpu.compilation.cuda import cuda
from core.gpu.ops.conv import im2col
from core.gpu.ops.dense.product import SIDE, TILE
from core.gpu.teaching.kernel import DeviceArray, TeachingKernel, at, blocks, kernel, over
from core.gpu.teaching.launchers import geometry
from core.gpu.teaching.step_arrays import StepArrays
from core.ops.registry import KernelCase
from core.ops.window import read_window

Convolve: TypeAlias = Callable[[StepArrays, DeviceArray, DeviceArray, DeviceArray, DeviceArray, tuple[int, int]], None]
"""(arrays, x, weight, bias, out, padding at the top and left)."""


@kernel
def turn_filters(weight: Filters, turned: Filters) -> None:
    """``(O, KH, KW, C)`` to ``(C, KH, KW, O)``, taps in reverse order: the filters of the input gradient."""
    i = cuda.grid(1)
    if i < turned.size:
        _, height, width, depth = turned.shape
        o, kx, ky, c = i % depth, i // depth % width, i // (depth * width) % height, i // (depth * width * height)
        turned[c, ky, kx, o] = weight[o, height - 1 - ky, width - 1 - kx, c]


def multiply_places(product: TeachingKernel, a: DeviceArray, b: DeviceArray, c: DeviceArray) -> None:
    """``c[place] = A[place] B[place]``, c (places, rows, columns): slices of a product's depth, not added up."""
    places, rows, columns = c.shape
    product[at((blocks(rows, TILE), blocks(columns, TILE), places), (SIDE, SIDE))](a, b, c, a.shape[1] // places)


def forward(convolve: Convolve, case: KernelCase, arrays: StepArrays) -> None:
    x, weight, out = arrays["x"], arrays["weight"], arrays["out"]
    bias = arrays["bias"] if "bias" in arrays else arrays.zeros(weight.shape[0])
    convolve(arrays, x, weight, bias, out, geometry(case)[1])


def backward_input(convolve: Convolve, case: KernelCase, arrays: StepArrays) -> None:
    dy, weight, dx = arrays["dy"], arrays["weight"], arrays["dx"]
    filters, height, width, depth = weight.shape
    turned = arrays.scratch("turned filters", (depth, height, width, filters))
    turn_filters[over(turned.size)](weight, turned)
    (top, left), zeros = geometry(case)[1], arrays.zeros(depth)
    convolve(arrays, dy, turned, zeros, dx, (height - 1 - top, width - 1 - left))


def refuse(case: KernelCase) -> str:
    if read_window(case.attributes).stride != (1, 1):
        return "This level computes every pixel; it is for stride 1."
    return im2col.refuse(case)
