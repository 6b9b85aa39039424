"""Depthwise convolution, 16 bytes of channels a lane: forward, input gradient by gathering, weight gradient in parts."""

from __future__ import annotations

from typing import Any, Final

from core.gpu.cuda import cuda, types
from core.gpu.kernels.fragments import divide
from core.gpu.kernels.lanes import ADD, KEEP, PACK, UNPACK, activate
from core.gpu.ptx import load4, load4_ordered, load_float, store4, store_float

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

ARGUMENTS: Final = (
    *(types.uint64,) * 5,  # x or dy, packed filters (taps, channels), bias (0: none), mask (0: none), out
    *(types.int32,) * 2,  # lanes in all, lanes a pixel
    *(types.uint32,) * 6,  # fast division by lanes a pixel, by pixels of a photo and by width (of the written side)
    *(types.int32,) * 4,  # height, width of the read side; of the written side
    *(types.int32,) * 3,  # pixel pitches: read, written, mask
    *(types.int32,) * 6,  # kernel, stride, padding (top, left)
    *(types.int32,) * 3,  # activation, masking, accumulate
)


def make_depthwise(element: int, gradient: bool) -> Any:
    """Forward, or the gradient of the input: both read a window of the other side."""
    unpack, pack, add, keep, VEC = UNPACK[element], PACK[element], ADD[element], KEEP[element], 16 // element

    def depthwise(
        x, weight, bias, mask, out, total, lanes, l_mul, l_shift, hw_mul, hw_shift, w_mul, w_shift,
        height, width, ho, wo, ldx, ldo, ldm, kh, kw, sy, sx, top, left, activation, masking, accumulate,
    ):
        at = i32(cuda.grid(1))
        if at >= total:
            return
        pixel = divide(at, l_mul, l_shift)
        part = i32(u32(at) - pixel * u32(lanes))
        n = divide(pixel, hw_mul, hw_shift)
        rest = u32(pixel - n * u32(ho * wo))
        oy = i32(divide(rest, w_mul, w_shift))
        ox = i32(rest - u32(oy * wo))
        sums = cuda.local.array(VEC, dtype=types.float32)
        value = cuda.local.array(VEC, dtype=types.float32)
        filt = cuda.local.array(VEC, dtype=types.float32)
        for i in range(VEC):
            sums[i] = load_float(u64(bias + u64(i64(part * VEC + i) * 4))) if bias != u64(0) else f32(0.0)
        for ky in range(kh):
            for kx in range(kw):
                if gradient:
                    up, along = i32(oy + top - ky), i32(ox + left - kx)
                    y, xx = i32(up // sy), i32(along // sx)
                    ok = up >= 0 and along >= 0 and y * sy == up and xx * sx == along and y < height and xx < width
                else:
                    y, xx = i32(oy * sy - top + ky), i32(ox * sx - left + kx)
                    ok = y >= 0 and y < height and xx >= 0 and xx < width
                if ok:
                    row = i64((i64(n) * height + y) * width + xx)
                    unpack(load4(u64(x + u64((row * ldx + part * VEC) * element))), value)
                    tap = i64(i64(ky * kw + kx) * lanes + part)
                    unpack(load4(u64(weight + u64(tap * 16))), filt)
                    for i in range(VEC):
                        sums[i] = f32(sums[i] + value[i] * filt[i])
        for i in range(VEC):
            sums[i] = activate(sums[i], activation)
        v = pack(sums)
        row = i64(pixel)
        if masking != 0:
            v = keep(v, load4(u64(mask + u64((row * ldm + part * VEC) * element))), masking)
        target = u64(out + u64((row * ldo + part * VEC) * element))
        if accumulate != 0:
            v = add(v, load4_ordered(target))
        store4(target, v[0], v[1], v[2], v[3])

    return depthwise


WEIGHT_ARGUMENTS: Final = (
    *(types.uint64,) * 3,  # x, dy, partial (splits, taps + 1, channels): the last row is the bias gradient
    *(types.int32,) * 3,  # pixels of dy in all, pixels a split, lanes
    *(types.uint32,) * 4,  # fast division by pixels of a photo and by width of dy
    *(types.int32,) * 6,  # height, width of x, of dy; pitch of x, of dy
    *(types.int32,) * 6,  # kernel, stride, padding (top, left)
)


def make_depthwise_weight(element: int) -> Any:
    """Blocks of 32 lanes x 8 rows of pixels; grid: lanes, taps and the bias, splits."""
    unpack, VEC = UNPACK[element], 16 // element
    WIDE = 32 * VEC

    def depthwise_weight(
        x, dy, partial, pixels, split, lanes, hw_mul, hw_shift, w_mul, w_shift,
        height, width, ho, wo, ldx, ldy, kh, kw, sy, sx, top, left,
    ):
        shared = cuda.shared.array((8, WIDE), dtype=types.float32)
        tx, ty = i32(cuda.threadIdx.x), i32(cuda.threadIdx.y)
        part, tap = i32(i32(cuda.blockIdx.x) * 32 + tx), i32(cuda.blockIdx.y)
        ky, kx = i32(tap // kw), i32(tap % kw)
        start = i32(i32(cuda.blockIdx.z) * split)
        end = i32(min(i32(start + split), pixels))
        sums = cuda.local.array(VEC, dtype=types.float32)
        value = cuda.local.array(VEC, dtype=types.float32)
        other = cuda.local.array(VEC, dtype=types.float32)
        for i in range(VEC):
            sums[i] = f32(0.0)
        if part < lanes:
            for m in range(i32(start + ty), end, 8):
                n = divide(m, hw_mul, hw_shift)
                rest = u32(u32(m) - n * u32(ho * wo))
                oy = i32(divide(rest, w_mul, w_shift))
                y, xx = i32(oy * sy - top + ky), i32(i32(rest - u32(oy * wo)) * sx - left + kx)
                inside = y >= 0 and y < height and xx >= 0 and xx < width
                if tap == kh * kw or inside:
                    unpack(load4(u64(dy + u64((i64(m) * ldy + part * VEC) * element))), value)
                    if tap < kh * kw:
                        row = i64((i64(n) * height + y) * width + xx)
                        unpack(load4(u64(x + u64((row * ldx + part * VEC) * element))), other)
                        for i in range(VEC):
                            sums[i] = f32(sums[i] + value[i] * other[i])
                    else:
                        for i in range(VEC):
                            sums[i] = f32(sums[i] + value[i])
        for i in range(VEC):
            shared[ty, i32(tx * VEC + i)] = sums[i]
        cuda.syncthreads()
        if ty == 0 and part < lanes:
            rows = i64(i32(cuda.blockIdx.z)) * (kh * kw + 1) + tap
            for i in range(VEC):
                total = sums[i]
                for row in range(1, 8):
                    total = f32(total + shared[row, i32(tx * VEC + i)])
                store_float(u64(partial + u64((rows * lanes * VEC + part * VEC + i) * 4)), total)

    return depthwise_weight
