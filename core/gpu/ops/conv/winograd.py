"""Winograd's minimal filtering: F(2,3) multiplies 16 times for 4 outputs of a 3x3 filter instead of 36 times, F(4,3)
36 times for 16 outputs instead of 144.

Overlapping tiles of pixels and the filters are transformed by small matrices from both sides, multiplied element by
element, and the products transformed back. The transforms cost additions and memory traffic; with many channels the
saved multiplications are worth more. Matrices and source: `core.ops.winograd`.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.arrays import Batch, Cube, Filters, Int, Matrix, Pair, Vector, float32
from core.gpu.compilation.cuda import cuda, device_function
from core.gpu.launch import blocks_of
from core.gpu.ops.conv import transformed
from core.gpu.ops.dense.product import product_nn
from core.gpu.teaching.kernel import DeviceArray, kernel, over
from core.gpu.teaching.step_arrays import StepArrays
from core.ops.registry import KernelCase
from core.ops.window import read_window

THREADS: Final = 64
ELEMENTS: Final = 36
"""Elements of the largest tile, 6 x 6. Shared memory holds two tiles per thread."""


@device_function
def both_sides(matrix: Any, square: Any, lane: Any) -> None:
    """``square = matrix square matrix'``, for the thread's own column of a shared array."""
    half = cuda.shared.array((ELEMENTS, THREADS), float32)
    rows, columns = matrix.shape
    for i in range(rows):
        for j in range(columns):
            total = float32(0)
            for k in range(columns):
                total += matrix[i, k] * square[k * columns + j, lane]
            half[i * columns + j, lane] = total
    for i in range(rows):
        for j in range(rows):
            total = float32(0)
            for k in range(columns):
                total += half[i * columns + k, lane] * matrix[j, k]
            square[i * rows + j, lane] = total


@kernel
def transform_pixels(x: Batch, v: Matrix, matrix: Matrix, down: Int, across: Int, pad: Pair) -> None:
    """One thread per tile and channel: ``v[tile, (element, c)]``."""
    square = cuda.shared.array((ELEMENTS, THREADS), float32)
    i, lane = cuda.grid(1), cuda.threadIdx.x
    side, depth = matrix.shape[0], x.shape[3]
    c, tile = i % depth, i // depth
    if tile >= v.shape[0]:
        return
    y0 = tile // across % down * (side - 2) - pad[0]
    z0 = tile % across * (side - 2) - pad[1]
    for k in range(side * side):
        y, z = y0 + k // side, z0 + k % side
        inside = 0 <= y < x.shape[1] and 0 <= z < x.shape[2]
        square[k, lane] = x[tile // (down * across), y, z, c] if inside else float32(0)
    both_sides(matrix, square, lane)
    for k in range(side * side):
        v[tile, k * depth + c] = square[k, lane]


@kernel
def transform_filters(weight: Filters, u: Matrix, matrix: Matrix) -> None:
    """One thread per channel and filter: ``u[(element, c), o]``."""
    square = cuda.shared.array((ELEMENTS, THREADS), float32)
    i, lane = cuda.grid(1), cuda.threadIdx.x
    elements, filters, depth = matrix.shape[0] * matrix.shape[0], weight.shape[0], weight.shape[3]
    o, c = i % filters, i // filters
    if c >= depth:
        return
    for tap in range(9):
        square[tap, lane] = weight[o, tap // 3, tap % 3, c]
    both_sides(matrix, square, lane)
    for k in range(elements):
        u[k * depth + c, o] = square[k, lane]


@kernel
def transform_results(m: Cube, bias: Vector, out: Batch, matrix: Matrix, down: Int, across: Int) -> None:
    """One thread per tile and filter: from ``m[element, tile, o]`` to the tile's outputs."""
    square = cuda.shared.array((ELEMENTS, THREADS), float32)
    i, lane = cuda.grid(1), cuda.threadIdx.x
    side, filters = matrix.shape[0], m.shape[2]
    o, tile = i % filters, i // filters
    if tile >= m.shape[1]:
        return
    for k in range(m.shape[0]):
        square[k, lane] = m[k, tile, o]
    both_sides(matrix, square, lane)
    y0, z0 = tile // across % down * side, tile % across * side
    for k in range(side * side):
        y, z = y0 + k // side, z0 + k % side
        if y < out.shape[1] and z < out.shape[2]:
            out[tile // (down * across), y, z, o] = square[k, lane] + bias[o]


def convolve(
    matrices: Any, arrays: StepArrays, x: DeviceArray, weight: DeviceArray, bias: DeviceArray, out: DeviceArray,
    pad: tuple[int, int],
) -> None:  # fmt: skip
    """Note the launches of a 3x3 convolution of stride 1."""
    constants = [arrays.constant(f"winograd {m.shape}", m) for m in matrices]
    (tile, side), (images, height, width, filters) = matrices[2].shape, out.shape
    down, across, depth = blocks_of(height, tile), blocks_of(width, tile), x.shape[3]
    tiles, elements = images * down * across, side * side
    v = arrays.scratch("pixels", (tiles, elements * depth))
    u = arrays.scratch("filters", (elements * depth, filters))
    m = arrays.scratch("products", (elements, tiles, filters))
    transform_pixels[over(tiles * depth, THREADS)](x, v, constants[0], down, across, pad)
    transform_filters[over(depth * filters, THREADS)](weight, u, constants[1])
    transformed.multiply_elements(product_nn, v, u, m)
    transform_results[over(tiles * filters, THREADS)](m, bias, out, constants[2], down, across)


def refuse(case: KernelCase) -> str:
    if read_window(case.attributes).kernel != (3, 3):
        return "Winograd's F(2,3) and F(4,3) are for 3x3 filters."
    return transformed.refuse(case)
