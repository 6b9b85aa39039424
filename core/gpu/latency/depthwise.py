"""Depthwise convolution of one or two images: a thread computes eight channels of one output, all loads in flight.

The strips of `ops.depthwise` load every pixel once, but one row after another; feature maps of one image are too small
to hide that latency, and are in the L2 cache anyway. A thread has its window's taps and pixels in registers
(2 x taps x 16 bytes) before the first product; nothing is in shared memory.

    grid: vectors of out / 128     thread: |taps x 16 bytes of filters| before the previous kernel has ended,
                                           |taps x 16 bytes of pixels | then all products, activation, one store

Bytes: x and out once from memory, x taps times from the L2 cache. Floor: the latency of two loads.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, types
from core.gpu.compilation.ptx import bits_to_float, store4
from core.gpu.kernels.parts.lanes import PACK, UNPACK, activate, find_pixel
from core.gpu.latency.pdl import load4_constant_where, load4_where, wait_for_previous
from core.gpu.launch import DIVISOR, INTEGER, POINTER, Argument, KernelSignature

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

SIGNATURE: Final = KernelSignature((
    Argument("x", POINTER, "activations (N, height, width, C), bf16"),
    Argument("weight", POINTER, "packed filters (taps, C), bf16"),
    Argument("bias", POINTER, "float32 (C), or 0"),
    Argument("out", POINTER, "activations (N, ho, wo, C), bf16"),
    Argument("total", INTEGER, "vectors of out in all, one a thread"),
    Argument("vectors", INTEGER, "vectors of a pixel: C / 8"),
    Argument("by_vectors", DIVISOR, "division by `vectors`"),
    Argument("by_area", DIVISOR, "division by ho wo"),
    Argument("by_columns", DIVISOR, "division by wo"),
    Argument("height", INTEGER, "rows of x"),
    Argument("width", INTEGER, "columns of x"),
    Argument("ho", INTEGER, "rows of out"),
    Argument("wo", INTEGER, "columns of out"),
    Argument("ldx", INTEGER, "elements from a pixel of x to the next"),
    Argument("ldo", INTEGER, "elements from a pixel of out to the next"),
    Argument("top", INTEGER, "padding above"),
    Argument("left", INTEGER, "padding on the left"),
    Argument("activation", INTEGER, "of out (`core.gpu.launch.RELU`)"),
))  # fmt: skip

THREADS: Final = 128


def make_depthwise_few(shape: tuple[int, int, int, int]) -> Any:
    """bf16. `shape`: kernel, stride."""
    unpack, pack = UNPACK[2], PACK[2]
    KH, KW, SY, SX = shape
    TAPS = KH * KW
    HELD = TAPS * 4

    def depthwise_few(
        x, weight, bias, out, total, vectors, by_vectors_mul, by_vectors_shift, by_area_mul, by_area_shift,
        by_columns_mul, by_columns_shift, height, width, ho, wo, ldx, ldo, top, left, activation,
    ):
        at = i32(cuda.grid(1))
        real = at < total
        pixel, part, n, oy, ox = find_pixel(
            at, vectors, by_vectors_mul, by_vectors_shift, by_area_mul, by_area_shift, by_columns_mul, by_columns_shift,
            ho * wo, wo,
        )  # fmt: skip
        filters = cuda.local.array(HELD, dtype=types.uint32)
        pixels = cuda.local.array(HELD, dtype=types.uint32)
        sums = cuda.local.array(8, dtype=types.float32)
        value = cuda.local.array(8, dtype=types.float32)
        filt = cuda.local.array(8, dtype=types.float32)
        for k in range(TAPS):
            place = u64(weight + u64(i64(k * vectors + part) * 16))
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
