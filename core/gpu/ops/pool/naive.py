"""Pooling, naive: one thread per element of the result. The global average has one window of all pixels.

Gradients gather, so that no two threads write the same element.
"""

from __future__ import annotations

import math
from typing import Final

from core.gpu.compilation.arrays import Batch, Int, Pair, float32
from core.gpu.compilation.cuda import cuda, device_function
from core.gpu.teaching.kernel import indices, kernel

LOWEST: Final = float32(-math.inf)


@kernel
def naive_max_forward(x: Batch, out: Batch, kernel: Pair, stride: Pair, pad: Pair) -> None:
    i = cuda.grid(1)
    if i >= out.size:
        return
    n, row, column, c = indices(i, out.shape)
    y0, z0 = row * stride[0] - pad[0], column * stride[1] - pad[1]
    best = LOWEST
    for y in range(max(y0, 0), min(y0 + kernel[0], x.shape[1])):
        for z in range(max(z0, 0), min(z0 + kernel[1], x.shape[2])):
            best = max(best, x[n, y, z, c])
    out[n, row, column, c] = best


@kernel
def naive_max_backward(x: Batch, dy: Batch, dx: Batch, kernel: Pair, stride: Pair, pad: Pair) -> None:
    """One thread per input element: in each window with the element, checks whether it is the first maximum."""
    i = cuda.grid(1)
    if i >= dx.size:
        return
    n, y, z, c = indices(i, dx.shape)
    mine = x[n, y, z, c]
    total = float32(0)
    for row in range(first_window(y, kernel[0], stride[0], pad[0]), min((y + pad[0]) // stride[0] + 1, dy.shape[1])):
        y0 = row * stride[0] - pad[0]
        first_column = first_window(z, kernel[1], stride[1], pad[1])
        for column in range(first_column, min((z + pad[1]) // stride[1] + 1, dy.shape[2])):
            z0 = column * stride[1] - pad[1]
            first = True
            for v in range(max(y0, 0), min(y0 + kernel[0], x.shape[1])):
                for w in range(max(z0, 0), min(z0 + kernel[1], x.shape[2])):
                    before = v < y or (v == y and w < z)
                    other = x[n, v, w, c]
                    if other > mine or (before and other == mine):
                        first = False
            if first:
                total += dy[n, row, column, c]
    dx[n, y, z, c] = total


@device_function
def first_window(at: Int, kernel: Int, stride: Int, pad: Int):
    """The first window, along one side, that contains the pixel `at`."""
    return max((at + pad - kernel) // stride + 1, 0)


@kernel
def naive_avg_forward(x: Batch, out: Batch, kernel: Pair, stride: Pair, pad: Pair, after: Pair, include: Int) -> None:
    """One thread per output; `include` 1 counts padding in the divisor, `after` is the padding below and right."""
    i = cuda.grid(1)
    if i >= out.size:
        return
    n, row, column, c = indices(i, out.shape)
    y0, z0 = row * stride[0] - pad[0], column * stride[1] - pad[1]
    total = float32(0)
    for y in range(max(y0, 0), min(y0 + kernel[0], x.shape[1])):
        for z in range(max(z0, 0), min(z0 + kernel[1], x.shape[2])):
            total += x[n, y, z, c]
    rows = counted(y0, kernel[0], x.shape[1], pad[0], after[0], include)
    columns = counted(z0, kernel[1], x.shape[2], pad[1], after[1], include)
    out[n, row, column, c] = total / float32(rows * columns)


@device_function
def counted(start: Int, kernel: Int, size: Int, before: Int, after: Int, include: Int):
    """Pixels along one side of a window that count in the mean."""
    if include:
        return min(start + kernel, size + after) - max(start, -before)
    return min(start + kernel, size) - max(start, 0)


@kernel
def naive_avg_backward(dy: Batch, dx: Batch, kernel: Pair, stride: Pair, pad: Pair, after: Pair, include: Int) -> None:
    """One thread per input element adds its share of every window that contains it."""
    i = cuda.grid(1)
    if i >= dx.size:
        return
    n, y, z, c = indices(i, dx.shape)
    total = float32(0)
    for row in range(first_window(y, kernel[0], stride[0], pad[0]), min((y + pad[0]) // stride[0] + 1, dy.shape[1])):
        rows = counted(row * stride[0] - pad[0], kernel[0], dx.shape[1], pad[0], after[0], include)
        first_column = first_window(z, kernel[1], stride[1], pad[1])
        for column in range(first_column, min((z + pad[1]) // stride[1] + 1, dy.shape[2])):
            columns = counted(column * stride[1] - pad[1], kernel[1], dx.shape[2], pad[1], after[1], include)
            total += dy[n, row, column, c] / float32(rows * columns)
    dx[n, y, z, c] = total
