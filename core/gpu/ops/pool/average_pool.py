"""Average pooling over windows, 16 bytes of channels a lane; the gradient gathers, so that no two lanes write a place.

What a window's sum is divided by is the rule of `core.ops.avg_pool`: the part of the window on the photo, or on the
photo and its padding.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import store4
from core.gpu.kernels.parts.lanes import PACK, find_pixel, make_deliver, make_take
from core.gpu.kernels.parts.winners import Shape
from core.gpu.launch import INTEGER, POINTER, Argument, KernelSignature
from core.gpu.ops.pool.max_pool import WHERE

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

_END: Final = (
    Argument("ldm", INTEGER, "elements from a pixel of `mask` to the next"),
    Argument("top", INTEGER, "padding above"),
    Argument("left", INTEGER, "padding on the left"),
    Argument("bottom", INTEGER, "padding below"),
    Argument("right", INTEGER, "padding on the right"),
    Argument("masking", INTEGER, "activation that `mask` is the output of (`core.gpu.launch.RELU`)"),
    Argument("accumulate", INTEGER, "1 adds to dx"),
)  # fmt: skip

FORWARD: Final = KernelSignature((
    Argument("x", POINTER, "activations (N, height, width, C)"),
    Argument("out", POINTER, "activations (N, ho, wo, C)"),
    Argument("mask", POINTER, "not read"),
    *WHERE, *_END,
))  # fmt: skip

GRADIENT: Final = KernelSignature((
    Argument("dy", POINTER, "gradient of out"),
    Argument("dx", POINTER, "gradient of x"),
    Argument("mask", POINTER, "x, where the gradient of its activation is applied; 0 for none"),
    *WHERE, *_END,
))  # fmt: skip


def make_share(shape: Shape, include: bool) -> Any:
    """Device function: one over the number of pixels that count in the window of output (oy, ox)."""
    KH, KW, SY, SX = shape

    @device_function
    def share(oy, ox, height, width, top, left, bottom, right):
        y, x = i32(oy * SY - top), i32(ox * SX - left)
        if include:
            tall, wide = i32(min(y + KH, height + bottom) - y), i32(min(x + KW, width + right) - x)
        else:
            tall, wide = i32(min(y + KH, height) - max(y, 0)), i32(min(x + KW, width) - max(x, 0))
        return f32(f32(1.0) / f32(tall * wide))

    return share


def make_average_pool(element: int, shape: Shape, include: bool) -> Any:
    """Forward kernel, one lane an output pixel; `include` counts padding in the divisor."""
    take, pack, VEC, share = make_take(element), PACK[element], 16 // element, make_share(shape, include)
    KH, KW, SY, SX = shape

    def average_pool(
        x, out, mask, total, lanes, by_lanes_mul, by_lanes_shift, by_area_mul, by_area_shift,
        by_columns_mul, by_columns_shift, area, columns,
        height, width, ho, wo, ldx, ldo, ldm, top, left, bottom, right, masking, accumulate,
    ):
        at = i32(cuda.grid(1))
        if at >= total:
            return
        pixel, part, n, oy, ox = find_pixel(
            at, lanes, by_lanes_mul, by_lanes_shift, by_area_mul, by_area_shift, by_columns_mul, by_columns_shift,
            area, columns,
        )
        sums = cuda.local.array(VEC, dtype=types.float32)
        value = cuda.local.array(VEC, dtype=types.float32)
        for i in range(VEC):
            sums[i] = f32(0.0)
        for ky in range(KH):
            y = i32(oy * SY - top + ky)
            for kx in range(KW):
                xx = i32(ox * SX - left + kx)
                ok = y >= 0 and y < height and xx >= 0 and xx < width
                take(x, ok, n, y, xx, height, width, ldx, part, value)
                for i in range(VEC):
                    sums[i] = f32(sums[i] + (value[i] if ok else f32(0.0)))
        part_of_sum = share(oy, ox, height, width, top, left, bottom, right)
        for i in range(VEC):
            sums[i] = f32(sums[i] * part_of_sum)
        v = pack(sums)
        store4(u64(out + u64((i64(pixel) * ldo + part * VEC) * element)), v[0], v[1], v[2], v[3])

    return average_pool


def make_average_pool_gradient(element: int, shape: Shape, include: bool) -> Any:
    """Gradient kernel, one lane an input pixel: its share of every window that saw it."""
    take, pack, deliver, VEC = make_take(element), PACK[element], make_deliver(element), 16 // element
    KH, KW, SY, SX = shape
    DOWN, ACROSS, share = (KH - 1) // SY + 1, (KW - 1) // SX + 1, make_share(shape, include)

    def average_pool_gradient(
        dy, dx, mask, total, lanes, by_lanes_mul, by_lanes_shift, by_area_mul, by_area_shift,
        by_columns_mul, by_columns_shift, area, columns,
        height, width, ho, wo, ldx, ldo, ldm, top, left, bottom, right, masking, accumulate,
    ):
        at = i32(cuda.grid(1))
        if at >= total:
            return
        pixel, part, n, y, x = find_pixel(
            at, lanes, by_lanes_mul, by_lanes_shift, by_area_mul, by_area_shift, by_columns_mul, by_columns_shift,
            area, columns,
        )
        sums = cuda.local.array(VEC, dtype=types.float32)
        value = cuda.local.array(VEC, dtype=types.float32)
        for i in range(VEC):
            sums[i] = f32(0.0)
        for da in range(DOWN):
            oy = i32((y + top) // SY - da)
            for db in range(ACROSS):
                ox = i32((x + left) // SX - db)
                ok = oy >= 0 and oy < ho and ox >= 0 and ox < wo
                ok = ok and oy * SY - top + KH > y and ox * SX - left + KW > x
                take(dy, ok, n, oy, ox, ho, wo, ldo, part, value)
                mine = share(oy, ox, height, width, top, left, bottom, right) if ok else f32(0.0)
                for i in range(VEC):
                    sums[i] = f32(sums[i] + (f32(value[i] * mine) if ok else f32(0.0)))
        deliver(pack(sums), mask, dx, i64(pixel), part, ldm, ldx, masking, accumulate)

    return average_pool_gradient
