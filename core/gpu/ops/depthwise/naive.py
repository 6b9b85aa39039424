"""Depthwise convolution: every channel has its own small filter, so there is next to nothing to reuse but pixels.

- naive:  one thread per element of the result
- shared: (gradient of the filters) 32 channels x 8 lines of threads a block sum slices of the pixels
- tiled:  a thread makes four neighbouring outputs of four channels: every 16 bytes it loads serve all of them
          that see the pixel, and all its loads are on their way before the first is used
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import SIMULATED, cuda, device_function
from core.gpu.driver.hosted import Arrays, as_matrix, at, blocks, flat, over, scratch, zeros
from core.gpu.kernels.ladder.arrays import Batch, Filters, Int, Matrix, Pair, Vector, float32, index, int32
from core.gpu.kernels.ladder.cases import geometry, refuse_fused
from core.gpu.kernels.ladder.reduction import (
    COLUMNS,
    ROWS,
    add_lines,
    launch_sum_columns,
    sum_columns_naive,
    sum_slices,
)
from core.gpu.kernels.ladder.vector import load4, store4
from core.ops.registry import Case

SLICE_PIXELS: Final = 2048
FULL: Final = 132 * 2048
"""Threads that fill the largest GPU: below it 2 x 2 outputs a thread are fastest, above it 4 x 1."""
WALK_THREADS: Final = 32 if SIMULATED else 128
WALK_BOUNDS: Final[dict[str, Any]] = {} if SIMULATED else {"launch_bounds": (WALK_THREADS, 1)}
"""Told how few threads there are, the compiler keeps 16 loads in flight; it would save registers otherwise."""


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


def make_walk(tall: int, wide: int) -> Any:
    """Kernel of the tiled rung: 3x3 with stride 1 on flat arrays, `tall` x `wide` outputs of four channels a thread.

    All pixels that a thread sees are on their way before the first is used. x is `seen` (height, width), out `made`;
    grid (columns and channels, rows, photos). `turned` 1 reads the filters back to front: the gradient of the input
    is that walk over dy.
    """
    seen_wide, pixels_seen, sums_made = wide + 2, (tall + 2) * (wide + 2) * 4, tall * wide * 4

    @device_function
    def fetch_pixels(x, n, y0, z0, rows, columns, deep, c, pixels):
        for o in range((tall + 2) * seen_wide):
            y, z = int32(y0 + o // seen_wide), int32(z0 + o % seen_wide)
            if y >= 0 and y < rows and z >= 0 and z < columns:
                v = load4(x, int32(((n * rows + y) * columns + z) * deep + c))
                for q in range(4):
                    pixels[o * 4 + q] = v[q]
            else:
                for q in range(4):
                    pixels[o * 4 + q] = float32(0)

    @device_function
    def fetch_taps(weight, c, turned, taps):
        for k in range(9):
            v = load4(weight, int32(c * 9 + k * 4))
            for q in range(4):
                taps[k * 4 + q] = v[q]
        if turned:
            for k in range(16):
                near, far = k // 4 * 9 + k % 4, k // 4 * 9 + 8 - k % 4
                held = taps[near]
                taps[near] = taps[far]
                taps[far] = held

    @device_function
    def add_window(pixels, taps, sums, o):
        first = o // wide * seen_wide + o % wide
        for tap in range(9):
            for q in range(4):
                sums[o * 4 + q] += pixels[(first + tap // 3 * seen_wide + tap % 3) * 4 + q] * taps[q * 9 + tap]

    @cuda.jit(**WALK_BOUNDS)
    def walk(
        x: Vector, weight: Vector, bias: Vector, out: Vector, seen: Pair, made: Pair, channels: Int, pad: Pair,
        turned: Int,
    ) -> None:
        deep, rows, columns = int32(channels), int32(made[0]), int32(made[1])
        i = index(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
        quads = index(index(channels) >> index(2))
        strip = index(i // quads)
        c, column = int32(index(i - strip * quads) * index(4)), int32(strip * index(wide))
        row, n = int32(cuda.blockIdx.y * tall), int32(cuda.blockIdx.z)
        if column >= columns:
            return
        pixels = cuda.local.array(pixels_seen, float32)  # (row, column, channel)
        taps = cuda.local.array(36, float32)  # (channel, tap)
        sums = cuda.local.array(sums_made, float32)
        y0, z0 = int32(row - int32(pad[0])), int32(column - int32(pad[1]))
        fetch_pixels(x, n, y0, z0, int32(seen[0]), int32(seen[1]), deep, c, pixels)
        fetch_taps(weight, c, turned, taps)
        b = load4(bias, c)
        for o in range(tall * wide):
            for q in range(4):
                sums[o * 4 + q] = b[q]
            add_window(pixels, taps, sums, o)
        for o in range(tall * wide):
            y, z = int32(row + o // wide), int32(column + o % wide)
            if y < rows and z < columns:
                at = int32(((n * rows + y) * columns + z) * deep + c)
                store4(out, at, sums[o * 4], sums[o * 4 + 1], sums[o * 4 + 2], sums[o * 4 + 3])

    return walk


square_walk: Final = make_walk(2, 2)
tall_walk: Final = make_walk(4, 1)


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
    total = add_lines(sums, total)
    if line == 0 and c < dy.shape[3]:
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
    tall, wide, kernel = (4, 1, tall_walk) if out.size // 16 > FULL else (2, 2, square_walk)
    grid = (blocks(blocks(width, wide) * deep // 4, WALK_THREADS), blocks(height, tall), photos)
    sizes = (x.shape[1], x.shape[2]), (height, width), deep
    kernel[at(grid, (WALK_THREADS,))](flat(x), flat(weight), bias, flat(out), *sizes, pad, turned)


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
