"""Depthwise convolution: every channel has its own small filter, so there is next to nothing to reuse but pixels.

- naive:  one thread per element of the result
- shared: (gradient of the filters) 32 channels x 8 lines of threads a block sum slices of the pixels
- tiled:  a thread walks down a strip two pixels wide of four channels: every 16 bytes it loads serve all the
          outputs of a 3x3 that see them, whose sums roll through its registers
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.cuda import cuda, device_function
from core.gpu.hosted import Arrays, as_matrix, at, blocks, flat, over, scratch, zeros
from core.gpu.kernels.arrays import Batch, Filters, Int, Matrix, Pair, Vector, float32
from core.gpu.kernels.conv2d import geometry, refuse_fused
from core.gpu.kernels.reduction import COLUMNS, ROWS, launch_sum_columns, sum_columns_naive, sum_slices
from core.gpu.vector import load4, store4
from core.ops.registry import Case

ACROSS: Final = 2
"""Pixels of a row that a thread of the tiled 3x3 makes; a third would not fit into the registers."""
ROW: Final = ACROSS * 4
SEEN: Final = ROW + 8
TALL: Final = 8
"""Rows it makes one below the other, where there are photos enough to fill the GPU; two otherwise."""
SLICE_PIXELS: Final = 2048
FULL: Final = 132 * 2048
"""Threads that fill the largest GPU."""


@cuda.jit
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


@device_function
def fetch_pixel(x: Vector, at, inside, pixels, p):
    """Four channels of one pixel, zeros outside the photo."""
    if inside:
        v = load4(x, at)
        pixels[p], pixels[p + 1], pixels[p + 2], pixels[p + 3] = v[0], v[1], v[2], v[3]
    else:
        for q in range(4):
            pixels[p + q] = float32(0)


@device_function
def add_row(sums, pixels, taps, tap):
    """Three taps of a row of the filter, from `tap` on, on two neighbouring outputs of four channels."""
    for p in range(ACROSS):
        for kx in range(3):
            for q in range(4):
                sums[p * 4 + q] += pixels[(p + kx) * 4 + q] * taps[q * 9 + tap + kx]


@cuda.jit
def tiled_walk(
    x: Vector, weight: Vector, bias: Vector, out: Vector, photos: Int, seen: Pair, made: Pair, deep: Int, pad: Pair,
    tall: Int, turned: Int,
) -> None:
    """3x3 with stride 1 on flat arrays: a thread makes `tall` x 2 pixels of four channels.

    It walks down the rows it sees, `seen` (height, width) of x, and keeps the sums of the three rows of `out`
    (height, width `made`) that the current row belongs to. `turned` 1 reads the filters back to front: the
    gradient of the input is that walk over dy.
    """
    i = cuda.grid(1)
    across, down = (made[1] + ACROSS - 1) // ACROSS, (made[0] + tall - 1) // tall
    if i >= deep // 4 * across * down * photos:
        return
    c, i = i % (deep // 4) * 4, i // (deep // 4)
    column, i = i % across * ACROSS, i // across
    row0, n = i % down * tall, i // down
    taps = cuda.local.array(36, float32)  # (channel, tap)
    for k in range(36):
        taps[k] = weight[c * 9 + (k // 9 * 9 + 8 - k % 9 if turned else k)]
    first = cuda.local.array(ROW, float32)  # sums of the row that the current row is the last of: (pixel, channel)
    second = cuda.local.array(ROW, float32)
    third = cuda.local.array(ROW, float32)
    pixels = cuda.local.array(SEEN, float32)  # (pixel, channel)
    for k in range(ROW):
        second[k] = bias[c + k % 4]
        third[k] = bias[c + k % 4]
    for step in range(tall + 2):
        for k in range(ROW):  # the finished row has left, a new one enters
            first[k] = second[k]
            second[k] = third[k]
            third[k] = bias[c + k % 4]
        y = row0 - pad[0] + step
        if 0 <= y < seen[0]:
            for p in range(ACROSS + 2):
                z = column - pad[1] + p
                fetch_pixel(x, ((n * seen[0] + y) * seen[1] + z) * deep + c, 0 <= z < seen[1], pixels, p * 4)
            add_row(first, pixels, taps, 6)
            add_row(second, pixels, taps, 3)
            add_row(third, pixels, taps, 0)
        row = row0 + step - 2
        if step >= 2 and row < made[0]:
            at = ((n * made[0] + row) * made[1] + column) * deep + c
            store4(out, at, first[0], first[1], first[2], first[3])
            if column + 1 < made[1]:
                store4(out, at + deep, first[4], first[5], first[6], first[7])


@cuda.jit
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


@cuda.jit
def naive_backward_weight(x: Batch, dy: Batch, dweight: Filters, stride: Pair, pad: Pair) -> None:
    """One thread per weight walks all pixels."""
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


@cuda.jit
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
    sums[line, lane] = total
    cuda.syncthreads()  # every line's sum stands
    if line == 0 and c < dy.shape[3]:
        for other in range(1, ROWS):
            total += sums[other, lane]
        parts[cuda.blockIdx.z, c * taps + cuda.blockIdx.y] = total


def refuse_tiled(case: Case) -> str | None:
    if case.attributes["kernel"] != (3, 3) or case.attributes["stride"] != (1, 1):
        return "The tiled rung is made for 3x3 with stride 1."
    if case.output[-1] % 4:
        return f"Four channels at a time do not divide {case.output[-1]} channels."
    return refuse_fused(case)


def launch_naive_forward(case: Case, arrays: Arrays) -> None:
    x, weight, out = arrays["x"], arrays["weight"], arrays["out"]
    bias = arrays["bias"] if "bias" in arrays else zeros(arrays, "bias", weight.shape[0])
    naive_forward[over(out.size)](x, weight, bias, out, *geometry(case))


def _walk(x: Any, weight: Any, bias: Any, out: Any, pad: tuple[int, int], turned: int) -> None:
    photos, height, width, deep = out.shape
    strips = photos * blocks(width, ACROSS) * deep // 4
    tall = TALL if strips * blocks(height, TALL) > FULL else 2
    sizes = photos, (x.shape[1], x.shape[2]), (height, width), deep
    count = strips * blocks(height, tall)
    tiled_walk[over(count)](flat(x), flat(weight), bias, flat(out), *sizes, pad, tall, turned)


def launch_tiled_forward(case: Case, arrays: Arrays) -> None:
    weight = arrays["weight"]
    bias = arrays["bias"] if "bias" in arrays else zeros(arrays, "bias", weight.shape[0])
    _walk(arrays["x"], weight, bias, arrays["out"], geometry(case)[1], 0)


def launch_tiled_backward_input(case: Case, arrays: Arrays) -> None:
    top, left = geometry(case)[1]
    bias = zeros(arrays, "bias", arrays["weight"].shape[0])
    _walk(arrays["dy"], arrays["weight"], bias, arrays["dx"], (2 - top, 2 - left), 1)


def launch_naive_backward_input(case: Case, arrays: Arrays) -> None:
    dx = arrays["dx"]
    naive_backward_input[over(dx.size)](arrays["dy"], arrays["weight"], dx, *geometry(case))


def launch_naive_backward_weight(case: Case, arrays: Arrays) -> None:
    dy, dweight = arrays["dy"], arrays["dweight"]
    naive_backward_weight[over(dweight.size)](arrays["x"], dy, dweight, *geometry(case))
    if "dbias" in arrays:
        sum_columns_naive[over(dy.shape[3])](as_matrix(dy), arrays["dbias"])


def launch_shared_backward_weight(case: Case, arrays: Arrays) -> None:
    dy, dweight = arrays["dy"], arrays["dweight"]
    channels, height, width, _ = dweight.shape
    slices = blocks(dy.size // channels, SLICE_PIXELS)
    parts = scratch(arrays, "depthwise slices", (slices, dweight.size))
    grid = (blocks(channels, COLUMNS), height * width, slices)
    block = (COLUMNS, ROWS)
    shared_backward_weight[at(grid, block)](arrays["x"], dy, parts, width, height * width, *geometry(case))
    sum_slices[over(dweight.size)](parts, flat(dweight))
    if "dbias" in arrays:
        launch_sum_columns(arrays, as_matrix(dy), arrays["dbias"])
