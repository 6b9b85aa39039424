"""Max pooling, 16 bytes of channels a lane: the winner's place is kept as a byte, so that the gradient gathers.

A place of 255 marks a window whose winner did not pass the producer's ReLU: its mask costs nothing more.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.cuda import cuda, types
from core.gpu.kernels.fragments import divide
from core.gpu.kernels.lanes import ADD, PACK, UNPACK, passes
from core.gpu.ptx import load1, load2, load4, load4_ordered, store1, store2, store4

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

STOPPED: Final = 255
"""Place of a winner whose gradient the ReLU before the pool stops."""

ARGUMENTS: Final = (
    *(types.uint64,) * 3,  # x, out, places (0: keep none) or dy, dx, places
    *(types.int32,) * 2,  # lanes in all, lanes a pixel
    *(types.uint32,) * 6,  # fast division by lanes a pixel, by pixels of a photo, by width (of the written side)
    *(types.int32,) * 4,  # height, width of x; height, width of out
    *(types.int32,) * 3,  # pixel pitch of x, of out, of places
    *(types.int32,) * 6,  # kernel, stride, padding (top, left)
    *(types.int32,) * 2,  # activation of x's producer, accumulate
)


def make_max_pool(element: int) -> Any:
    """Forward kernel: out and places from x."""
    unpack, pack, VEC = UNPACK[element], PACK[element], 16 // element

    def max_pool(
        x, out, places, total, lanes, l_mul, l_shift, hw_mul, hw_shift, w_mul, w_shift,
        height, width, ho, wo, ldx, ldo, ldp, kh, kw, sy, sx, top, left, activation, accumulate,
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
        best = cuda.local.array(VEC, dtype=types.float32)
        value = cuda.local.array(VEC, dtype=types.float32)
        place = cuda.local.array(VEC, dtype=types.int32)
        for i in range(VEC):
            best[i], place[i] = f32(-3.0e38), i32(0)
        for ky in range(kh):
            y = i32(oy * sy - top + ky)
            for kx in range(kw):
                xx = i32(ox * sx - left + kx)
                if y >= 0 and y < height and xx >= 0 and xx < width:
                    row = i64((i64(n) * height + y) * width + xx)
                    unpack(load4(u64(x + u64((row * ldx + part * VEC) * element))), value)
                    for i in range(VEC):
                        if not value[i] <= best[i]:
                            best[i], place[i] = value[i], i32(ky * kw + kx)
        row = i64(pixel)
        v = pack(best)
        store4(u64(out + u64((row * ldo + part * VEC) * element)), v[0], v[1], v[2], v[3])
        if places != u64(0):
            words = cuda.local.array(2, dtype=types.uint32)
            words[0], words[1] = u32(0), u32(0)
            for i in range(VEC):
                mark = u32(place[i]) if passes(best[i], activation) else u32(255)
                words[i // 4] = u32(words[i // 4] | u32(mark << u32(8 * (i % 4))))
            target = u64(places + u64(row * ldp + part * VEC))
            if VEC == 8:
                store2(target, words[0], words[1])
            else:
                store1(target, words[0])

    return max_pool


def make_max_pool_gradient(element: int) -> Any:
    """Gradient kernel: each place of dx gathers from the windows that it won."""
    unpack, pack, add, VEC = UNPACK[element], PACK[element], ADD[element], 16 // element

    def max_pool_gradient(
        dy, dx, places, total, lanes, l_mul, l_shift, hw_mul, hw_shift, w_mul, w_shift,
        height, width, ho, wo, ldx, ldo, ldp, kh, kw, sy, sx, top, left, activation, accumulate,
    ):
        at = i32(cuda.grid(1))
        if at >= total:
            return
        pixel = divide(at, l_mul, l_shift)
        part = i32(u32(at) - pixel * u32(lanes))
        n = divide(pixel, hw_mul, hw_shift)
        rest = u32(pixel - n * u32(height * width))
        y = i32(divide(rest, w_mul, w_shift)) + top
        x = i32(rest - u32(i32(y - top) * width)) + left
        sums = cuda.local.array(VEC, dtype=types.float32)
        value = cuda.local.array(VEC, dtype=types.float32)
        for i in range(VEC):
            sums[i] = f32(0.0)
        y0, y1 = i32(max((y - kh + sy) // sy, 0)), i32(min(y // sy, ho - 1))
        x0, x1 = i32(max((x - kw + sx) // sx, 0)), i32(min(x // sx, wo - 1))
        for oy in range(y0, y1 + 1):
            for ox in range(x0, x1 + 1):
                mine = u32(i32(y - oy * sy) * kw + i32(x - ox * sx))
                row = i64((i64(n) * ho + oy) * wo + ox)
                unpack(load4(u64(dy + u64((row * ldo + part * VEC) * element))), value)
                source = u64(places + u64(row * ldp + part * VEC))
                words = load2(source) if VEC == 8 else (load1(source), u32(0))
                for i in range(VEC):
                    if u32(words[i // 4] >> u32(8 * (i % 4))) & u32(255) == mine:
                        sums[i] = f32(sums[i] + value[i])
        target = u64(dx + u64((i64(pixel) * ldx + part * VEC) * element))
        v = pack(sums)
        if accumulate != 0:
            v = add(v, load4_ordered(target))
        store4(target, v[0], v[1], v[2], v[3])

    return max_pool_gradient
