"""Depthwise convolution, 16 bytes of channels a lane; the input gradient gathers, the weight gradient sums in parts."""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, types
from core.gpu.compilation.ptx import load4, load_float, store_float
from core.gpu.kernels.parts.fragments import divide
from core.gpu.kernels.parts.lanes import PACK, UNPACK, activate, find_pixel, make_deliver, make_take

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

ARGUMENTS: Final = (
    *(types.uint64,) * 5,  # x or dy, packed filters (taps, channels), bias (0: none), mask (0: none), out
    *(types.int32,) * 2,  # lanes in all, lanes a pixel
    *(types.uint32,) * 6,  # fast division by lanes a pixel, by pixels of a photo and by width (of the written side)
    *(types.int32,) * 4,  # height, width of the read side; of the written side
    *(types.int32,) * 3,  # pixel pitches: read, written, mask
    *(types.int32,) * 2,  # padding (top, left)
    *(types.int32,) * 3,  # activation, masking, accumulate
)


def make_depthwise(element: int, gradient: bool, shape: tuple[int, int, int, int]) -> Any:
    """Forward, or the gradient of the input: both read a window of the other side. `shape`: kernel, stride."""
    unpack, pack, VEC = UNPACK[element], PACK[element], 16 // element
    take, deliver = make_take(element), make_deliver(element)
    KH, KW, SY, SX = shape

    def depthwise(
        x, weight, bias, mask, out, total, lanes, l_mul, l_shift, hw_mul, hw_shift, w_mul, w_shift,
        height, width, ho, wo, ldx, ldo, ldm, top, left, activation, masking, accumulate,
    ):
        at = i32(cuda.grid(1))
        if at >= total:
            return
        pixel, part, n, oy, ox = find_pixel(
            at, lanes, l_mul, l_shift, hw_mul, hw_shift, w_mul, w_shift, ho * wo, wo
        )  # fmt: skip
        sums = cuda.local.array(VEC, dtype=types.float32)
        value = cuda.local.array(VEC, dtype=types.float32)
        filt = cuda.local.array(VEC, dtype=types.float32)
        for i in range(VEC):
            sums[i] = load_float(u64(bias + u64(i64(part * VEC + i) * 4))) if bias != u64(0) else f32(0.0)
        for ky in range(KH):
            for kx in range(KW):
                if gradient:
                    up, along = i32(oy + top - ky), i32(ox + left - kx)
                    y, xx = i32(up // SY), i32(along // SX)
                    ok = up >= 0 and along >= 0 and y * SY == up and xx * SX == along and y < height and xx < width
                else:
                    y, xx = i32(oy * SY - top + ky), i32(ox * SX - left + kx)
                    ok = y >= 0 and y < height and xx >= 0 and xx < width
                take(x, ok, n, y, xx, height, width, ldx, part, value)
                tap = i64(i64(ky * KW + kx) * lanes + part)
                unpack(load4(u64(weight + u64(tap * 16))), filt)
                for i in range(VEC):
                    sums[i] = f32(sums[i] + (f32(value[i] * filt[i]) if ok else f32(0.0)))
        for i in range(VEC):
            sums[i] = activate(sums[i], activation)
        deliver(pack(sums), mask, out, i64(pixel), part, ldm, ldo, masking, accumulate)

    return depthwise


WEIGHT_ARGUMENTS: Final = (
    *(types.uint64,) * 3,  # x, dy, partial (splits, taps + 1, channels): the last row is the bias gradient
    *(types.int32,) * 4,  # pixels of dy in all, pixels a split, lanes a pixel, lanes a block
    *(types.uint32,) * 4,  # fast division by pixels of a photo and by width of dy
    *(types.int32,) * 6,  # height, width of x, of dy; pitch of x, of dy
    *(types.int32,) * 2,  # padding (top, left)
)

THREADS: Final = 256


def make_depthwise_weight(element: int, shape: tuple[int, int, int, int]) -> Any:
    """Grid: lanes, rows of the kernel, splits. A lane keeps the sums of a row's taps (and the bias) in registers."""
    unpack, take, VEC = UNPACK[element], make_take(element), 16 // element
    KH, KW, SY, SX = shape
    SUMS, STORED = (KW + 1) * VEC, THREADS * VEC

    def depthwise_weight(
        x, dy, partial, pixels, split, lanes, wide, hw_mul, hw_shift, w_mul, w_shift,
        height, width, ho, wo, ldx, ldy, top, left,
    ):
        shared = cuda.shared.array(STORED, dtype=types.float32)
        t, ky = i32(cuda.threadIdx.x), i32(cuda.blockIdx.y)
        rows = i32(256 // wide)
        ty = i32(t // wide)
        tx = i32(t - ty * wide)
        part = i32(i32(cuda.blockIdx.x) * wide + tx)
        start = i32(i32(cuda.blockIdx.z) * split)
        end = i32(min(i32(start + split), pixels))
        sums = cuda.local.array(SUMS, dtype=types.float32)
        value = cuda.local.array(VEC, dtype=types.float32)
        other = cuda.local.array(VEC, dtype=types.float32)
        for i in range(SUMS):
            sums[i] = f32(0.0)
        if part < lanes and ty < rows:
            for m in range(i32(start + ty), end, rows):
                n = divide(m, hw_mul, hw_shift)
                rest = u32(u32(m) - n * u32(ho * wo))
                oy = i32(divide(rest, w_mul, w_shift))
                y, x0 = i32(oy * SY - top + ky), i32(i32(rest - u32(oy * wo)) * SX - left)
                unpack(load4(u64(dy + u64((i64(m) * ldy + part * VEC) * element))), value)
                for i in range(VEC):
                    sums[KW * VEC + i] = f32(sums[KW * VEC + i] + value[i])
                for kx in range(KW):
                    xx = i32(x0 + kx)
                    ok = y >= 0 and y < height and xx >= 0 and xx < width
                    take(x, ok, n, y, xx, height, width, ldx, part, other)
                    for i in range(VEC):
                        sums[kx * VEC + i] = f32(sums[kx * VEC + i] + (f32(value[i] * other[i]) if ok else f32(0.0)))
        for kx in range(KW + 1):
            cuda.syncthreads()
            for i in range(VEC):
                shared[i32(t * VEC + i)] = sums[kx * VEC + i]
            cuda.syncthreads()
            tap = i32(ky * KW + kx) if kx < KW else i32(KH * KW)
            if kx < KW or ky == 0:
                for c in range(t, wide * VEC, 256):
                    channel = i32(i32(cuda.blockIdx.x) * wide * VEC + c)
                    if channel < lanes * VEC:
                        total = f32(0.0)
                        for row in range(rows):
                            total = f32(total + shared[i32(row * wide * VEC + c)])
                        place = i64(i32(cuda.blockIdx.z)) * (KH * KW + 1) + tap
                        store_float(u64(partial + u64((place * (lanes * VEC) + channel) * 4)), total)

    return depthwise_weight
