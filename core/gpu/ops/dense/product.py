"""Fully connected layer ``out[n, o] = bias[o] + sum over i of x[n, i] weight[o, i]``, and its tiled product.

- naive:  a 1x1 convolution of one pixel (`ops/conv/naive.py`)
- shared: the tiled matrix product, which im2col uses too, and its transpositions for the gradients

A block of 16 x 16 threads computes a 64 x 64 tile of the result: tiles of both factors, 16 deep, are in shared memory,
and each thread has 4 x 4 sums in registers (`ops/matmul/tiled.py` derives this step by step). Long sums are split along
the depth (split-K), so that a small result still fills the GPU; the slices are added in order: the same bits each time.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.arrays import Cube, Int, Matrix, Vector, float32, index
from core.gpu.compilation.cuda import cuda, device_function
from core.gpu.launch import blocks_of
from core.gpu.parts.vectors import clear
from core.gpu.teaching.column_sums import sum_rows
from core.gpu.teaching.kernel import DeviceArray, TeachingKernel, at, flat, kernel, over

SIDE: Final = 16
EACH: Final = 4
SUMS: Final = EACH * EACH
TILE: Final = SIDE * EACH
PITCH: Final = TILE + 1
"""Floats of a tile row in shared memory: one more than the tile has, against bank conflicts."""
DEPTH: Final = 16
BLOCKS_WANTED: Final = 512
"""Fewest blocks without split-K: 132 multiprocessors hold about four blocks each."""


@device_function
def multiply_column(a_tile, b_tile, k, tx, ty, total, left, top):
    """Column k of A's tile times row k of B's, added to the thread's 4 x 4 sums."""
    for i in range(EACH):
        left[i] = a_tile[index(k), index(ty + i * SIDE)]
        top[i] = b_tile[index(k), index(tx + i * SIDE)]
    for i in range(EACH):
        for j in range(EACH):
            total[i * EACH + j] += left[i] * top[j]


def make_product(a_transposed: bool, b_transposed: bool) -> Any:
    """Kernel for ``c[s] = A B`` over slice s of the depth; a is (K, M) if transposed, b is (N, K)."""

    @kernel
    def product(a: Matrix, b: Matrix, c: Cube, depth_each: Int) -> None:
        a_tile = cuda.shared.array((DEPTH, PITCH), float32)
        b_tile = cuda.shared.array((DEPTH, PITCH), float32)
        tx = cuda.threadIdx.x
        ty = cuda.threadIdx.y
        rows, columns = c.shape[1], c.shape[2]
        depth = a.shape[0] if a_transposed else a.shape[1]
        row0 = cuda.blockIdx.x * TILE
        column0 = cuda.blockIdx.y * TILE
        first = cuda.blockIdx.z * depth_each
        last = min(first + depth_each, depth)
        total = cuda.local.array(SUMS, float32)
        left = cuda.local.array(EACH, float32)
        top = cuda.local.array(EACH, float32)
        clear(total)
        for k0 in range(first, last, DEPTH):
            # Neighbouring threads read neighbouring floats, whether the factor is transposed or not.
            for i in range(ty * SIDE + tx, TILE * DEPTH, SIDE * SIDE):
                m, k = (i % TILE, i // TILE) if a_transposed else (i // DEPTH, i % DEPTH)
                inside = row0 + m < rows and k0 + k < last
                if a_transposed:
                    a_tile[k, m] = a[k0 + k, row0 + m] if inside else float32(0)
                else:
                    a_tile[k, m] = a[row0 + m, k0 + k] if inside else float32(0)
                n, k = (i // DEPTH, i % DEPTH) if b_transposed else (i % TILE, i // TILE)
                inside = column0 + n < columns and k0 + k < last
                if b_transposed:
                    b_tile[k, n] = b[column0 + n, k0 + k] if inside else float32(0)
                else:
                    b_tile[k, n] = b[k0 + k, column0 + n] if inside else float32(0)
            cuda.syncthreads()  # both tiles are loaded
            for k in range(0, DEPTH, 4):  # unrolled by four: the loop counter costs as much as eight multiplications
                multiply_column(a_tile, b_tile, k, tx, ty, total, left, top)
                multiply_column(a_tile, b_tile, k + 1, tx, ty, total, left, top)
                multiply_column(a_tile, b_tile, k + 2, tx, ty, total, left, top)
                multiply_column(a_tile, b_tile, k + 3, tx, ty, total, left, top)
            cuda.syncthreads()  # all threads have read the tiles
        for i in range(EACH):
            for j in range(EACH):
                row = row0 + ty + i * SIDE
                column = column0 + tx + j * SIDE
                if row < rows and column < columns:
                    c[cuda.blockIdx.z, row, column] = total[i * EACH + j]

    return product


product_nn: Final = make_product(False, False)  # (M, K) (K, N)
product_nt: Final = make_product(False, True)  # (M, K) (N, K)
product_tn: Final = make_product(True, False)  # (K, M) (K, N)


@kernel
def add_bias(matrix: Matrix, bias: Vector) -> None:
    """matrix (rows, columns) += bias (columns,), in place."""
    i = cuda.grid(1)
    if i < matrix.size:
        row, column = i // matrix.shape[1], i % matrix.shape[1]
        matrix[row, column] += bias[column]


def launch_product(kernel: TeachingKernel, a: DeviceArray, b: DeviceArray, c: DeviceArray) -> None:
    """``c = A B`` on device matrices with one of the three kernels above."""
    rows, columns = c.shape
    depth = a.shape[0] if kernel is product_tn else a.shape[1]
    tiles = blocks_of(rows, TILE) * blocks_of(columns, TILE)
    slices = max(1, min(BLOCKS_WANTED // tiles, depth // (16 * DEPTH)))
    each = blocks_of(blocks_of(depth, slices), DEPTH) * DEPTH
    slices = blocks_of(depth, each)
    partials = c.reshape(1, rows, columns)
    if slices > 1:
        partials = a.owner.scratch(f"slices {rows} {columns}", (slices, rows, columns))
    grid = (blocks_of(rows, TILE), blocks_of(columns, TILE), slices)
    kernel[at(grid, (SIDE, SIDE))](a, b, partials, each)
    if slices > 1:
        sum_rows[over(rows * columns)](partials.reshape(slices, rows * columns), flat(c))
