"""Weight gradient of a depthwise convolution: blocks of 32 channels x 8 rows of threads sum slices of the pixels.

The naive kernels are those of `ops/conv/naive.py`: a depthwise convolution has as many groups as channels.
"""

from __future__ import annotations

from typing import Final

from core.gpu.compilation.arrays import Batch, Int, Matrix, Pair, float32
from core.gpu.compilation.cuda import cuda
from core.gpu.launch import blocks_of
from core.gpu.teaching.candidates import geometry
from core.gpu.teaching.column_sums import COLUMNS, ROWS, add_lines, launch_bias_gradient, sum_rows
from core.gpu.teaching.kernel import at, flat, kernel, over
from core.gpu.teaching.step_arrays import StepArrays
from core.ops.registry import KernelCase

SLICE_PIXELS: Final = 2048


@kernel
def shared_backward_weight(
    x: Batch, dy: Batch, partials: Matrix, width: Int, taps: Int, stride: Pair, pad: Pair
) -> None:
    """Grid (channels / 32, taps, slices of pixels): partials (slices, C taps)."""
    sums = cuda.shared.array((ROWS, COLUMNS), float32)
    lane, line = cuda.threadIdx.x, cuda.threadIdx.y
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
        partials[cuda.blockIdx.z, c * taps + cuda.blockIdx.y] = total


def launch_shared_backward_weight(case: KernelCase, arrays: StepArrays) -> None:
    dy, dweight = arrays["dy"], arrays["dweight"]
    channels, height, width, _ = dweight.shape
    slices = blocks_of(dy.size // channels, SLICE_PIXELS)
    partials = arrays.scratch("depthwise slices", (slices, dweight.size))
    grid = (blocks_of(channels, COLUMNS), height * width, slices)
    where = at(grid, (COLUMNS, ROWS))
    shared_backward_weight[where](arrays["x"], dy, partials, width, height * width, *geometry(case))
    sum_rows[over(dweight.size)](partials, flat(dweight))
    launch_bias_gradient(arrays)
