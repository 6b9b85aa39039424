"""Convolution as a matrix product: windows unfolded into rows, then the tiled product of `ops/dense/product.py`.

``columns[pixel, (ky, kx, c)]`` times the filters ``(O, kh kw C)`` transposed. Costs memory: every pixel is written
kh kw / (stride stride) times (9 for a 3x3), which `tensor_core` avoids.
Source: Chellapilla, Puri and Simard, "High performance convolutional neural networks", 2006.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.arrays import Batch, Cube, Int, Matrix, Pair, float32, index, int32
from core.gpu.compilation.cuda import cuda
from core.gpu.launch import blocks_of
from core.gpu.ops.dense.product import add_bias, launch_product, product_nn, product_nt, product_tn
from core.gpu.teaching.candidates import geometry, groups, window_of
from core.gpu.teaching.column_sums import launch_bias_gradient
from core.gpu.teaching.kernel import Where, as_matrix, at, indices, kernel, over
from core.gpu.teaching.step_arrays import StepArrays
from core.ops.registry import KernelCase
from core.ops.window import POINT, read_window

WINDOWS: Final = 8
"""Windows of which a thread copies an element."""


def windows_at(photos: int, rows: int, across: int) -> Where:
    """Blocks and threads of `unfold`, for outputs of rows x across pixels."""
    return at((blocks_of(across, 8 * WINDOWS), rows, photos), (32, 8))


@kernel
def unfold(x: Cube, columns: Matrix, across: Int, line: Int, depth: Int, stride: Pair, pad: Pair) -> None:
    """A thread copies the same element of several windows of a row of the output; blockIdx.y is the row, z the photo.

    The pixels of a window's row are neighbours in x ``(N, H, W C)``: `line` (kw C) elements. Unsigned numbers of 32
    bits are divided several times as fast as those of 64.
    """
    row, y0 = cuda.blockIdx.z * cuda.gridDim.y + cuda.blockIdx.y, cuda.blockIdx.y * stride[0] - pad[0]
    for inner in range(cuda.threadIdx.x, columns.shape[1], cuda.blockDim.x):
        ky = int32(index(inner) // index(line))
        y, z0 = y0 + ky, inner - ky * line - pad[1] * depth
        first = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
        for pixel in range(first, across, cuda.gridDim.x * cuda.blockDim.y):
            z = pixel * stride[1] * depth + z0
            inside = 0 <= y < x.shape[1] and 0 <= z < x.shape[2]
            columns[row * across + pixel, inner] = x[cuda.blockIdx.z, y, z] if inside else float32(0)


@kernel
def fold(columns: Matrix, dx: Batch, rows: Int, across: Int, height: Int, width: Int, stride: Pair, pad: Pair) -> None:
    """The transpose of `unfold`: one thread per input element gathers from every window that contains it."""
    i = cuda.grid(1)
    if i >= dx.size:
        return
    n, y, z, c = indices(i, dx.shape)
    total = float32(0)
    for ky in range(height):
        row, rest = (y + pad[0] - ky) // stride[0], (y + pad[0] - ky) % stride[0]
        if rest == 0 and 0 <= row < rows:
            for kx in range(width):
                column, rest = (z + pad[1] - kx) // stride[1], (z + pad[1] - kx) % stride[1]
                if rest == 0 and 0 <= column < across:
                    total += columns[(n * rows + row) * across + column, (ky * width + kx) * dx.shape[3] + c]
    dx[n, y, z, c] = total


def refuse(case: KernelCase) -> str:
    if groups(case) > 1:
        return "The im2col level convolves all channels at once; it has no groups."
    return ""


def _filters_as_matrix(weight: Any) -> Any:
    """``(O, KH, KW, C)`` as ``(O, KH KW C)``."""
    return weight.reshape(weight.shape[0], weight.size // weight.shape[0])


def _unfolded(case: KernelCase, arrays: StepArrays) -> Any:
    """The windows of x as rows, ``(N rows across, kh kw C)``."""
    x = arrays["x"]
    if window_of(case) == POINT:  # a 1x1 convolution and a dense layer are matrix products already
        return as_matrix(x)
    rows, across, _ = case.output
    height, width = read_window(case.attributes).kernel
    count, side, _, depth = x.shape
    columns = arrays.scratch("columns", (count * rows * across, height * width * depth))
    lines = x.reshape(count, side, x.size // (count * side))
    unfold[windows_at(count, rows, across)](lines, columns, across, width * depth, depth, *geometry(case))
    return columns


def launch_im2col_forward(case: KernelCase, arrays: StepArrays) -> None:
    out = as_matrix(arrays["out"])
    launch_product(product_nt, _unfolded(case, arrays), _filters_as_matrix(arrays["weight"]), out)
    if "bias" in arrays:
        add_bias[over(out.size)](out, arrays["bias"])


def launch_im2col_backward_input(case: KernelCase, arrays: StepArrays) -> None:
    dy, dx, weight = as_matrix(arrays["dy"]), arrays["dx"], _filters_as_matrix(arrays["weight"])
    if window_of(case) == POINT:
        launch_product(product_nn, dy, weight, as_matrix(dx))
        return
    rows, across, _ = case.output
    columns = arrays.scratch("columns", (dy.shape[0], weight.shape[1]))
    launch_product(product_nn, dy, weight, columns)
    height, width = read_window(case.attributes).kernel
    fold[over(dx.size)](columns, dx, rows, across, height, width, *geometry(case))


def launch_im2col_backward_weight(case: KernelCase, arrays: StepArrays) -> None:
    dy = as_matrix(arrays["dy"])
    launch_product(product_tn, dy, _unfolded(case, arrays), _filters_as_matrix(arrays["dweight"]))
    launch_bias_gradient(arrays)
