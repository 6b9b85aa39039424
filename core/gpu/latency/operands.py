"""Operands of the small-batch convolutions: from global memory straight into the registers of `mma`, all in flight.

A fragment of `mma.m16n8k16` wants two neighbouring elements from each lane; a lane loads a 16-byte vector, eight
neighbouring ones. So the elements are not where the instruction expects them, but those of both operands are moved in
the same way, and the order in a sum over the depth is free.
"""

from __future__ import annotations

from typing import Any

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import max_bf16, mma_bf16
from core.gpu.latency.block import BlockShape
from core.gpu.latency.pdl import load4_constant_where, load4_where
from core.gpu.parts.vectors import divide

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32


def make_filter_loads(shape: BlockShape, turns: int) -> Any:
    """Device function: `turns` chunks of a warp's filters into registers, zeros beyond the last."""
    TN, TURNS = shape.columns, turns

    @device_function
    def load_filters(weight, column, limit, depth, first, vectors, held):
        for c in range(TURNS):
            part = i32(first + c * 4)
            for n in range(TN):
                ok = column + n * 8 < limit and part < vectors
                at = u64(weight + u64((i64(column + n * 8) * i64(depth) + i64(part) * 8) * 2))
                v = load4_constant_where(at if ok else weight, u32(1) if ok else u32(0))
                for i in range(4):
                    held[(c * TN + n) * 4 + i] = v[i]

    return load_filters


def make_window_finder(shape: BlockShape) -> Any:
    """Device function: where the windows of a lane's output pixels begin: row, column and address."""
    BOTH = shape.rows * 2

    @device_function
    def find_windows(x, first, rows, hw_mul, hw_shift, w_mul, w_shift, hw, wo, window, pitch, row, image, py, px, pa):
        for m in range(BOTH):
            pixel = i32(first + m * 8)
            n = divide(u32(pixel), hw_mul, hw_shift)
            oy = divide(u32(u32(pixel) - n * u32(hw)), w_mul, w_shift)
            ox = u32(u32(pixel) - n * u32(hw) - oy * u32(wo))
            py[m] = i32(i32(oy) * window[0] - window[2] if pixel < rows else i32(-(1 << 20)))
            px[m] = i32(i32(ox) * window[1] - window[3])
            pa[m] = u64(x + u64((i64(n) * i64(image) + i64(py[m]) * i64(row) + i64(px[m]) * i64(pitch)) * 2))

    return find_windows


def make_pixel_loads(shape: BlockShape, turns: int, kernel_width: int) -> Any:
    """Device function: `turns` chunks of a warp's pixels into registers, zeros in the padding."""
    TM, TURNS, KW = shape.rows * 2, turns, kernel_width

    @device_function
    def load_pixels(x, py, px, pa, first, vectors, c_mul, c_shift, c_vectors, height, width, row, pitch, held):
        for c in range(TURNS):
            part = i32(first + c * 4)
            tap = i32(divide(u32(part), c_mul, c_shift))
            within = i32(part - tap * c_vectors)
            ky = i32(tap // KW)
            kx = i32(tap - ky * KW)
            offset = i64(i32(ky * row + kx * pitch + within * 8)) * 2
            for m in range(TM):
                ok = u32(py[m] + ky) < u32(height) and u32(px[m] + kx) < u32(width) and part < vectors
                v = load4_where(u64(pa[m] + u64(offset)) if ok else x, u32(1) if ok else u32(0))
                for i in range(4):
                    held[(c * TM + m) * 4 + i] = v[i]

    return load_pixels


def make_pooled_loads(shape: BlockShape, turns: int) -> Any:
    """`make_pixel_loads` of the output of a 3x3 max pool, from its input; values are not negative, so 0 is padding."""
    TM, TURNS = shape.rows * 2, turns

    @device_function
    def load_pixels(x, py, px, pa, first, vectors, c_mul, c_shift, c_vectors, height, width, row, pitch, held):
        nine = cuda.local.array(36, dtype=types.uint32)
        for c in range(TURNS):
            part = i32(first + c * 4)
            for m in range(TM):
                for k in range(9):
                    ok = u32(py[m] + k // 3) < u32(height) and u32(px[m] + k % 3) < u32(width) and part < vectors
                    at = u64(pa[m] + u64(i64(i32((k // 3) * row + (k % 3) * pitch + part * 8)) * 2))
                    v = load4_where(at if ok else x, u32(1) if ok else u32(0))
                    for i in range(4):
                        nine[k * 4 + i] = v[i]
                for i in range(4):
                    top = nine[i]
                    for k in range(1, 9):
                        top = max_bf16(top, nine[k * 4 + i])
                    held[(c * TM + m) * 4 + i] = top

    return load_pixels


def make_products(shape: BlockShape, turns: int) -> Any:
    """Device function: adds pixels times filters to the warp's sums."""
    TM, TN, TURNS = shape.rows, shape.columns, turns

    @device_function
    def multiply(a, b, acc):
        for c in range(TURNS):
            for m in range(TM):
                p = (c * TM + m) * 8
                for n in range(TN):
                    q, o = (c * TN + n) * 4, (m * TN + n) * 4
                    for half in range(0, 4, 2):
                        r = mma_bf16(
                            a[p + half], a[p + 4 + half], a[p + half + 1], a[p + 5 + half], b[q + half],
                            b[q + half + 1], acc[o], acc[o + 1], acc[o + 2], acc[o + 3],
                        )  # fmt: skip
                        acc[o], acc[o + 1], acc[o + 2], acc[o + 3] = r[0], r[1], r[2], r[3]

    return multiply


