"""Epilogue of the matrix kernels: bias and activation, through shared memory, then 16-byte stores."""

from __future__ import annotations

from typing import Any

from core.gpu.compilation import ptx
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u32, u64
from core.gpu.parts.vectors import ADD, KEEP, activate, divide, put4

AT_ONCE = 8
"""Masks that a thread loads before its first store: one by one they cost a third of a 1x1 gradient's time."""


def make_staging(element: int, tiles: tuple[int, int], row: int, apart: int = 16) -> Any:
    """Device function: a warp's sums plus bias, activated, into rows of shared memory.

    `tiles` of 16 x 8 sums, whose first rows are `apart` rows apart.
    """
    (TM, TN), HALF, APART = tiles, element == 2, apart

    @device_function
    def stage(acc, base, wm, wn, lane, bias, first, limit, activation):
        g, t = i32(lane >> 2), i32(lane & 3)
        for n in range(TN):
            col = i32(wn + n * 8 + t * 2)
            b0, b1 = f32(0.0), f32(0.0)
            if bias != u64(0) and first + col < limit:
                b0 = ptx.load_float(u64(bias + u64((first + col) * 4)))
                b1 = ptx.load_float(u64(bias + u64((first + col) * 4 + 4)))
            for m in range(TM):
                o, r = (m * TN + n) * 4, i32(wm + m * APART + g)
                v0, v1 = activate(f32(acc[o] + b0), activation), activate(f32(acc[o + 1] + b1), activation)
                v2, v3 = activate(f32(acc[o + 2] + b0), activation), activate(f32(acc[o + 3] + b1), activation)
                if HALF:
                    ptx.shared_store1(u32(base + u32(r * row + col * 2)), ptx.pack_bf16(v0, v1))
                    ptx.shared_store1(u32(base + u32((r + 8) * row + col * 2)), ptx.pack_bf16(v2, v3))
                else:
                    place = u32(base + u32(r * row + col * 4))
                    ptx.shared_store2(place, ptx.float_to_bits(v0), ptx.float_to_bits(v1))
                    ptx.shared_store2(u32(place + u32(8 * row)), ptx.float_to_bits(v2), ptx.float_to_bits(v3))

    return stage


def make_writing(element: int, rows: int, columns: int, threads: int, place: Any) -> Any:
    """Device function: staged rows to global memory, masked and added if requested.

    `place(row, place arguments)` is a device function that gives the pixel of a block's row, or -1.
    """
    keep, add, VEC = KEEP[element], ADD[element], 16 // element
    ROW, VECTORS = columns * element + 16, columns * element // 16
    ROUNDS = (rows * VECTORS + threads - 1) // threads
    GROUP = min(ROUNDS, AT_ONCE)
    MASKS = GROUP * 4

    @device_function
    def write(base, tid, bn, limit, out, ldc, mask, ldm, masking, accumulate, geometry):
        masks = cuda.local.array(MASKS, u32)
        pixels = cuda.local.array(GROUP, i32)
        for first in range(0, ROUNDS, GROUP):
            for j in range(GROUP):
                i = i32(tid + (first + j) * threads)
                r, column = i32(i // VECTORS), i32(bn + (i % VECTORS) * VEC)
                pixels[j] = place(r, geometry) if r < rows and column < limit else i32(-1)
                if masking != 0:
                    at = u64(mask + u64((i64(pixels[j]) * i64(ldm) + i64(column)) * element))
                    put4(ptx.load4(at if pixels[j] >= 0 else mask), masks, j * 4)
            for j in range(GROUP):
                i = i32(tid + (first + j) * threads)
                r, vector = i32(i // VECTORS), i32(i % VECTORS)
                if pixels[j] >= 0:
                    v = ptx.shared_load4(u32(base + u32(r * ROW + vector * 16)))
                    target = u64(out + u64((i64(pixels[j]) * i64(ldc) + i64(bn + vector * VEC)) * element))
                    if masking != 0:
                        v = keep(v, (masks[j * 4], masks[j * 4 + 1], masks[j * 4 + 2], masks[j * 4 + 3]), masking)
                    if accumulate != 0:
                        v = add(v, ptx.load4_ordered(target))
                    ptx.store4(target, v[0], v[1], v[2], v[3])

    return write


@device_function
def pixel_of_row(r, geometry):
    """Rows are consecutive pixels: `geometry` is (first pixel, pixels)."""
    return i32(geometry[0] + r) if geometry[0] + r < geometry[1] else i32(-1)


@device_function
def pixel_of_number(r, geometry):
    """Rows are consecutive numbers in a numbering with a zero pixel at every border: rows of width + 1 numbers, images
    of height + 1 rows.

    `geometry`: first number, numbers in all, height, width, fast division by numbers an image and by width + 1. The
    result is ``(n height + y) width + x``.
    """
    p = i32(geometry[0] + r)
    n = divide(max(p, 0), geometry[4])
    rest = u32(u32(max(p, 0)) - n * u32((geometry[2] + 1) * (geometry[3] + 1)))
    y = i32(divide(rest, geometry[5]))
    x = i32(rest - u32(y * (geometry[3] + 1)))
    ok = p >= 0 and p < geometry[1] and y < geometry[2] and x < geometry[3]
    return i32((i32(n) * geometry[2] + y) * geometry[3] + x) if ok else i32(-1)
