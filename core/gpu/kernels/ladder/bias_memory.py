"""A bias from constant memory against one from global memory, in the plainest depthwise and pointwise kernels.

Constant memory gives one address a cycle to a whole warp: good where all threads want the same bias (pointwise, a
filter a block), and as many times slower as there are different ones where they do not (depthwise, a channel a thread).
"""

from __future__ import annotations

from typing import Any

from core.gpu.compilation.cuda import cuda
from core.gpu.kernels.ladder.arrays import Batch, Filters, Matrix, Vector, float32
from core.ops.contract import Array


def make_depthwise(constant: Array | None) -> Any:
    """3x3, stride 1, padding 1, one thread an output: x (N, H, W, C), weight (C, 3, 3, 1), out like x.

    `constant` holds the bias, compiled into the kernel; without it the argument is read.
    """

    def depthwise(x: Batch, weight: Filters, bias: Vector, out: Batch) -> None:
        i = cuda.grid(1)
        if i >= out.size:
            return
        channels, width, height = out.shape[3], out.shape[2], out.shape[1]
        c, column = i % channels, i // channels % width
        row, n = i // (channels * width) % height, i // (channels * width * height)
        if constant is None:
            total = bias[c]
        else:
            total = cuda.const.array_like(constant)[c]
        for ky in range(3):
            for kx in range(3):
                y, z = row - 1 + ky, column - 1 + kx
                if 0 <= y < height and 0 <= z < width:
                    total += x[n, y, z, c] * weight[c, ky, kx, 0]
        out[n, row, column, c] = total

    return cuda.jit(depthwise)


def make_pointwise(constant: Array | None) -> Any:
    """1x1, a pixel a thread and a filter a block of the second axis: x (channels, pixels), weight (filters, channels),
    out (filters, pixels)."""

    def pointwise(x: Matrix, weight: Matrix, bias: Vector, out: Matrix) -> None:
        pixel, f = cuda.grid(1), cuda.blockIdx.y
        if pixel >= out.shape[1]:
            return
        if constant is None:
            total = bias[f]
        else:
            total = cuda.const.array_like(constant)[f]
        for c in range(x.shape[0]):
            total += x[c, pixel] * weight[f, c]
        out[f, pixel] = float32(total)

    return cuda.jit(pointwise)
