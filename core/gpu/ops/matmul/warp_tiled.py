"""The float32 matrix product at the rate of the vendor's library: a tile for each warp, 8 x 16 sums per thread.

A block of warps computes a tile of C; within it every warp has a rectangle of its own, computed by 4 x 8 threads that
load four neighbours at a time. So one 16-byte load of A and one of B serve whole rows of the warp without a bank
conflict, and 6 loads feed 128 multiply-adds (`double_buffered`: 4 feed 64). The next k blocks are loaded into registers
while the present ones are multiplied. Rows and columns beyond the edge read the last ones inside, since their results
are never stored; only a last, shorter k block is filled with zeros. Where there are fewer tiles than multiprocessors,
the warps of a block split the depth of one small tile instead (`splits`, sliced-K), and their sums are added in a fixed
order: the same bits every time.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from core.gpu.compilation.arrays import Int, Vector, float32, index
from core.gpu.compilation.cuda import cuda, device_function
from core.gpu.launch import blocks_of
from core.gpu.ops.matmul.tiled import matrices
from core.gpu.parts.vectors import clear, put4, unrolled
from core.gpu.teaching.kernel import TeachingKernel, at, flat
from core.gpu.teaching.step_arrays import StepArrays
from core.gpu.teaching.vector import load4, store4
from core.ops.registry import KernelCase

DOWN: Final = 4
ACROSS: Final = 8
"""Threads of a warp along rows and columns, four neighbours each: 16 rows and 32 columns at a time."""
LARGE: Final = (128, 128, 8, 4, 1)
"""Rows, columns and depth of a tile; warps along the rows; splits of the depth."""
SMALL: Final = (64, 64, 16, 2, 1)
"""Where the large tile would leave most multiprocessors idle."""
DEEP: Final = (32, 64, 8, 1, 8)
"""Where the small one does too: at 512 there are 128 blocks of eight warps, each with an eighth of the depth."""
TILES: Final = (LARGE, SMALL, DEEP)
"""Largest first: the first with at least `ENOUGH` blocks is taken, otherwise the last."""
ENOUGH: Final = 132
"""One block for each multiprocessor of an H200."""


def make_column(columns: int, down: int, across: int, pitch: int) -> Any:
    """Device function that multiplies column k of A's tile with row k of B's into down x across sums."""

    @device_function
    def column(a_tile, b_tile, a, b, total, left, top, k):
        for i in range(down // 4):
            put4(load4(a_tile, index(a + index(k * pitch + i * DOWN * 4))), left, i * 4)
        for j in range(across // 4):
            put4(load4(b_tile, index(b + index(k * columns + j * ACROSS * 4))), top, j * 4)
        for i in range(down):
            for j in range(across):
                total[i * across + j] += left[i] * top[j]

    return column


def make_fetcher(slice_depth: int, a_loads: int, b_loads: int, b_step: int) -> Any:
    """Device function that loads the next k blocks into registers, 16 bytes per load, zeros beyond the depth.

    The loads begin at the floats `a_first` + `first` of A, at depth `a_deep`, and `b_first` + `moved` of B.
    """

    @device_function
    def fetch(a, b, a_first, b_first, first, moved, a_deep, b_deep, depth, from_a, from_b):
        if first + index(slice_depth) <= depth:  # no comparison per load: all but the last k blocks
            for j in range(a_loads):
                put4(load4(a, index(a_first[j] + first)), from_a, j * 4)
            for j in range(b_loads):
                put4(load4(b, index(b_first[j] + moved)), from_b, j * 4)
        else:
            for j in range(a_loads):
                for x in range(4):
                    from_a[j * 4 + x] = float32(0)
                if first + a_deep < depth:
                    put4(load4(a, index(a_first[j] + first)), from_a, j * 4)
            for j in range(b_loads):
                for x in range(4):
                    from_b[j * 4 + x] = float32(0)
                if first + b_deep + index(j * b_step) < depth:
                    put4(load4(b, index(b_first[j] + moved)), from_b, j * 4)

    return fetch


def make_keeper(a_loads: int, b_loads: int, a_step: int, b_step: int, pitch: int) -> Any:
    """Device function that stores what `make_fetcher` loaded in the tiles in shared memory."""

    @device_function
    def keep(a_tile, b_tile, a_at, b_at, from_a, from_b):
        for j in range(a_loads):
            for x in range(4):  # four floats of a row of A are stored as a column of the tile
                a_tile[index(a_at + index(x * pitch + j * a_step))] = from_a[j * 4 + x]
        for j in range(b_loads):
            v = from_b[j * 4], from_b[j * 4 + 1], from_b[j * 4 + 2], from_b[j * 4 + 3]
            store4(b_tile, index(b_at + index(j * b_step)), v[0], v[1], v[2], v[3])

    return keep


def make_gatherer(size: int, threads: int, splits: int) -> Any:
    """Device function that adds the splits' sums: the upper half of them to the lower, until the first has all.

    tile: shared memory for half of them; `thread` counts over all splits, `threads` is one split's.
    """

    @device_function
    def gather(tile, total, thread):
        half = index(splits // 2 * threads)
        while half >= index(threads):
            cuda.syncthreads()  # all threads have read the tile
            if half <= thread and thread < index(half + half):
                for j in range(size // 4):
                    o, t = index(index(thread - half + index(j) * half) * index(4)), j * 4
                    store4(tile, o, total[t], total[t + 1], total[t + 2], total[t + 3])
            cuda.syncthreads()  # the upper half's sums are stored
            if thread < half:
                for j in range(size // 4):
                    v = load4(tile, index(index(thread + index(j) * half) * index(4)))
                    for x in range(4):
                        total[j * 4 + x] += v[x]
            half = index(half // index(2))

    return gather


def make_kernel(rows: int, columns: int, depth: int, warps: int, splits: int) -> Any:
    """``C = A B`` on flat arrays with (rows, columns, depth), the last two multiples of 4."""
    threads = 32 * warps
    down, across, a_line, b_line = rows // warps // DOWN, columns // ACROSS, depth // 4, columns // 4
    pitch = rows + 4 if splits == 1 else rows  # padded by 16 bytes against bank conflicts; splits lack room
    a_loads, b_loads = rows * a_line // threads, depth * b_line // threads
    a_step, b_step = threads // a_line, threads // b_line
    a_size, b_size, sums, a_kept, b_kept = depth * pitch, depth * columns, down * across, 4 * a_loads, 4 * b_loads
    a_ring, b_ring, several = 2 * a_size * splits, 2 * b_size * splits, splits > 1
    assert splits == 1 or b_ring >= splits // 2 * rows * columns, "the sums of half the splits do not fit"
    fetch, gather = make_fetcher(depth, a_loads, b_loads, b_step), make_gatherer(sums, threads, splits)
    keep = make_keeper(a_loads, b_loads, a_step, b_step * columns, pitch)
    multiply = unrolled(make_column(columns, down, across, pitch), depth)  # the compiler keeps the loop

    @device_function
    def write(c, total, row, column, m, n):
        for i in range(down):
            r = index(row + index(i // 4 * DOWN * 4 + i % 4))
            if r < m:
                for j in range(across // 4):
                    q, t = index(column + index(j * ACROSS * 4)), i * across + j * 4
                    if q < n:
                        store4(c, index(r * n + q), total[t], total[t + 1], total[t + 2], total[t + 3])

    @partial(TeachingKernel, resident=2 if splits == 1 else 1)
    def product(a: Vector, b: Vector, c: Vector, rows_: Int, columns_: Int, depth_: Int) -> None:
        a_tile = cuda.shared.array(a_ring, float32)
        b_tile = cuda.shared.array(b_ring, float32)
        m, n, k = index(rows_), index(columns_), index(depth_)
        thread = index(cuda.threadIdx.x)
        if several:
            thread = index(thread % index(threads))
        row0, column0 = index(cuda.blockIdx.x * rows), index(cuda.blockIdx.y * columns)
        lane = index(thread & index(31))
        row = index(index(thread >> index(5)) * index(down * DOWN) + index(lane // index(ACROSS)) * index(4))
        column = index(index(lane % index(ACROSS)) * index(4))
        total = cuda.local.array(sums, float32)
        left = cuda.local.array(down, float32)
        top = cuda.local.array(across, float32)
        from_a = cuda.local.array(a_kept, float32)
        from_b = cuda.local.array(b_kept, float32)
        first_a = cuda.local.array(a_loads, index)
        first_b = cuda.local.array(b_loads, index)
        a_row, a_deep = index(thread // index(a_line)), index(index(thread % index(a_line)) * index(4))
        b_deep, b_column = index(thread // index(b_line)), index(index(thread % index(b_line)) * index(4))
        for j in range(a_loads):
            first_a[j] = index(min(index(row0 + a_row + index(j * a_step)), index(m - index(1))) * k + a_deep)
        for j in range(b_loads):
            first_b[j] = index((b_deep + index(j * b_step)) * n + min(index(column0 + b_column), index(n - index(4))))
        clear(total)
        a_keep, b_keep = index(a_deep * index(pitch) + a_row), index(thread * index(4))
        a_at, b_at, first, moved, last = index(0), index(0), index(0), index(0), k
        if several:  # every split has its own two stages and as many k blocks, the last ones zeros
            split = index(index(cuda.threadIdx.x) // index(threads))
            each = index(index(index(k + index(depth * splits - 1)) // index(depth * splits)) * index(depth))
            first, last = index(split * each), index(split * each + each)
            moved = index(first * n)
            a_ring_at, b_ring_at = index(split * index(2 * a_size)), index(split * index(2 * b_size))
            row, column = index(row + a_ring_at), index(column + b_ring_at)
            a_keep, b_keep = index(a_keep + a_ring_at), index(b_keep + b_ring_at)
        fetch(a, b, first_a, first_b, first, moved, a_deep, b_deep, k, from_a, from_b)
        keep(a_tile, b_tile, a_keep, b_keep, from_a, from_b)
        cuda.syncthreads()  # the first k blocks are loaded
        first, moved = index(first + index(depth)), index(moved + n * index(depth))
        while first < last:
            fetch(a, b, first_a, first_b, first, moved, a_deep, b_deep, k, from_a, from_b)
            multiply(a_tile, b_tile, index(a_at + row), index(b_at + column), total, left, top)
            a_at, b_at = index(index(a_size) - a_at), index(index(b_size) - b_at)
            keep(a_tile, b_tile, index(a_at + a_keep), index(b_at + b_keep), from_a, from_b)
            cuda.syncthreads()  # these k blocks are loaded, and all threads have read the others
            first, moved = index(first + index(depth)), index(moved + n * index(depth))
        multiply(a_tile, b_tile, index(a_at + row), index(b_at + column), total, left, top)
        if several:
            gather(b_tile, total, index(cuda.threadIdx.x))
            if cuda.threadIdx.x >= threads:
                return  # the first split has all sums
        write(c, total, index(row0 + row), index(column0 + column), m, n)

    return product


large: Final = make_kernel(*LARGE)
small: Final = make_kernel(*SMALL)
deep: Final = make_kernel(*DEEP)
KERNELS: Final = {LARGE: large, SMALL: small, DEEP: deep}


def choose(rows: int, columns: int) -> tuple[int, int, int, int, int]:
    return next((t for t in TILES if blocks_of(rows, t[0]) * blocks_of(columns, t[1]) >= ENOUGH), TILES[-1])


def launch(case: KernelCase, arrays: StepArrays) -> None:
    a, b, out = matrices(arrays)
    tile = choose(*out.shape)
    grid = (blocks_of(out.shape[0], tile[0]), blocks_of(out.shape[1], tile[1]))
    KERNELS[tile][at(grid, (32 * tile[3] * tile[4],))](flat(a), flat(b), flat(out), *out.shape, a.shape[1])
