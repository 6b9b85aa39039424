"""The matrix product ``C = A B``, step by step: A (M, K), B (K, N), C (M, N), row-major.

- naive:            one thread per element of C, both factors from global memory: 2 loads per multiply-add
- shared:           16 x 16 tiles of both factors in shared memory: 1/16 of the global loads
- tiled:            128 x 128 per block, 8 x 8 sums per thread in registers: 16 loads for 64 multiply-adds
- tiled_vectorised: the same with 16-byte loads and stores, A transposed on its way to shared memory
- double_buffered:  the next tile is loaded while the current one is multiplied; one barrier per tile
- tensor_core:      bf16 on the tensor cores (`tensor_core.py`)
- cublas:           the vendor's library, for comparison (`core/gpu/driver/cublas.py`)

Source of the steps: S. Boehm, "How to optimize a CUDA matmul kernel", 2022; sizes are our own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from core.gpu.compilation.arrays import Int, Matrix, Vector, float32, index
from core.gpu.compilation.cuda import cuda, device_function
from core.gpu.launch import blocks_of
from core.gpu.parts.vectors import clear, put4, unrolled
from core.gpu.teaching.kernel import DeviceArray, TeachingKernel, Where, as_matrix, at, kernel
from core.gpu.teaching.step_arrays import StepArrays
from core.gpu.teaching.vector import load4, store4
from core.ops.registry import KernelCase

SIDE: Final = 16
"""Threads of a block are SIDE x SIDE."""
TILE: Final = 128
EACH: Final = 8
SUMS: Final = EACH * EACH
DEPTH: Final = 8
"""One 16-byte load per thread and factor fills a tile: 128 x 8 floats = 256 threads x 4."""
AREA: Final = TILE * DEPTH
TWO: Final = 2 * AREA
HALF: Final = TILE // 2
two_blocks: Final = partial(TeachingKernel, resident=2)
"""At most 128 registers per thread, so that two blocks share a multiprocessor."""


@kernel
def naive(a: Matrix, b: Matrix, c: Matrix) -> None:
    i = cuda.grid(1)
    if i < c.size:
        row, column = i // c.shape[1], i % c.shape[1]
        total = float32(0)
        for k in range(a.shape[1]):
            total += a[row, k] * b[k, column]
        c[row, column] = total


@kernel
def shared(a: Matrix, b: Matrix, c: Matrix) -> None:
    a_tile = cuda.shared.array((SIDE, SIDE), float32)
    b_tile = cuda.shared.array((SIDE, SIDE), float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    row = cuda.blockIdx.x * SIDE + ty
    column = cuda.blockIdx.y * SIDE + tx
    total = float32(0)
    for k0 in range(0, a.shape[1], SIDE):
        a_tile[ty, tx] = a[row, k0 + tx] if row < a.shape[0] and k0 + tx < a.shape[1] else float32(0)
        b_tile[ty, tx] = b[k0 + ty, column] if k0 + ty < b.shape[0] and column < b.shape[1] else float32(0)
        cuda.syncthreads()  # both tiles are loaded
        for k in range(SIDE):
            total += a_tile[ty, k] * b_tile[k, tx]
        cuda.syncthreads()  # all threads have read them
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total


@two_blocks
def tiled(a: Matrix, b: Matrix, c: Matrix) -> None:
    a_tile = cuda.shared.array(AREA, float32)  # (DEPTH, TILE): a column of A is contiguous
    b_tile = cuda.shared.array(AREA, float32)  # (DEPTH, TILE)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    row0 = cuda.blockIdx.x * TILE
    column0 = cuda.blockIdx.y * TILE
    total = cuda.local.array(SUMS, float32)
    left = cuda.local.array(EACH, float32)
    top = cuda.local.array(EACH, float32)
    clear(total)
    for k0 in range(0, a.shape[1], DEPTH):
        for i in range(ty * SIDE + tx, AREA, SIDE * SIDE):
            m, k = row0 + i // DEPTH, k0 + i % DEPTH
            a_tile[i % DEPTH * TILE + i // DEPTH] = a[m, k] if m < a.shape[0] and k < a.shape[1] else float32(0)
            k, n = k0 + i // TILE, column0 + i % TILE
            b_tile[i] = b[k, n] if k < b.shape[0] and n < b.shape[1] else float32(0)
        cuda.syncthreads()  # both tiles are loaded
        for k in range(DEPTH):
            for i in range(EACH):
                left[i] = a_tile[index(k * TILE + ty + i * SIDE)]
                top[i] = b_tile[index(k * TILE + tx + i * SIDE)]
            for i in range(EACH):
                for j in range(EACH):
                    total[i * EACH + j] += left[i] * top[j]
        cuda.syncthreads()  # all threads have read them
    for i in range(EACH):
        for j in range(EACH):
            row, column = row0 + ty + i * SIDE, column0 + tx + j * SIDE
            if row < c.shape[0] and column < c.shape[1]:
                c[row, column] = total[i * EACH + j]


@device_function
def fetch(matrix: Vector, row, column, rows, columns):
    """Four floats of a row-major (rows, columns) matrix, zeros outside it."""
    if row < rows and column < columns:
        return load4(matrix, row * columns + column)
    return float32(0), float32(0), float32(0), float32(0)


@device_function
def keep(tile, at, line, a):
    """Store four floats of a row of A as a column of the tile."""
    tile[at + line] = a[0]
    tile[at + TILE + line] = a[1]
    tile[at + 2 * TILE + line] = a[2]
    tile[at + 3 * TILE + line] = a[3]


@device_function
def multiply_column(a_tile, b_tile, at, total, left, top, tx, ty, k):
    """Column k of A's tile times row k of B's, both from float `at` on: the thread's rows and those 64 further."""
    for half in range(2):
        put4(load4(a_tile, at + ty * 4 + k * TILE + half * HALF), left, half * 4)
        put4(load4(b_tile, at + tx * 4 + k * TILE + half * HALF), top, half * 4)
    for i in range(EACH):
        for j in range(EACH):
            total[i * EACH + j] += left[i] * top[j]


