"""The float32 matrix product of a short depth, as im2col of a first layer has it: all loads are issued at once.

With a depth of 27 the launch and one access to memory are the whole time. A block of 128 threads computes 32 x 64
elements; all loads of both factors are in flight before the first is waited for, and each thread has 4 x 4 sums. A may
begin anywhere (rows of 27 floats are not aligned to 16 bytes); B is read 16 bytes at a time.
"""

from __future__ import annotations

from typing import Final

from core.gpu.compilation.arrays import Int, Vector, float32, index
from core.gpu.compilation.cuda import cuda, device_function
from core.gpu.launch import blocks_of
from core.gpu.parts.vectors import clear, put4
from core.gpu.teaching.kernel import DeviceArray, Where, as_matrix, at, kernel
from core.gpu.teaching.vector import load4, store4
from core.ops.registry import KernelCase

ROWS: Final = 32
COLUMNS: Final = 64
DEPTH: Final = 32
"""The longest depth."""
THREADS: Final = 128
PITCH: Final = ROWS + 4
"""Floats of a row of A's tile, a multiple of four."""
A_SIZE: Final = DEPTH * PITCH
B_SIZE: Final = DEPTH * COLUMNS
A_LOADS: Final = ROWS * DEPTH // THREADS
B_LOADS: Final = DEPTH * COLUMNS // 4 // THREADS
LINE: Final = COLUMNS // 4
B_STEP: Final = THREADS // LINE
B_KEPT: Final = 4 * B_LOADS


@device_function
def multiply(a_tile, b_tile, a, b, total):
    """One column of A's tile times one row of B's."""
    u, v = load4(a_tile, a), load4(b_tile, b)
    for i in range(4):
        for j in range(4):
            total[i * 4 + j] += u[i] * v[j]


@kernel
def narrow(a: Vector, b: Vector, c: Vector, rows: Int, columns: Int, depth: Int) -> None:
    a_tile = cuda.shared.array(A_SIZE, float32)
    b_tile = cuda.shared.array(B_SIZE, float32)
    m, n, k = index(rows), index(columns), index(depth)
    thread = index(cuda.threadIdx.x)
    row0, column0 = index(cuda.blockIdx.y * ROWS), index(cuda.blockIdx.x * COLUMNS)
    total = cuda.local.array(16, float32)
    from_a = cuda.local.array(A_LOADS, float32)
    from_b = cuda.local.array(B_KEPT, float32)
    a_row, a_deep = index(thread // index(DEPTH)), index(thread % index(DEPTH))
    b_deep, quad = index(thread // index(LINE)), index(index(thread % index(LINE)) * index(4))
    column = index(min(index(column0 + quad), index(n - index(4))))  # results beyond the edge are not stored
    for j in range(A_LOADS):
        row = index(min(index(row0 + a_row + index(j * THREADS // DEPTH)), index(m - index(1))))
        from_a[j] = a[index(row * k + a_deep)] if a_deep < k else float32(0)
    clear(from_b)
    for j in range(B_LOADS):
        deep = index(b_deep + index(j * B_STEP))
        if deep < k:
            put4(load4(b, index(deep * n + column)), from_b, j * 4)
    clear(total)
    for j in range(A_LOADS):
        a_tile[index(a_deep * index(PITCH) + a_row + index(j * THREADS // DEPTH))] = from_a[j]
    for j in range(B_LOADS):
        v = from_b[j * 4], from_b[j * 4 + 1], from_b[j * 4 + 2], from_b[j * 4 + 3]
        store4(b_tile, index(index(thread + index(j * THREADS)) * index(4)), v[0], v[1], v[2], v[3])
    cuda.syncthreads()  # both tiles are loaded
    a_at, b_at, done = index(index(thread // index(LINE)) * index(4)), quad, index(0)
    while done < k:
        multiply(a_tile, b_tile, a_at, b_at, total)
        multiply(a_tile, b_tile, index(a_at + index(PITCH)), index(b_at + index(COLUMNS)), total)
        multiply(a_tile, b_tile, index(a_at + index(2 * PITCH)), index(b_at + index(2 * COLUMNS)), total)
        multiply(a_tile, b_tile, index(a_at + index(3 * PITCH)), index(b_at + index(3 * COLUMNS)), total)
        a_at, b_at, done = index(a_at + index(4 * PITCH)), index(b_at + index(4 * COLUMNS)), index(done + index(4))
    for i in range(4):
        row = index(row0 + index(index(thread // index(LINE)) * index(4)) + index(i))
        if row < m and column0 + quad < n:
            t = i * 4
            store4(c, index(row * n + column0 + quad), total[t], total[t + 1], total[t + 2], total[t + 3])


def refuse(case: KernelCase) -> str:
    (_, depth), (_, columns) = case.inputs
    if depth > DEPTH:
        return f"It takes a depth of at most {DEPTH}; here it is {depth}."
    if columns % 4:
        return f"16-byte loads need the columns {columns} to be a multiple of 4."
    return ""


def tiles(result: DeviceArray) -> Where:
    rows, columns = as_matrix(result).shape
    return at((blocks_of(columns, COLUMNS), blocks_of(rows, ROWS)), (THREADS,))
