"""Pooling, naive: one thread for each element of the result. The global average is that of one window of all pixels.

Gradients gather, so that no two threads write one place.
"""

from __future__ import annotations

import math
from typing import Final

from core.gpu.compilation.arrays import Batch, Int, Pair, float32
from core.gpu.compilation.cuda import cuda, device_function
from core.gpu.teaching.kernel import kernel

LOWEST: Final = float32(-math.inf)


@kernel
def naive_max_forward(x: Batch, out: Batch, kernel: Pair, stride: Pair, pad: Pair) -> None:
    """One thread per output."""
    i = cuda.grid(1)
    if i >= out.size:
        return
    channels, columns = out.shape[3], out.shape[2]
    c, column = i % channels, i // channels % columns
    row, n = i // (channels * columns) % out.shape[1], i // (channels * columns * out.shape[1])
    best = LOWEST
    for y in range(max(row * stride[0] - pad[0], 0), min(row * stride[0] - pad[0] + kernel[0], x.shape[1])):
        for z in range(max(column * stride[1] - pad[1], 0), min(column * stride[1] - pad[1] + kernel[1], x.shape[2])):
            best = max(best, x[n, y, z, c])
    out[n, row, column, c] = best


@kernel
def naive_max_backward(x: Batch, dy: Batch, dx: Batch, kernel: Pair, stride: Pair, pad: Pair) -> None:
    """One thread per input element: it asks every window that saw it whether it was the first largest there."""
    i = cuda.grid(1)
    if i >= dx.size:
        return
    channels, width = dx.shape[3], dx.shape[2]
    c, z = i % channels, i // channels % width
    y, n = i // (channels * width) % dx.shape[1], i // (channels * width * dx.shape[1])
    mine = x[n, y, z, c]
    total = float32(0)
    first_row = max((y + pad[0] - kernel[0]) // stride[0] + 1, 0)
    for row in range(first_row, min((y + pad[0]) // stride[0] + 1, dy.shape[1])):
        first_column = max((z + pad[1] - kernel[1]) // stride[1] + 1, 0)
        for column in range(first_column, min((z + pad[1]) // stride[1] + 1, dy.shape[2])):
            first = True
            y0, z0 = row * stride[0] - pad[0], column * stride[1] - pad[1]
            for v in range(max(y0, 0), min(y0 + kernel[0], x.shape[1])):
                for w in range(max(z0, 0), min(z0 + kernel[1], width)):
                    before = v < y or (v == y and w < z)
                    other = x[n, v, w, c]
                    if other > mine or (before and other == mine):
                        first = False
            if first:
                total += dy[n, row, column, c]
    dx[n, y, z, c] = total


@kernel
def naive_avg_forward(x: Batch, out: Batch, kernel: Pair, stride: Pair, pad: Pair, after: Pair, include: Int) -> None:
    """One thread per output; `include` 1 counts padding in the divisor, `after` is the padding below and right."""
    i = cuda.grid(1)
    if i >= out.size:
        return
    channels, columns = out.shape[3], out.shape[2]
    c, column = i % channels, i // channels % columns
    row, n = i // (channels * columns) % out.shape[1], i // (channels * columns * out.shape[1])
    y0, z0 = row * stride[0] - pad[0], column * stride[1] - pad[1]
    total = float32(0)
    for y in range(max(y0, 0), min(y0 + kernel[0], x.shape[1])):
        for z in range(max(z0, 0), min(z0 + kernel[1], x.shape[2])):
            total += x[n, y, z, c]
    tall = covered(y0, kernel[0], x.shape[1], pad[0], after[0], include)
    wide = covered(z0, kernel[1], x.shape[2], pad[1], after[1], include)
    out[n, row, column, c] = total / float32(tall * wide)


@device_function
def covered(start: Int, kernel: Int, size: Int, before: Int, after: Int, include: Int):
    """Pixels of one side of a window that count."""
    if include:
        return min(start + kernel, size + after) - max(start, -before)
    return min(start + kernel, size) - max(start, 0)


@kernel
def naive_avg_backward(dy: Batch, dx: Batch, kernel: Pair, stride: Pair, pad: Pair, after: Pair, include: Int) -> None:
    """One thread per input element sums its share of every window that saw it."""
    i = cuda.grid(1)
    if i >= dx.size:
        return
    channels, width = dx.shape[3], dx.shape[2]
    c, z = i % channels, i // channels % width
    y, n = i // (channels * width) % dx.shape[1], i // (channels * width * dx.shape[1])
    total = float32(0)
    first_row = max((y + pad[0] - kernel[0]) // stride[0] + 1, 0)
    for row in range(first_row, min((y + pad[0]) // stride[0] + 1, dy.shape[1])):
        tall = covered(row * stride[0] - pad[0], kernel[0], dx.shape[1], pad[0], after[0], include)
        first_column = max((z + pad[1] - kernel[1]) // stride[1] + 1, 0)
        for column in range(first_column, min((z + pad[1]) // stride[1] + 1, dy.shape[2])):
            wide = covered(column * stride[1] - pad[1], kernel[1], width, pad[1], after[1], include)
            total += dy[n, row, column, c] / float32(tall * wide)
    dx[n, y, z, c] = total