multiply: Final = unrolled(multiply_column, DEPTH)
"""Add the product of two tiles. The compiler does not unroll a loop of this size; its counter took 1/3 of the time."""


@device_function
def write(c, total, row0, column0, rows, columns):
    """The thread's four 4 x 4 squares, 16 bytes at a time."""
    for i in range(EACH):
        row = row0 + i // 4 * HALF + i % 4
        for half in range(2):
            column = column0 + half * HALF
            if row < rows and column < columns:
                t = i * EACH + half * 4
                store4(c, row * columns + column, total[t], total[t + 1], total[t + 2], total[t + 3])


@two_blocks
def tiled_vectorised(a: Vector, b: Vector, c: Vector, rows: Int, columns: Int, depth: Int) -> None:
    a_tile = cuda.shared.array(AREA, float32)
    b_tile = cuda.shared.array(AREA, float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    thread = ty * SIDE + tx
    row0 = cuda.blockIdx.x * TILE
    column0 = cuda.blockIdx.y * TILE
    total = cuda.local.array(SUMS, float32)
    left = cuda.local.array(EACH, float32)
    top = cuda.local.array(EACH, float32)
    clear(total)
    for k0 in range(0, depth, DEPTH):
        u = fetch(a, row0 + thread // 2, k0 + thread % 2 * 4, rows, depth)
        v = fetch(b, k0 + thread // 32, column0 + thread % 32 * 4, depth, columns)
        keep(a_tile, thread % 2 * 4 * TILE, thread // 2, u)
        store4(b_tile, thread * 4, v[0], v[1], v[2], v[3])
        cuda.syncthreads()  # both tiles are loaded
        multiply(a_tile, b_tile, 0, total, left, top, tx, ty)
        cuda.syncthreads()  # all threads have read them
    write(c, total, row0 + ty * 4, column0 + tx * 4, rows, columns)


@two_blocks
def double_buffered(a: Vector, b: Vector, c: Vector, rows: Int, columns: Int, depth: Int) -> None:
    a_tile = cuda.shared.array(TWO, float32)
    b_tile = cuda.shared.array(TWO, float32)
    tx = index(cuda.threadIdx.x)  # 32 bits each: with 64 the sums do not fit into the registers of every GPU
    ty = index(cuda.threadIdx.y)
    thread = index(ty * SIDE + tx)
    row0 = index(cuda.blockIdx.x * TILE)
    column0 = index(cuda.blockIdx.y * TILE)
    total = cuda.local.array(SUMS, float32)
    left = cuda.local.array(EACH, float32)
    top = cuda.local.array(EACH, float32)
    clear(total)
    at = 0
    for k0 in range(0, depth + DEPTH, DEPTH):
        u = fetch(a, row0 + thread // 2, k0 + thread % 2 * 4, rows, depth)
        v = fetch(b, k0 + thread // 32, column0 + thread % 32 * 4, depth, columns)
        if k0 > 0:  # the tile fetched one step ago, while the loads above are in flight
            multiply(a_tile, b_tile, AREA - at, total, left, top, tx, ty)
        keep(a_tile, at + thread % 2 * 4 * TILE, thread // 2, u)
        store4(b_tile, at + thread * 4, v[0], v[1], v[2], v[3])
        cuda.syncthreads()  # this tile is loaded, and all threads have read the other
        at = AREA - at
    write(c, total, row0 + ty * 4, column0 + tx * 4, rows, columns)


def refuse_unaligned(case: KernelCase) -> str:
    (_, depth), (_, columns) = case.inputs
    if depth % 4 or columns % 4:
        return f"16-byte loads need the depth {depth} and the columns {columns} to be multiples of 4."
    return ""


def matrices(arrays: StepArrays) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
    return as_matrix(arrays["x"]), as_matrix(arrays["x2"]), as_matrix(arrays["out"])


def tiles(side: int) -> Callable[[DeviceArray], Where]:
    """A block of SIDE x SIDE threads for each `side` x `side` elements of the product."""

    def where(result: DeviceArray) -> Where:
        rows, columns = as_matrix(result).shape
        return at((blocks_of(rows, side), blocks_of(columns, side)), (SIDE, SIDE))

    return where


FACTORS: Final = {"a": "x", "b": "x2", "c": "out"}
"""Roles of a kernel's arrays."""
