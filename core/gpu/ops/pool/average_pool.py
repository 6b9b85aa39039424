"""Average pooling over windows and over the whole image, and their gradients.

Windows: one thread per vector (16 bytes of channels) of a pixel. Forward it adds the window of its pixel of out. The
gradient adds, for its pixel of dx, the share of every window that contains the pixel, so that no two threads write the
same pixel. Both read a window of the other side, divided by the number of pixels that count (`core.ops.pooling`): the
part of the window on the image, or on image and padding. Grid: vectors / 256.

Whole image: a block of 32 x 8 threads averages 32 vectors of one image. The gradient has one block of 128 threads per
image.

    image, pixels x vectors      block: 32 vectors x 8 rows of threads
    +---------+---------+        row 0: pixels 0, 8, 16 ...
    | block 0 | block 1 |        row 1: pixels 1, 9, 17 ...      sums[8, 32 vectors] -> row 0 adds and stores
    +---------+---------+

Shared memory: the sums of 8 rows (8 KiB in bf16); none for windows, which overlap in the L1 cache. Bytes: both sides
once (gradient: the mask once).
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u64
from core.gpu.compilation.ptx import load4, store4
from core.gpu.launch import (
    INTEGER,
    MASKING,
    PIXELS,
    POINTER,
    SIDES,
    THREADS,
    Argument,
    KernelSignature,
    blocks_of,
    make_launch,
    pitches,
    pixel_values,
    side_values,
    vectors_of,
)
from core.gpu.parts.vectors import PACK, UNPACK, clear, find_pixel, make_deliver, make_take
from core.gpu.parts.winners import Shape
from core.gpu.select import FORWARD, Case
from core.ops.window import read_window

SIGNATURE: Final = KernelSignature((
    Argument("x", POINTER, "activations (N, height, width, C); for the gradient that of out"),
    Argument("out", POINTER, "activations (N, ho, wo, C); for the gradient dx"),
    Argument("mask", POINTER, "x, where the gradient of its activation is applied; 0 for none"),
    PIXELS, SIDES,
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
            rows, columns = i32(min(y + KH, height + bottom) - y), i32(min(x + KW, width + right) - x)
        else:
            rows, columns = i32(min(y + KH, height) - max(y, 0)), i32(min(x + KW, width) - max(x, 0))
        return f32(f32(1.0) / f32(rows * columns))

    return share


def make_average_pool(element: int, shape: Shape, include: bool, gradient: bool) -> Any:
    """The kernel over windows, forward or gradient; `include` counts padding in the divisor."""
    take, pack, deliver, VEC = make_take(element), PACK[element], make_deliver(element), 16 // element
    KH, KW, SY, SX = shape
    share = make_share(shape, include)
    DOWN, ACROSS = ((KH - 1) // SY + 1, (KW - 1) // SX + 1) if gradient else (KH, KW)

    def average_pool(x, out, mask, pixels, sides, ldm, top, left, bottom, right, masking, accumulate):
        at = i32(cuda.grid(1))
        if at >= pixels.total:
            return
        pixel, part, n, row, column = find_pixel(at, pixels)
        height, width = sides.height, sides.width
        sums = cuda.local.array(VEC, f32)
        value = cuda.local.array(VEC, f32)
        clear(sums)
        for down in range(DOWN):
            for across in range(ACROSS):
                if gradient:  # windows that begin at or before this pixel and reach it
                    y, xx = i32((row + top) // SY - down), i32((column + left) // SX - across)
                    ok = y * SY - top + KH > row and xx * SX - left + KW > column
                else:  # pixels of this window
                    y, xx = i32(row * SY - top + down), i32(column * SX - left + across)
                    ok = True
                ok = ok and y >= 0 and y < height and xx >= 0 and xx < width
                take(x, ok, n, y, xx, height, width, sides.ldx, part, value)
                if gradient:
                    mine = share(y, xx, sides.ho, sides.wo, top, left, bottom, right) if ok else f32(0.0)
                    for i in range(VEC):
                        value[i] = f32(value[i] * mine)
                for i in range(VEC):
                    sums[i] = f32(sums[i] + (value[i] if ok else f32(0.0)))
        if not gradient:
            part_of_sum = share(row, column, height, width, top, left, bottom, right)
            for i in range(VEC):
                sums[i] = f32(sums[i] * part_of_sum)
        deliver(pack(sums), mask, out, i64(pixel), part, ldm, sides.ldo, masking, accumulate)

    return average_pool


GLOBAL_THREADS: Final = 128
"""Threads per block of the gradient over the whole image."""

_IMAGE: Final = (
    Argument("hw", INTEGER, "pixels per image"),
    Argument("vectors", INTEGER, "vectors (16 bytes) per pixel"),
    *pitches(ldx="x", ldo="out"),
    Argument("factor", "float32", "1 / hw"),
)  # fmt: skip

GLOBAL: Final = KernelSignature((
    Argument("x", POINTER, "activations (N, hw, C)"),
    Argument("out", POINTER, "means (N, C)"),
    *_IMAGE,
))  # fmt: skip

GLOBAL_GRADIENT: Final = KernelSignature((
    Argument("x", POINTER, "gradient of the means (N, C)"),
    Argument("out", POINTER, "gradient of the activations (N, hw, C)"),
    Argument("mask", POINTER, "the activations, where the gradient of their activation is applied; 0 for none"),
    *_IMAGE,
    *pitches(ldm="mask"),
    *MASKING,
))  # fmt: skip


def make_average(element: int) -> Any:
    """Mean over the pixels of an image."""
    unpack, pack, VEC = UNPACK[element], PACK[element], 16 // element
    WIDE = 32 * VEC

    @device_function
    def add_pixel(bits, value, total, real):
        unpack(bits, value)
        for i in range(VEC):
            total[i] = f32(total[i] + (value[i] if real else f32(0.0)))

    def average(x, out, hw, vectors, ldx, ldo, factor):
        sums = cuda.shared.array((8, WIDE), f32)
        tx, ty = i32(cuda.threadIdx.x), i32(cuda.threadIdx.y)
        n, part = i32(cuda.blockIdx.y), i32(i32(cuda.blockIdx.x) * 32 + tx)
        total = cuda.local.array(VEC, f32)
        value = cuda.local.array(VEC, f32)
        clear(total)
        first, step = u64(x + u64((i64(n) * hw * ldx + part * VEC) * element)), i64(i64(ldx) * 8 * element)
        p = ty
        while part < vectors and p < hw:
            # Four loads are issued before the first is added: one after another, their latencies would add up.
            at = u64(first + u64(i64(p) * ldx * element))
            a = load4(at)
            b = load4(u64(at + u64(step)) if p + 8 < hw else at)
            c = load4(u64(at + u64(step * 2)) if p + 16 < hw else at)
            d = load4(u64(at + u64(step * 3)) if p + 24 < hw else at)
            add_pixel(a, value, total, True)
            add_pixel(b, value, total, p + 8 < hw)
            add_pixel(c, value, total, p + 16 < hw)
            add_pixel(d, value, total, p + 24 < hw)
            p = i32(p + 32)
        for i in range(VEC):
            sums[ty, i32(tx * VEC + i)] = total[i]
        cuda.syncthreads()
        if ty == 0 and part < vectors:
            for i in range(VEC):
                for other in range(1, 8):
                    total[i] = f32(total[i] + sums[other, i32(tx * VEC + i)])
                total[i] = f32(total[i] * factor)
            v = pack(total)
            store4(u64(out + u64((i64(n) * ldo + part * VEC) * element)), v[0], v[1], v[2], v[3])

    return average


def make_average_gradient(element: int) -> Any:
    """An image's gradient spread evenly over its pixels, masked by x's producer."""
    unpack, pack, deliver, VEC = UNPACK[element], PACK[element], make_deliver(element), 16 // element

    def average_gradient(x, out, mask, hw, vectors, ldx, ldo, factor, ldm, masking, accumulate):
        t, n = i32(cuda.threadIdx.x), i32(cuda.blockIdx.x)
        value = cuda.local.array(VEC, f32)
        for i in range(t, hw * vectors, 128):
            p, part = i32(i // vectors), i32(i % vectors)
            unpack(load4(u64(x + u64((i64(n) * ldx + part * VEC) * element))), value)
            for j in range(VEC):
                value[j] = f32(value[j] * factor)
            deliver(pack(value), mask, out, i64(i64(n) * hw + p), part, ldm, ldo, masking, accumulate)

    return average_gradient


def write_windows(case: Case) -> None:
    """Add the launch of one thread per vector of what is written."""
    frame, step, (x, out, target) = case.frame, case.step, case.sides()
    window = read_window(step.attributes)
    values = {
        "x": x.address, "out": out.address, **side_values(x, out), **target.values,
        **pixel_values(frame.batch, out.height, out.width, vectors_of(out)),
        **dict(zip(("top", "left", "bottom", "right"), window.padding, strict=True)),
    }  # fmt: skip
    include, gradient = bool(step.attributes["count_include_pad"]), case.direction != FORWARD
    constants = (frame.element, (*window.kernel, *window.stride), include, gradient)
    moved = x.height * x.width + target.passes * out.height * out.width
    frame.add(make_launch(
        step.node, case.direction, "fused", ("ops.pool.average_pool", "make_average_pool", constants), SIGNATURE,
        values, (blocks_of(values["total"], THREADS), 1, 1), moved=frame.batch * out.padded * frame.element * moved,
    ))  # fmt: skip


def write_global(case: Case) -> None:
    """Add the launch of the mean over the pixels, or of its gradient."""
    frame, (x, out, target) = case.frame, case.sides()
    made, grid, block = "make_average", (blocks_of(vectors_of(x), 32), frame.batch, 1), (32, 8, 1)
    signature, image, masking = GLOBAL, x, dict[str, int]()
    if case.direction != FORWARD:
        made, grid, block = "make_average_gradient", (frame.batch, 1, 1), (GLOBAL_THREADS, 1, 1)
        signature, image, masking = GLOBAL_GRADIENT, out, target.values
    hw = image.height * image.width
    values = {
        "x": x.address, "out": out.address, "hw": hw, "vectors": vectors_of(image), "ldx": x.pitch, "ldo": out.pitch,
        "factor": 1 / hw, **masking,
    }  # fmt: skip
    frame.add(make_launch(
        case.step.node, case.direction, "fused", ("ops.pool.average_pool", made, (frame.element,)), signature, values,
        grid, block,
    ))  # fmt: skip
