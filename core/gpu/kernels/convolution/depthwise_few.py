"""Depthwise convolution of few pixels: a thread an output of eight channels, all its loads under way at once.

The walk down a photo (`depthwise_walk`) loads every pixel once but one row after another; one photo's maps are too
small for that, and lie in the second-level cache anyway.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, types
from core.gpu.compilation.ptx import bits_to_float, store4
from core.gpu.kernels.parts.early_start import load4_constant_where, load4_where, wait_for_previous
from core.gpu.kernels.parts.lanes import PACK, UNPACK, activate, find_pixel

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

ARGUMENTS: Final = (
    *(types.uint64,) * 4,  # x, packed filters (taps, channels), bias (0: none), out
    *(types.int32,) * 2,  # threads in all, lanes (of eight channels) a pixel
    *(types.uint32,) * 6,  # fast division by lanes a pixel, by pixels of a photo and by width (of out)
    *(types.int32,) * 4,  # height, width of x, of out
    *(types.int32,) * 2,  # pixel pitches of x, of out
    *(types.int32,) * 2,  # padding (top, left)
    types.int32,  # activation
)

THREADS: Final = 128


def make_depthwise_few(shape: tuple[int, int, int, int]) -> Any:
    """bf16. `shape`: kernel, stride."""
    unpack, pack = UNPACK[2], PACK[2]
    KH, KW, SY, SX = shape
    TAPS = KH * KW
    HELD = TAPS * 4

    def depthwise_few(
        x, weight, bias, out, total, lanes, l_mul, l_shift, hw_mul, hw_shift, w_mul, w_shift,
        height, width, ho, wo, ldx, ldo, top, left, activation,
    ):
        at = i32(cuda.grid(1))
        real = at < total
        pixel, part, n, oy, ox = find_pixel(
            at, lanes, l_mul, l_shift, hw_mul, hw_shift, w_mul, w_shift, ho * wo, wo
        )  # fmt: skip
        filters = cuda.local.array(HELD, dtype=types.uint32)
        pixels = cuda.local.array(HELD, dtype=types.uint32)
        sums = cuda.local.array(8, dtype=types.float32)
        value = cuda.local.array(8, dtype=types.float32)
        filt = cuda.local.array(8, dtype=types.float32)
        for k in range(TAPS):
            place = u64(weight + u64(i64(k * lanes + part) * 16))
            v = load4_constant_where(place if real else weight, u32(1) if real else u32(0))
            for i in range(4):
                filters[k * 4 + i] = v[i]
        ok = bias != u64(0) and real
        for h in range(2):
            place = u64(bias + u64(i64(part * 8 + h * 4) * 4))
            v = load4_constant_where(place if ok else weight, u32(1) if ok else u32(0))
            for i in range(4):
                sums[h * 4 + i] = bits_to_float(v[i])
        wait_for_previous()
        for k in range(TAPS):
            y, xx = i32(oy * SY - top + k // KW), i32(ox * SX - left + k % KW)
            ok = real and u32(y) < u32(height) and u32(xx) < u32(width)
            place = u64(x + u64((i64(i32((i32(n) * height + y) * width + xx)) * i64(ldx) + i64(part * 8)) * 2))
            v = load4_where(place if ok else x, u32(1) if ok else u32(0))
            for i in range(4):
                pixels[k * 4 + i] = v[i]
        for k in range(TAPS):
            unpack((pixels[k * 4], pixels[k * 4 + 1], pixels[k * 4 + 2], pixels[k * 4 + 3]), value)
            unpack((filters[k * 4], filters[k * 4 + 1], filters[k * 4 + 2], filters[k * 4 + 3]), filt)
            for i in range(8):
                sums[i] = f32(sums[i] + f32(value[i] * filt[i]))
        if real:
            for i in range(8):
                sums[i] = activate(sums[i], activation)
            v = pack(sums)
            store4(u64(out + u64((i64(pixel) * i64(ldo) + i64(part * 8)) * 2)), v[0], v[1], v[2], v[3])

    return depthwise_few
