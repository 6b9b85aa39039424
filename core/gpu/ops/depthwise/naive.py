"""Depthwise convolution: every channel has its own small filter, so there is next to nothing to reuse but pixels.

- naive:  one thread per element of the result
- shared: (gradient of the filters) 32 channels x 8 lines of threads a block sum slices of the pixels
"""

from __future__ import annotations

from typing import Final

from core.gpu.compilation.arrays import Batch, Filters, Int, Matrix, Pair, Vector, float32
from core.gpu.compilation.cuda import cuda
from core.gpu.teaching.candidates import StepArrays, geometry
from core.gpu.teaching.column_sums import (
    COLUMNS,
    ROWS,
    add_lines,
    launch_sum_columns,
    sum_columns_naive,
    sum_slices,
)
from core.gpu.teaching.kernel import as_matrix, at, blocks, flat, kernel, over
from core.ops.registry import Case

SLICE_PIXELS: Final = 2048


@kernel
def naive_forward(x: Batch, weight: Filters, bias: Vector, out: Batch, stride: Pair, pad: Pair) -> None:
    """One thread per output."""
    i = cuda.grid(1)
    if i >= out.size:
        return
    channels = out.shape[3]
    c, column = i % channels, i // channels % out.shape[2]
    row, n = i // (channels * out.shape[2]) % out.shape[1], i // (channels * out.shape[2] * out.shape[1])
    total = bias[c]
    for ky in range(weight.shape[1]):
        y = row * stride[0] - pad[0] + ky
        if 0 <= y < x.shape[1]:
            for kx in range(weight.shape[2]):
                z = column * stride[1] - pad[1] + kx
                if 0 <= z < x.shape[2]:
                    total += x[n, y, z, c] * weight[c, ky, kx, 0]
    out[n, row, column, c] = total


@kernel
def naive_backward_input(dy: Batch, weight: Filters, dx: Batch, stride: Pair, pad: Pair) -> None:
    """One thread per input element gathers from every window that saw it."""
    i = cuda.grid(1)
    if i >= dx.size:
        return
    channels = dx.shape[3]
    c, z = i % channels, i // channels % dx.shape[2]
    y, n = i // (channels * dx.shape[2]) % dx.shape[1], i // (channels * dx.shape[2] * dx.shape[1])
    total = float32(0)
    for ky in range(weight.shape[1]):
        row, rest = (y + pad[0] - ky) // stride[0], (y + pad[0] - ky) % stride[0]
        if rest == 0 and 0 <= row < dy.shape[1]:
            for kx in range(weight.shape[2]):
                column, rest = (z + pad[1] - kx) // stride[1], (z + pad[1] - kx) % stride[1]
                if rest == 0 and 0 <= column < dy.shape[2]:
                    total += dy[n, row, column, c] * weight[c, ky, kx, 0]
    dx[n, y, z, c] = total


@kernel
def naive_backward_weight(x: Batch, dy: Batch, dweight: Filters, stride: Pair, pad: Pair) -> None:
    """One thread per weight loops over all pixels."""
    i = cuda.grid(1)
    if i >= dweight.size:
        return
    c, tap = i // (dweight.shape[1] * dweight.shape[2]), i % (dweight.shape[1] * dweight.shape[2])
    ky, kx = tap // dweight.shape[2], tap % dweight.shape[2]
    total = float32(0)
    for n in range(dy.shape[0]):
        for row in range(dy.shape[1]):
            y = row * stride[0] - pad[0] + ky
            if 0 <= y < x.shape[1]:
                for column in range(dy.shape[2]):
                    z = column * stride[1] - pad[1] + kx
                    if 0 <= z < x.shape[2]:
                        total += dy[n, row, column, c] * x[n, y, z, c]
    dweight[c, ky, kx, 0] = total


@kernel
def shared_backward_weight(x: Batch, dy: Batch, parts: Matrix, width: Int, taps: Int, stride: Pair, pad: Pair) -> None:
    """Grid (channels / 32, taps, slices of pixels): parts (slices, C taps)."""
    sums = cuda.shared.array((ROWS, COLUMNS), float32)
    lane = cuda.threadIdx.x
    line = cuda.threadIdx.y
    c = cuda.blockIdx.x * COLUMNS + lane
    ky, kx = cuda.blockIdx.y // width, cuda.blockIdx.y % width
    rows, columns = dy.shape[1], dy.shape[2]
    first = cuda.blockIdx.z * SLICE_PIXELS
    total = float32(0)
    if c < dy.shape[3]:
        for pixel in range(first + line, min(first + SLICE_PIXELS, dy.shape[0] * rows * columns), ROWS):
            n, row, column = pixel // (rows * columns), pixel // columns % rows, pixel % columns
            y = row * stride[0] - pad[0] + ky
            z = column * stride[1] - pad[1] + kx
            if 0 <= y < x.shape[1] and 0 <= z < x.shape[2]:
                total += dy[n, row, column, c] * x[n, y, z, c]
    total = add_lines(sums, total)
    if line == 0 and c < dy.shape[3]:
        parts[cuda.blockIdx.z, c * taps + cuda.blockIdx.y] = total


def launch_naive_forward(case: Case, arrays: StepArrays) -> None:
    x, weight, out = arrays["x"], arrays["weight"], arrays["out"]
    bias = arrays["bias"] if "bias" in arrays else arrays.zeros(weight.shape[0])
    naive_forward[over(out.size)](x, weight, bias, out, *geometry(case))


def launch_naive_backward_input(case: Case, arrays: StepArrays) -> None:
    dx = arrays["dx"]
    naive_backward_input[over(dx.size)](arrays["dy"], arrays["weight"], dx, *geometry(case))


def launch_naive_backward_weight(case: Case, arrays: StepArrays) -> None:
    dy, dweight = arrays["dy"], arrays["dweight"]
    naive_backward_weight[over(dweight.size)](arrays["x"], dy, dweight, *geometry(case))
    if "dbias" in arrays:
        sum_columns_naive[over(dy.shape[3])](as_matrix(dy), arrays["dbias"])


def launch_shared_backward_weight(case: Case, arrays: StepArrays) -> None:
    dy, dweight = arrays["dy"], arrays["dweight"]
    channels, height, width, _ = dweight.shape
    slices = blocks(dy.size // channels, SLICE_PIXELS)
    parts = arrays.scratch("depthwise slices", (slices, dweight.size))
    grid = (blocks(channels, COLUMNS), height * width, slices)
    block = (COLUMNS, ROWS)
    shared_backward_weight[at(grid, block)](arrays["x"], dy, parts, width, height * width, *geometry(case))
    sum_slices[over(dweight.size)](parts, flat(dweight))
    if "dbias" in arrays:
        launch_sum_columns(as_matrix(dy), arrays["dbias"])
