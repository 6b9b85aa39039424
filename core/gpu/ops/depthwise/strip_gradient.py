"""Both gradients of a 3x3 depthwise convolution between two batch norms, in one pass over strips of rows.

A thread moves down two columns of two channels. For a pixel of the input it has the same nine upstream gradients in its
registers for the input's gradient (times the taps) and for the weight gradient (times the pixel).

    columns of g, y   c-1 [ c  c+1 ] c+2        upstream gradient: a g + b y + c, of the batch norm after
    row r                                       input: activation(x scale + shift), of the batch norm before
    row r+1                              |      neither is ever stored; the sums of the batch norm before are
    ...                                  v      computed from the masked gradient when it is stored

    grid and work items as in `strips.py`, in groups of two channels
    shared memory: (threads, 2) float32, where the rows of threads add their sums in order

Bytes: x, y and g once (4 / 2 columns from the L1 cache), dx once: the floor. Partial weight gradients of the blocks are
added by a second launch.

There is a loop over rows for stride 1 and one for stride 2 (`make_dense`, `make_strided`). `WORDS` 4-byte words hold
the two channels of a pixel (1 in bf16, 2 in float32). The registers hold a ring of three rows of the input and of sums
(stride 1), or two rows of the input and four pixels of the upstream gradient (stride 2). The next row is loaded before
the products of this one. Arguments of both: `images` are x, y, g and dx at the thread's channels of an image, `pitches`
their bytes per pixel.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.arguments import CONTROL, STRIPS, KernelSignature, pitches, pointers
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u32, u64
from core.gpu.compilation.ptx import load_float, prefetch
from core.gpu.control import read_photos
from core.gpu.ops.depthwise.strips import THREADS, find_columns, find_strip, make_row_loads, make_tap_loads
from core.gpu.parts.channels import ceiling, make_apply_norm, make_fold, make_load, make_store, make_unpack
from core.gpu.parts.vectors import clear

SIGNATURE: Final = KernelSignature((
    *pointers(x="input before its batch norm (N, height, width, C)", y="output before its batch norm (N, ho, wo, C)",
              g="gradient of the output of the batch norm after", weight="filters (C, 9)",
              dx="gradient of the output of the batch norm before, masked by its activation",
              before="float32 (7, C) of the batch norm before: rows 2 and 3 are scale and shift",
              after="of the batch norm after: rows 4 to 6 are a, b and c",
              partial="float32 (blocks, 9, C): partial weight gradients",
              sums="float32 (blocks, 2, C): partial sums of dx and of dx x"),
    CONTROL,
    STRIPS,
    *pitches(ldy="y", ldg="g", ldd="dx"),
))  # fmt: skip

CHANNELS: Final = 2
BLOCKS: Final = {2: 3, 4: 2}
"""Blocks per multiprocessor by bytes of an element."""
AHEAD: Final = 2
"""Rows of y, and twice as many of x, that the strided execution prefetches before those it loads."""


def make_upstream(element: int) -> Any:
    """Device function: the upstream gradient of one pixel, ``a g + b y + c`` (batch norm's), zero outside."""
    WORDS, unpack = element // 2, make_unpack(element, 2)

    @device_function
    def upstream(raw_g, raw_y, p, inside, factors, out):
        other = cuda.local.array(2, f32)
        unpack(raw_g, p * WORDS, out, 0)
        unpack(raw_y, p * WORDS, other, 0)
        for i in range(2):
            v = f32(f32(out[i] * factors[i]) + f32(f32(other[i] * factors[2 + i]) + factors[4 + i]))
            out[i] = v if (inside >> p) & 1 != 0 else f32(0.0)

    return upstream


def make_finish(element: int, norm: int) -> Any:
    """Device function: masks a pixel's gradient, stores it, and adds it to the sums for the batch norm before.

    `pixels` are the activated inputs (a sixth of them for ReLU6).
    """
    unpack, store = make_unpack(element, 2), make_store(element, 2)

    @device_function
    def finish(sums, at, pixels, e, raw, w, target, totals):
        x = cuda.local.array(2, f32)
        unpack(raw, w, x, 0)
        for i in range(2):
            g = sums[at + i]
            if norm > 0:
                g = g if pixels[e + i] > f32(0.0) and (norm == 1 or pixels[e + i] < f32(1.0)) else f32(0.0)
            sums[at + i] = g
            totals[i] = f32(totals[i] + g)
            totals[2 + i] = f32(totals[2 + i] + f32(g * x[i]))
        store(target, sums, at)

    return finish


@device_function
def apply_tap(d, taps, k, sums, o, pixels, weight_sums):
    """Add one pixel's gradient times tap `k` to the input's gradient, and times the input to the tap's gradient."""
    for i in range(2):
        sums[o + i] = f32(sums[o + i] + f32(d[i] * taps[k * 2 + i]))
        weight_sums[k * 2 + i] = f32(weight_sums[k * 2 + i] + f32(d[i] * pixels[o + i]))


def make_dense(element: int, norm: int) -> Any:
    """Device function for stride 1: rows of x from row0 to last."""
    W, load, unpack, apply_norm = element // 2, make_load(element // 2), make_unpack(element, 2), make_apply_norm(norm)
    upstream, finish, load_row = make_upstream(element), make_finish(element, norm), make_row_loads(W)
    RAWX, RAWY, RING = 2 * W, 4 * W, 6 * W

    @device_function
    def run_dense(images, pitches, column, row0, last, strips, constants, weight_sums, totals):
        x, y, g, dx = images
        px, py, pg, pd = pitches
        taps, scale, shift, factors = constants
        height, width, ho, wo = strips.height, strips.width, strips.ho, strips.wo
        at_x = cuda.local.array(2, i32)
        at_y = cuda.local.array(4, i32)
        at_g = cuda.local.array(4, i32)
        inside_x = find_columns(column, 2, width, px, at_x)
        inside = find_columns(column - 1, 4, wo, py, at_y)
        find_columns(column - 1, 4, wo, pg, at_g)
        raw_g = cuda.local.array(RAWY, u32)
        raw_y = cuda.local.array(RAWY, u32)
        coming = cuda.local.array(RAWX, u32)
        raws = cuda.local.array(RING, u32)
        sums = cuda.local.array(12, f32)
        pixels = cuda.local.array(12, f32)
        d = cuda.local.array(2, f32)
        for i in range(12):
            sums[i], pixels[i] = f32(0.0), f32(0.0)
        clear(raws)
        line_g, line_y, line_x = i64(wo * pg), i64(wo * py), i64(width * px)
        start = i64(max(i32(row0 - 1), i32(0)))
        load_row(g, start * line_g, at_g, 4, raw_g, 0)
        load_row(y, start * line_y, at_y, 4, raw_y, 0)
        load_row(x, i64(row0) * line_x, at_x, 2, coming, 0)
        target = u64(dx + u64(i64(row0) * i64(width * pd) + i64(column * pd)))
        for r in range(i32(row0 - 1), i32(last + 1)):  # row r of y contributes to rows r - 1, r and r + 1 of dx
            for i in range(8):
                sums[i], pixels[i] = sums[i + 4], pixels[i + 4]
            for i in range(2 * RAWX):
                raws[i] = raws[i + RAWX]
            for i in range(RAWX):
                raws[2 * RAWX + i] = coming[i]
            row = u64(x + u64(i64(min(i32(r + 2), i32(height - 1))) * line_x))
            for p in range(2):
                unpack(raws, 2 * RAWX + p * W, d, 0)
                load(u64(row + u64(i64(at_x[p]))), coming, p * W)
                for i in range(2):
                    real = (inside_x >> p) & 1 != 0 and r + 1 < last
                    pixels[8 + p * 2 + i] = apply_norm(d[i], scale[i], shift[i]) if real else f32(0.0)
                    sums[8 + p * 2 + i] = f32(0.0)
            next_row = i64(min(i32(r + 1), i32(ho - 1)))
            row_g, row_y = u64(g + u64(next_row * line_g)), u64(y + u64(next_row * line_y))
            bits = inside if r >= 0 and r < ho else i32(0)
            for p in range(4):  # each upstream gradient is computed once and used by all taps that reach it
                upstream(raw_g, raw_y, p, bits, factors, d)
                load(u64(row_g + u64(i64(at_g[p]))), raw_g, p * W)
                load(u64(row_y + u64(i64(at_y[p]))), raw_y, p * W)
                for q in range(2):
                    if q - p + 2 >= 0 and q - p + 2 < 3:
                        for k in range(3):
                            apply_tap(d, taps, k * 3 + q - p + 2, sums, k * 4 + q * 2, pixels, weight_sums)
            if r > row0:
                finish(sums, 0, pixels, 0, raws, 0, target, totals)
                if inside_x > 1:
                    finish(sums, 2, pixels, 2, raws, W, u64(target + u64(i64(pd))), totals)
                target = u64(target + u64(i64(width * pd)))

    return run_dense


@device_function
def add_above(p, d, taps, sums, pixels, weight_sums):
    """Taps that connect pixel p of the upper row of y with the 2 x 2 pixels of x: rows 1 and 2 of the filter."""
    for k in range(2):  # rows of x
        if p == 0:
            apply_tap(d, taps, k * 3 + 4, sums, k * 4, pixels, weight_sums)
            apply_tap(d, taps, k * 3 + 5, sums, k * 4 + 2, pixels, weight_sums)
        else:
            apply_tap(d, taps, k * 3 + 3, sums, k * 4 + 2, pixels, weight_sums)


@device_function
def add_below(p, d, taps, sums, pixels, weight_sums):
    """The same for the row of y below, which row 0 of the filter connects with the lower row of x."""
    if p == 0:
        apply_tap(d, taps, 1, sums, 4, pixels, weight_sums)
        apply_tap(d, taps, 2, sums, 6, pixels, weight_sums)
    else:
        apply_tap(d, taps, 0, sums, 6, pixels, weight_sums)


def make_strided(element: int, norm: int) -> Any:
    """Device function for stride 2: rows of y from row0 to last, two of x each; a tap serves one pixel of 2 x 2."""
    W, load, unpack, apply_norm = element // 2, make_load(element // 2), make_unpack(element, 2), make_apply_norm(norm)
    upstream, finish, load_row = make_upstream(element), make_finish(element, norm), make_row_loads(W)
    RAWX, RAWY = 4 * W, 2 * W

    @device_function
    def run_strided(images, pitches, column, row0, last, strips, constants, weight_sums, totals):
        x, y, g, dx = images
        px, py, pg, pd = pitches
        taps, scale, shift, factors = constants
        height, width, ho, wo = strips.height, strips.width, strips.ho, strips.wo
        at_x = cuda.local.array(2, i32)
        at_y = cuda.local.array(2, i32)
        at_g = cuda.local.array(2, i32)
        inside_x = find_columns(column, 2, width, px, at_x)
        inside = find_columns(column // 2, 2, wo, py, at_y)
        find_columns(column // 2, 2, wo, pg, at_g)
        raw_g = cuda.local.array(RAWY, u32)
        raw_y = cuda.local.array(RAWY, u32)
        raw_x = cuda.local.array(RAWX, u32)
        coming = cuda.local.array(RAWX, u32)
        sums = cuda.local.array(8, f32)
        pixels = cuda.local.array(8, f32)
        above = cuda.local.array(4, f32)
        below = cuda.local.array(4, f32)
        d = cuda.local.array(2, f32)
        line_g, line_y, line_x, line_d = i64(wo * pg), i64(wo * py), i64(width * px), i64(width * pd)
        load_row(g, i64(row0) * line_g, at_g, 2, raw_g, 0)
        load_row(y, i64(row0) * line_y, at_y, 2, raw_y, 0)
        for p in range(2):
            upstream(raw_g, raw_y, p, inside, factors, d)
            below[p * 2], below[p * 2 + 1] = d[0], d[1]
        next_row = i64(min(i32(row0 + 1), i32(ho - 1)))
        load_row(g, next_row * line_g, at_g, 2, raw_g, 0)
        load_row(y, next_row * line_y, at_y, 2, raw_y, 0)
        load_row(x, i64(row0 * 2) * line_x, at_x, 2, coming, 0)
        load_row(x, i64(min(i32(row0 * 2 + 1), i32(height - 1))) * line_x, at_x, 2, coming, 2)
        target = u64(dx + u64(i64(row0 * 2) * line_d + i64(column * pd)))
        for r in range(row0, last):  # rows r and r + 1 of y contribute to rows 2 r and 2 r + 1 of dx
            two_rows = 2 * r + 1 < height
            for i in range(RAWX):
                raw_x[i] = coming[i]
            for p in range(4):
                row = i64(min(i32(r * 2 + 2 + p // 2), i32(height - 1)))
                load(u64(x + u64(row * line_x + i64(at_x[p & 1]))), coming, p * W)
                row = i64(min(i32(r * 2 + 2 + 2 * AHEAD + p // 2), i32(height - 1)))
                prefetch(u64(x + u64(row * line_x + i64(at_x[p & 1]))))
                unpack(raw_x, p * W, d, 0)
                real = (inside_x >> (p & 1)) & 1 != 0 and (p < 2 or two_rows)
                for i in range(2):
                    pixels[p * 2 + i] = apply_norm(d[i], scale[i], shift[i]) if real else f32(0.0)
                    sums[p * 2 + i] = f32(0.0)
            next_row, ahead = i64(min(i32(r + 2), i32(ho - 1))), i64(min(i32(r + 2 + AHEAD), i32(ho - 1)))
            prefetch(u64(g + u64(ahead * line_g + i64(at_g[0]))))
            prefetch(u64(y + u64(ahead * line_y + i64(at_y[0]))))
            for p in range(2):
                above[p * 2], above[p * 2 + 1] = below[p * 2], below[p * 2 + 1]
                upstream(raw_g, raw_y, p, inside if r + 1 < ho else i32(0), factors, d)
                below[p * 2], below[p * 2 + 1] = d[0], d[1]
                load(u64(g + u64(next_row * line_g + i64(at_g[p]))), raw_g, p * W)
                load(u64(y + u64(next_row * line_y + i64(at_y[p]))), raw_y, p * W)
            for p in range(2):
                d[0], d[1] = above[p * 2], above[p * 2 + 1]
                add_above(p, d, taps, sums, pixels, weight_sums)
                d[0], d[1] = below[p * 2], below[p * 2 + 1]
                add_below(p, d, taps, sums, pixels, weight_sums)
            for k in range(2):
                if k == 0 or two_rows:
                    finish(sums, k * 4, pixels, k * 4, raw_x, k * 2 * W, target, totals)
                    if inside_x > 1:
                        beside = u64(target + u64(i64(pd)))
                        finish(sums, k * 4 + 2, pixels, k * 4 + 2, raw_x, (k * 2 + 1) * W, beside, totals)
                target = u64(target + u64(line_d))

    return run_strided


def make_constant_loads(element: int, six: float) -> Any:
    """Device function: taps, scale and shift, and the factors a, b, c into registers; sums start at zero."""
    load_taps, SIX = make_tap_loads(element, CHANNELS), six

    @device_function
    def load_constants(weight, before, after, c, channels, taps, scale, shift, factors, weight_sums, totals):
        load_taps(weight, c, taps)
        clear(weight_sums)
        for i in range(2):
            totals[i], totals[2 + i] = f32(0.0), f32(0.0)
            scale[i] = f32(load_float(u64(before + u64((i64(channels) * 2 + c + i) * 4))) * f32(1.0 / SIX))
            shift[i] = f32(load_float(u64(before + u64((i64(channels) * 3 + c + i) * 4))) * f32(1.0 / SIX))
            for k in range(3):
                factors[k * 2 + i] = load_float(u64(after + u64((i64(channels) * (4 + k) + c + i) * 4)))

    return load_constants


def make_depthwise_gradient(element: int, stride: int, norm: int) -> Any:
    """The kernel. `norm`: the input's activation after its batch norm (0, 1, 2)."""
    SIX, S, STORED = ceiling(norm), stride, THREADS * 2
    execute = (make_dense if stride == 1 else make_strided)(element, norm)
    load_constants, fold = make_constant_loads(element, SIX), make_fold(2)

    def depthwise_gradient(x, y, g, weight, dx, before, after, partial, sums, control, strips, ldy, ldg, ldd):
        shared = cuda.shared.array(STORED, f32)
        t, wide = i32(cuda.threadIdx.x), strips.wide
        ty = i32(t // wide)
        across = i32(i32(cuda.blockDim.x) // wide)
        c = i32((i32(cuda.blockIdx.y) * wide + t - ty * wide) * 2)
        channels = i32(strips.groups * 2)
        taps = cuda.local.array(18, f32)
        weight_sums = cuda.local.array(18, f32)
        scale = cuda.local.array(2, f32)
        shift = cuda.local.array(2, f32)
        factors = cuda.local.array(6, f32)
        totals = cuda.local.array(4, f32)
        load_constants(weight, before, after, c, channels, taps, scale, shift, factors, weight_sums, totals)
        images, height, width, ho, wo = read_photos(control), strips.height, strips.width, strips.ho, strips.wo
        rows = i32(height if S == 1 else (height + 1) // 2)
        px, py, pg, pd = i32(strips.ldx * element), i32(ldy * element), i32(ldg * element), i32(ldd * element)
        for item in range(i32(i32(cuda.blockIdx.x) * across + ty), strips.items, i32(i32(cuda.gridDim.x) * across)):
            n, column, row0, last = find_strip(item, strips, rows)
            if n < images:
                sides = (
                    u64(x + u64(i64(i32(n * height)) * i64(width * px) + i64(c * element))),
                    u64(y + u64(i64(i32(n * ho)) * i64(wo * py) + i64(c * element))),
                    u64(g + u64(i64(i32(n * ho)) * i64(wo * pg) + i64(c * element))),
                    u64(dx + u64(i64(i32(n * height)) * i64(width * pd) + i64(c * element))),
                )
                execute(sides, (px, py, pg, pd), column, row0, last, strips, (taps, scale, shift, factors),
                        weight_sums, totals)
        place = i64(i64(i32(cuda.blockIdx.y)) * wide * 2)  # the block's first channel
        block, count = (t, wide * across, wide, across), wide * 2
        for k in range(9):
            for i in range(2):  # the inputs were a sixth of their value for ReLU6
                weight_sums[k * 2 + i] = f32(weight_sums[k * 2 + i] * f32(SIX))
            at = i64((i64(i32(cuda.blockIdx.x)) * 9 + k) * channels + place)
            fold(shared, weight_sums, k * 2, block, count, u64(partial + u64(at * 4)))
        for k in range(2):
            at = i64((i64(i32(cuda.blockIdx.x)) * 2 + k) * channels + place)
            fold(shared, totals, k * 2, block, count, u64(sums + u64(at * 4)))

    return depthwise_gradient
