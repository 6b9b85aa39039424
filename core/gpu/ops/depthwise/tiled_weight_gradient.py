"""Gradient of a depthwise convolution's filters, 3x3 with stride 1: every pixel is read once for all nine taps.

The rungs below it have a thread per tap, so that x and dy travel nine times. Here a thread walks down one column of
four channels: nine sums (and the bias's) of each channel and three rows of dy lie in registers, a new row of x meets
all three. The pixels are split over many blocks, whose parts are added in a fixed order: no atomics, the same bits.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import SIMULATED, cuda, device_function
from core.gpu.driver.hosted import Arrays, at, blocks, flat, scratch
from core.gpu.kernels.ladder.arrays import Int, Matrix, Pair, Vector, float32, index, int32
from core.gpu.kernels.ladder.cases import geometry
from core.gpu.kernels.ladder.reduction import launch_sum_parts
from core.gpu.kernels.ladder.vector import load4
from core.gpu.kernels.parts.thread_rows import lanes_a_row
from core.ops.registry import Case

THREADS: Final = 32 if SIMULATED else 128
STORED: Final = THREADS * 40
BOUNDS: Final[dict[str, Any]] = {} if SIMULATED else {"launch_bounds": (THREADS, 4)}
"""Four blocks a multiprocessor, as many as `BLOCKS`: 0.183 ms at 128 x 512 x 32 x 32, 0.255 ms with six."""
WIDEST: Final = 32
"""Fours of channels a block at most; the other threads take neighbouring columns (64: 0.191 ms)."""
BLOCKS: Final = 132 * 4
"""Blocks that fill the largest GPU; a constant, since the order of the sums follows from it."""
LEAST_ROWS: Final = 4
"""Rows of a strip at least: a strip reads two rows of x more than it has."""


@device_function
def fetch_row(photos, n, y, low, high, first, rows, columns, deep, c, out, count):
    """`count` neighbouring pixels of four channels of row y; zeros outside of the columns and of rows low to high."""
    line = int32((n * rows + min(max(y, low), int32(high - int32(1)))) * columns)
    for p in range(count):
        z = int32(first + p)
        v = load4(photos, int32((line + min(max(z, int32(0)), int32(columns - int32(1)))) * deep + c))
        inside = y >= low and y < high and z >= 0 and z < columns
        for q in range(4):
            out[p * 4 + q] = v[q] if inside else float32(0)


@device_function
def add_row(rows, pixels, sums):
    """Three pixels of x times the three rows of dy that see them, newest first; the newest onto the bias's sums too."""
    for tap in range(9):
        for q in range(4):
            sums[tap * 4 + q] += rows[tap // 3 * 4 + q] * pixels[tap % 3 * 4 + q]
    for q in range(4):
        sums[36 + q] += rows[q]


@device_function
def walk_strip(x, dy, n, row0, last, column, seen, made, deep, c, pad, sums):
    """Rows row0 to last of a column of dy; the next rows are on their way while these are multiplied."""
    rows = cuda.local.array(12, float32)
    pixels = cuda.local.array(12, float32)
    coming = cuda.local.array(12, float32)
    below = cuda.local.array(4, float32)
    for i in range(12):
        rows[i] = float32(0)
    height, width, ho, wo = int32(seen[0]), int32(seen[1]), int32(made[0]), int32(made[1])
    top, left = int32(pad[0]), int32(column - int32(pad[1]))
    fetch_row(x, n, int32(row0 - top), int32(0), height, left, height, width, deep, c, coming, 3)
    fetch_row(dy, n, row0, row0, last, column, ho, wo, deep, c, below, 1)
    for r in range(row0, int32(last + int32(2))):
        for i in range(8):
            rows[11 - i] = rows[7 - i]
        for q in range(4):
            rows[q] = below[q]
        for i in range(12):
            pixels[i] = coming[i]
        s = int32(r + int32(1))
        fetch_row(x, n, int32(s - top), int32(0), height, left, height, width, deep, c, coming, 3)
        fetch_row(dy, n, s, row0, last, column, ho, wo, deep, c, below, 1)
        add_row(rows, pixels, sums)


@cuda.jit(**BOUNDS)
def tiled_backward_weight(
    x: Vector, dy: Vector, parts: Matrix, bias_parts: Matrix, seen: Pair, made: Pair, photos: Int, channels: Int,
    pad: Pair, tall: Int, wide: Int,
) -> None:  # fmt: skip
    """Grid (slices, groups of channels): a block adds to its rows of parts (9 channels) and bias_parts (channels).

    Flat x and dy of `seen` and `made` (height, width); a block has `wide` x 4 channels, a strip `tall` rows.
    """
    shared = cuda.shared.array(STORED, float32)
    t, quads, deep = index(cuda.threadIdx.x), index(wide), int32(channels)
    line, lines = index(t // quads), index(index(THREADS) // quads)
    first = int32(index(cuda.blockIdx.y) * quads * index(4))
    c = int32(first + int32(index(t - line * quads) * index(4)))
    sums = cuda.local.array(40, float32)
    for i in range(40):
        sums[i] = float32(0)
    columns = index(made[1])
    strips = index(index(index(made[0]) + index(tall) - index(1)) // index(tall))
    item, step = index(index(cuda.blockIdx.x) * lines + line), index(index(cuda.gridDim.x) * lines)
    while line < lines and item < index(index(photos) * strips * columns):
        strip = index(item // columns)
        n = index(strip // strips)
        row0 = int32(index(strip - n * strips) * index(tall))
        last = int32(min(int32(row0 + int32(tall)), int32(made[0])))
        column = int32(item - strip * columns)
        walk_strip(x, dy, int32(n), row0, last, column, seen, made, deep, c, pad, sums)
        item = index(item + step)
    mine = index((line * index(10) * quads + t - line * quads) * index(4))
    if line < lines:
        for k in range(10):
            for q in range(4):
                shared[mine + index(k) * quads * index(4) + index(q)] = sums[k * 4 + q]
    cuda.syncthreads()  # every thread's sums stand
    for i in range(t, quads * index(40), THREADS):
        total = float32(0)
        for other in range(lines):
            total += shared[index(other) * quads * index(40) + i]
        k = index(i // (quads * index(4)))
        place = index(first) + index(i - k * quads * index(4))
        if k < 9:
            parts[cuda.blockIdx.x, place * index(9) + k] = total
        else:
            bias_parts[cuda.blockIdx.x, place] = total


def launch(case: Case, arrays: Arrays) -> None:
    """As a row of the table; case as `core.gpu.ops.depthwise.naive.refuse_tiled` lets it through."""
    x, dy, dweight = arrays["x"], arrays["dy"], arrays["dweight"]
    photos, height, width, channels = dy.shape
    quads = channels // 4
    wide = lanes_a_row(quads, THREADS, WIDEST)
    lines, groups = THREADS // wide, quads // wide
    columns = photos * width
    room = max(1, BLOCKS // groups)
    tall = min(height, max(LEAST_ROWS, columns * height // (room * lines)))
    slices = min(room, blocks(columns * blocks(height, tall), lines))
    parts = scratch(arrays, "depthwise parts", (slices, 9 * channels))
    bias_parts = scratch(arrays, "depthwise bias parts", (slices, channels))
    tiled_backward_weight[at((slices, groups), (THREADS,))](
        flat(x), flat(dy), parts, bias_parts, x.shape[1:3], (height, width), photos, channels, geometry(case)[1], tall,
        wide,
    )  # fmt: skip
    launch_sum_parts(parts, flat(dweight))
    if "dbias" in arrays:
        launch_sum_parts(bias_parts, arrays["dbias"])
