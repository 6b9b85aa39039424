"""Photos from uint8 to the network's input in one pass: sampling, blur, colour, cut-out, normalising, packing.

One lane an output pixel. The reference is `core.ops.photo.transform`; the row of numbers that steers a photo
is described there. Output pixels have 4 or 8 channels (the last are zero), so that a convolution loads 16 bytes.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.cuda import cuda, device_function, types
from core.gpu.kernels.fragments import divide
from core.gpu.ptx import float_to_bits, load1, load_byte, load_float, pack_bf16, store2, store4

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

ARGUMENTS: Final = (
    *(types.uint64,) * 5,  # control block, place of the photos' address, rows, index, out (of the first pixel)
    *(types.int32,) * 3,  # pixels in all; height, width of the output
    *(types.uint32,) * 4,  # fast division by its pixels, by its width
    *(types.int32,) * 2,  # row pitch, photo pitch of out, in pixels
    *(types.float32,) * 6,  # mean, 1 / deviation
)


@device_function
def _sample(photo, height, width, sx, sy, channel):
    """Bilinear value of one channel in 0..1, the coordinates clamped to the photo."""
    sx = min(max(sx, f32(0.0)), f32(width - 1))
    sy = min(max(sy, f32(0.0)), f32(height - 1))
    x0, y0 = i32(sx), i32(sy)
    x1, y1 = i32(min(i32(x0 + 1), i32(width - 1))), i32(min(i32(y0 + 1), i32(height - 1)))
    fx, fy = f32(sx - f32(x0)), f32(sy - f32(y0))
    row0, row1 = i64(y0) * width, i64(y1) * width
    a = f32(load_byte(u64(photo + u64((row0 + x0) * 3 + channel))))
    b = f32(load_byte(u64(photo + u64((row0 + x1) * 3 + channel))))
    c = f32(load_byte(u64(photo + u64((row1 + x0) * 3 + channel))))
    d = f32(load_byte(u64(photo + u64((row1 + x1) * 3 + channel))))
    upper = f32(a * f32(f32(1.0) - fx) + b * fx)
    lower = f32(c * f32(f32(1.0) - fx) + d * fx)
    return f32(f32(upper * f32(f32(1.0) - fy) + lower * fy) / f32(255.0))


@device_function
def _row(rows, n, place):
    return load_float(u64(rows + u64((i64(n) * 32 + place) * 4)))


def make_photo(element: int, channels: int, pixel: int) -> Any:
    """The kernel for outputs of 3 channels or 1 (grey), `pixel` elements a pixel."""
    HALF, GREY, EIGHT = element == 2, channels == 1, pixel == 8

    def photo(control, source, rows, index, out, total, height, width, hw_mul, hw_shift, w_mul, w_shift,
              ldr, ldn, m0, m1, m2, s0, s1, s2):
        at = i32(cuda.grid(1))
        if at >= total:
            return
        n = i32(divide(at, hw_mul, hw_shift))
        rest = u32(u32(at) - u32(n) * u32(height * width))
        oy = i32(divide(rest, w_mul, w_shift))
        ox = i32(rest - u32(oy * width))
        rgb = cuda.local.array(3, dtype=types.float32)
        for i in range(3):
            rgb[i] = f32(0.0)
        if n < i32(load1(control)):
            address = u64(u64(load1(source)) | u64(u64(load1(u64(source + u64(4)))) << u64(32)))
            h, w = i32(load1(u64(source + u64(8)))), i32(load1(u64(source + u64(12))))
            which = i32(load1(u64(index + u64(i64(n) * 4))))
            mine = u64(address + u64(i64(which) * h * w * 3))
            x, y = f32(ox), f32(oy)
            sx = f32(_row(rows, n, 0) * x + _row(rows, n, 1) * y + _row(rows, n, 2))
            sy = f32(_row(rows, n, 3) * x + _row(rows, n, 4) * y + _row(rows, n, 5))
            blur, radius = _row(rows, n, 18), _row(rows, n, 19)
            seen = cuda.local.array(3, dtype=types.float32)
            for i in range(3):
                v = _sample(mine, h, w, sx, sy, i)
                if blur > f32(0.0):
                    around = f32(_sample(mine, h, w, f32(sx - radius), sy, i) + _sample(mine, h, w, f32(sx + radius), sy, i))
                    beside = f32(_sample(mine, h, w, sx, f32(sy - radius), i) + _sample(mine, h, w, sx, f32(sy + radius), i))
                    v = f32(f32(f32(1.0) - f32(4.0) * blur) * v + blur * f32(around + beside))
                seen[i] = v
            for i in range(3):
                v = f32(_row(rows, n, 9 + 4 * i))
                for j in range(3):
                    v = f32(v + _row(rows, n, 6 + 4 * i + j) * seen[j])
                rgb[i] = min(max(v, f32(0.0)), f32(1.0))
            if GREY:
                rgb[0] = f32(f32(0.299) * rgb[0] + f32(0.587) * rgb[1] + f32(0.114) * rgb[2])
            rgb[0], rgb[1], rgb[2] = f32((rgb[0] - m0) * s0), f32((rgb[1] - m1) * s1), f32((rgb[2] - m2) * s2)
            y0, x0 = i32(_row(rows, n, 20)), i32(_row(rows, n, 21))
            y1, x1 = i32(_row(rows, n, 22)), i32(_row(rows, n, 23))
            if oy >= y0 and oy < y1 and ox >= x0 and ox < x1:
                rgb[0], rgb[1], rgb[2] = f32(0.0), f32(0.0), f32(0.0)
            if GREY:
                rgb[1], rgb[2] = f32(0.0), f32(0.0)
        where = i64(n) * ldn + i64(oy) * ldr + ox
        zero = u32(0)
        if HALF:
            target = u64(out + u64(where * (2 * pixel)))
            low, high = pack_bf16(rgb[0], rgb[1]), pack_bf16(rgb[2], f32(0.0))
            if EIGHT:
                store4(target, low, high, zero, zero)
            else:
                store2(target, low, high)
        else:
            target = u64(out + u64(where * (4 * pixel)))
            store4(target, float_to_bits(rgb[0]), float_to_bits(rgb[1]), float_to_bits(rgb[2]), zero)
            if EIGHT:
                store4(u64(target + u64(16)), zero, zero, zero, zero)

    return photo
