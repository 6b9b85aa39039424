"""Pooling over windows and over the whole photo.

- naive:      one thread per element of the result; gradients gather, so that no two threads write one place
- vectorised: (max_pool forward) a thread takes four neighbouring channels in 16-byte accesses
- shared:     (global_avg_pool forward) a block sums 32 channels of one photo, its lines meet in shared memory
"""

from __future__ import annotations

import math
from typing import Final

from core.gpu.compilation.cuda import cuda, device_function
from core.gpu.driver.hosted import Arrays, at, blocks, flat, over
from core.gpu.kernels.ladder.arrays import Batch, Cube, Int, Matrix, Pair, Vector, float32
from core.gpu.kernels.ladder.reduction import COLUMNS, ROWS, add_lines
from core.gpu.kernels.ladder.vector import load4, store4
from core.ops.registry import Case
from core.ops.window import read_window

LOWEST: Final = float32(-math.inf)


@cuda.jit
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


@cuda.jit
def vectorised_max_forward(x: Vector, out: Vector, shape: Pair, result: Pair, deep: Int, kernel: Pair, stride: Pair,
                           pad: Pair) -> None:
    """One thread per four channels; x and out are flat, `shape` and `result` their (height, width)."""
    i = cuda.grid(1)
    if i >= out.size // 4:
        return
    c, pixel = i % (deep // 4) * 4, i // (deep // 4)
    column, row, n = pixel % result[1], pixel // result[1] % result[0], pixel // (result[0] * result[1])
    a, b, d, e = LOWEST, LOWEST, LOWEST, LOWEST
    for y in range(max(row * stride[0] - pad[0], 0), min(row * stride[0] - pad[0] + kernel[0], shape[0])):
        for z in range(max(column * stride[1] - pad[1], 0), min(column * stride[1] - pad[1] + kernel[1], shape[1])):
            v = load4(x, ((n * shape[0] + y) * shape[1] + z) * deep + c)
            a, b, d, e = max(a, v[0]), max(b, v[1]), max(d, v[2]), max(e, v[3])
    store4(out, pixel * deep + c, a, b, d, e)


@cuda.jit
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


@cuda.jit
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


@cuda.jit
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


@cuda.jit
def naive_global_forward(x: Batch, out: Matrix) -> None:
    """One thread per photo and channel walks all pixels."""
    i = cuda.grid(1)
    if i < out.size:
        n, c = i // out.shape[1], i % out.shape[1]
        total = float32(0)
        for y in range(x.shape[1]):
            for z in range(x.shape[2]):
                total += x[n, y, z, c]
        out[n, c] = total / float32(x.shape[1] * x.shape[2])


@cuda.jit
def shared_global_forward(x: Cube, out: Matrix) -> None:
    """A block per photo and 32 channels of x (N, pixels, C): eight lines take every eighth pixel, then add up."""
    sums = cuda.shared.array((ROWS, COLUMNS), float32)
    lane = cuda.threadIdx.x
    line = cuda.threadIdx.y
    c = cuda.blockIdx.x * COLUMNS + lane
    n = cuda.blockIdx.y
    total = float32(0)
    if c < out.shape[1]:
        for p in range(line, x.shape[1], ROWS):
            total += x[n, p, c]
    total = add_lines(sums, total)
    if line == 0 and c < out.shape[1]:
        out[n, c] = total / float32(x.shape[1])


@cuda.jit
def naive_global_backward(dy: Matrix, dx: Batch) -> None:
    """One thread per input element: every pixel gets the same share."""
    i = cuda.grid(1)
    if i < dx.size:
        channels, pixels = dx.shape[3], dx.shape[1] * dx.shape[2]
        c, p, n = i % channels, i // channels % pixels, i // (channels * pixels)
        dx[n, p // dx.shape[2], p % dx.shape[2], c] = dy[n, c] / float32(pixels)


def _geometry(case: Case) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    window = read_window(case.attributes)
    return window.kernel, window.stride, (window.padding[0], window.padding[1])


def _average(case: Case) -> tuple[tuple[int, int], int]:
    window = read_window(case.attributes)
    return (window.padding[2], window.padding[3]), int(bool(case.attributes["count_include_pad"]))


def refuse_odd_channels(case: Case) -> str | None:
    if case.inputs[0][-1] % 4:
        return f"Four channels at a time do not divide {case.inputs[0][-1]} channels."
    return None


def launch_naive_max_forward(case: Case, arrays: Arrays) -> None:
    out = arrays["out"]
    naive_max_forward[over(out.size)](arrays["x"], out, *_geometry(case))


def launch_vectorised_max_forward(case: Case, arrays: Arrays) -> None:
    x, out = arrays["x"], arrays["out"]
    shapes = (x.shape[1], x.shape[2]), (out.shape[1], out.shape[2]), out.shape[3]
    vectorised_max_forward[over(out.size // 4)](flat(x), flat(out), *shapes, *_geometry(case))


def launch_naive_max_backward(case: Case, arrays: Arrays) -> None:
    dx = arrays["dx"]
    naive_max_backward[over(dx.size)](arrays["x"], arrays["dy"], dx, *_geometry(case))


def launch_naive_avg_forward(case: Case, arrays: Arrays) -> None:
    out = arrays["out"]
    naive_avg_forward[over(out.size)](arrays["x"], out, *_geometry(case), *_average(case))


def launch_naive_avg_backward(case: Case, arrays: Arrays) -> None:
    dx = arrays["dx"]
    naive_avg_backward[over(dx.size)](arrays["dy"], dx, *_geometry(case), *_average(case))


def launch_naive_global_forward(case: Case, arrays: Arrays) -> None:
    out = arrays["out"]
    naive_global_forward[over(out.size)](arrays["x"], out)


def launch_shared_global_forward(case: Case, arrays: Arrays) -> None:
    x, out = arrays["x"], arrays["out"]
    pixels = x.reshape(x.shape[0], x.shape[1] * x.shape[2], x.shape[3])
    shared_global_forward[at((blocks(out.shape[1], COLUMNS), out.shape[0]), (COLUMNS, ROWS))](pixels, out)


def launch_naive_global_backward(case: Case, arrays: Arrays) -> None:
    dx = arrays["dx"]
    naive_global_backward[over(dx.size)](arrays["dy"], dx)
