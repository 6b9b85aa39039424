"""Average pooling over windows, and its gradient: a thread takes one vector (16 bytes of channels) of a pixel.

Forward: pixels of out; a thread adds the window of its pixel. Gradient: pixels of dx; a thread adds its share of every
window that its pixel is in, so that no two threads write one place. Both read a window of the other side, divided by
the number of pixels that count (`core.ops.avg_pool`): the part of the window on the image, or on image and padding.

    grid: vectors / 256     block: 256 threads, neighbouring vectors of a pixel first, then neighbouring pixels

Shared memory: none; neighbouring windows meet in the L1 cache. Bytes: both sides once (gradient: the mask once).
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.kernels.parts.lanes import PACK, find_pixel, make_deliver, make_take
from core.gpu.kernels.parts.winners import Shape
from core.gpu.launch import INTEGER, MASKING, POINTER, Argument, KernelSignature, pitches
from core.gpu.ops.pool.max_pool import WHERE

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

SIGNATURE: Final = KernelSignature((
    Argument("x", POINTER, "activations (N, height, width, C); for the gradient that of out"),
    Argument("out", POINTER, "activations (N, ho, wo, C); for the gradient dx"),
    Argument("mask", POINTER, "x, where the gradient of its activation is applied; 0 for none"),
    *WHERE,
    *pitches(ldm="mask"),
    Argument("top", INTEGER, "padding above"),
    Argument("left", INTEGER, "padding on the left"),
    Argument("bottom", INTEGER, "padding below"),
    Argument("right", INTEGER, "padding on the right"),
    *MASKING,
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


def make_average_pool(element: int, shape: Shape, include: bool, gradient: bool) -> Any:
    """The kernel as a Python function; `include` counts padding in the divisor."""
    take, pack, deliver, VEC = make_take(element), PACK[element], make_deliver(element), 16 // element
    KH, KW, SY, SX = shape
    share = make_share(shape, include)
    DOWN, ACROSS = ((KH - 1) // SY + 1, (KW - 1) // SX + 1) if gradient else (KH, KW)

    def average_pool(
        x, out, mask, total, lanes, by_lanes_mul, by_lanes_shift, by_area_mul, by_area_shift,
        by_columns_mul, by_columns_shift, area, columns,
        height, width, ho, wo, ldx, ldo, ldm, top, left, bottom, right, masking, accumulate,
    ):
        at = i32(cuda.grid(1))
        if at >= total:
            return
        pixel, part, n, row, column = find_pixel(
            at, lanes, by_lanes_mul, by_lanes_shift, by_area_mul, by_area_shift, by_columns_mul, by_columns_shift,
            area, columns,
        )
        sums = cuda.local.array(VEC, dtype=types.float32)
        value = cuda.local.array(VEC, dtype=types.float32)
        for i in range(VEC):
            sums[i] = f32(0.0)
        for down in range(DOWN):
            for across in range(ACROSS):
                if gradient:  # windows that begin at or before this pixel and reach it
                    y, xx = i32((row + top) // SY - down), i32((column + left) // SX - across)
                    ok = y * SY - top + KH > row and xx * SX - left + KW > column
                else:  # pixels of this window
                    y, xx = i32(row * SY - top + down), i32(column * SX - left + across)
                    ok = True
                ok = ok and y >= 0 and y < height and xx >= 0 and xx < width
                take(x, ok, n, y, xx, height, width, ldx, part, value)
                if gradient:
                    mine = share(y, xx, ho, wo, top, left, bottom, right) if ok else f32(0.0)
                    for i in range(VEC):
                        value[i] = f32(value[i] * mine)
                for i in range(VEC):
                    sums[i] = f32(sums[i] + (value[i] if ok else f32(0.0)))
        if not gradient:
            part_of_sum = share(row, column, height, width, top, left, bottom, right)
            for i in range(VEC):
                sums[i] = f32(sums[i] * part_of_sum)
        deliver(pack(sums), mask, out, i64(pixel), part, ldm, ldo, masking, accumulate)

    return average_pool
