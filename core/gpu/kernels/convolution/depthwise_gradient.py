"""Both gradients of a depthwise 3x3 between two batch norms, in one pass.

A thread walks down two columns of two channels. For a pixel of the input it has the same nine gradients in its
registers for the gradient of the input (times the taps) and of the filters (times the pixel). The gradient behind is
the batch norm's, ``a g + b y + c`` of what came from the next layer and of the convolution's own output; the input is
``activation(x scale + shift)``. Neither is ever stored. The gradient of that input, masked by its activation, is
written with the sums that the batch norm before wants.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import load1, load_float, prefetch
from core.gpu.kernels.parts.channels import make_fold, make_load, make_squash, make_store, make_unpack
from core.gpu.kernels.parts.fragments import divide

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

ARGUMENTS: Final = (
    *(types.uint64,) * 5,  # x (input before its batch norm), y (output before its own), g, filters (9, channels), dx
    *(types.uint64,) * 2,  # saved rows of the batch norm before and behind
    *(types.uint64,) * 3,  # partial filter gradients (blocks, 9, channels), partial sums (blocks, 2, ch.), control
    *(types.int32,) * 3,  # lanes (of two channels) a pixel, lanes a block, items: photos x strips x pairs
    *(types.int32,) * 3,  # pairs of columns of x, strips, rows of x (stride 1) or of y (stride 2) a strip
    *(types.uint32,) * 4,  # fast division by pairs and by strips
    *(types.int32,) * 4,  # height, width of x, of y
    *(types.int32,) * 4,  # pixel pitch of x, y, g, dx
)

CHANNELS: Final = 2
THREADS: Final = 128
AHEAD: Final = 2
"""Rows of y, and twice as many of x, that a strided walk asks for before those it loads (features.2 of MobileNetV2:
576 us against 732; where the stride is 1 it gains nothing)."""
BLOCKS: Final = {2: 3, 4: 2}
"""Blocks a multiprocessor by bytes of an element."""


def make_depthwise_gradient(element: int, stride: int, norm: int) -> Any:
    """Grid: (blocks, parts of the channels). `norm`: the input's activation behind its batch norm (0, 1, 2)."""
    W, SIX, S, STORED = element // 2, 6.0 if norm == 2 else 1.0, stride, THREADS * 2
    NY = 4 if stride == 1 else 2
    RAWX, RAWY, RING = 2 * stride * W, NY * W, 6 * W
    load, unpack, store = make_load(W), make_unpack(element, 2), make_store(element, 2)
    squash, fold = make_squash(norm), make_fold(2)

    @device_function
    def behind(raw_g, raw_y, p, inside, factors, out):
        """The gradient of one pixel of the output, zero outside."""
        other = cuda.local.array(2, dtype=types.float32)
        unpack(raw_g, p * W, out, 0)
        unpack(raw_y, p * W, other, 0)
        for i in range(2):
            v = f32(f32(out[i] * factors[i]) + f32(f32(other[i] * factors[2 + i]) + factors[4 + i]))
            out[i] = v if (inside >> p) & 1 != 0 else f32(0.0)

    @device_function
    def finish(sums, at, pixels, e, raw, w, target, totals):
        """Mask a pixel's gradient, write it and add it to the sums; `pixels` are the activated inputs over SIX."""
        x = cuda.local.array(2, dtype=types.float32)
        unpack(raw, w, x, 0)
        for i in range(2):
            g = sums[at + i]
            if norm > 0:
                g = g if pixels[e + i] > f32(0.0) and (norm == 1 or pixels[e + i] < f32(1.0)) else f32(0.0)
            sums[at + i] = g
            totals[i] = f32(totals[i] + g)
            totals[2 + i] = f32(totals[2 + i] + f32(g * x[i]))
        store(target, sums, at)

    @device_function
    def use(d, taps, k, sums, o, pixels, slopes):
        """One pixel's gradient times tap `k`: onto the input's gradient and onto the tap's."""
        for i in range(2):
            sums[o + i] = f32(sums[o + i] + f32(d[i] * taps[k * 2 + i]))
            slopes[k * 2 + i] = f32(slopes[k * 2 + i] + f32(d[i] * pixels[o + i]))

    @device_function
    def columns_of(first, count, width, pitch, places):
        """Byte offsets of neighbouring columns, kept inside the photo, and which of them are inside, as bits."""
        inside = i32(0)
        for p in range(count):
            z = i32(first + p)
            inside = i32(inside | (i32(1 << p) if z >= 0 and z < width else i32(0)))
            places[p] = i32(min(max(z, i32(0)), i32(width - 1)) * pitch)
        return inside

    @device_function
    def take(photo, line, places, count, raw, at):
        """Neighbouring pixels of a line of the photo."""
        for p in range(count):
            load(u64(photo + u64(line + i64(places[p]))), raw, (at + p) * W)

    @device_function
    def walk_dense(
        x, y, g, dx, column, row0, last, height, width, ho, wo, px, py, pg, pd, taps, scale, shift, factors, slopes,
        totals,
    ):
        """Stride 1: rows of x from row0 to last; x, y, g, dx point at this thread's channels of the photo."""
        at_x = cuda.local.array(2, dtype=types.int32)
        at_y = cuda.local.array(4, dtype=types.int32)
        at_g = cuda.local.array(4, dtype=types.int32)
        inside_x = columns_of(column, 2, width, px, at_x)
        inside = columns_of(column - 1, 4, wo, py, at_y)
        columns_of(column - 1, 4, wo, pg, at_g)
        raw_g = cuda.local.array(RAWY, dtype=types.uint32)
        raw_y = cuda.local.array(RAWY, dtype=types.uint32)
        coming = cuda.local.array(RAWX, dtype=types.uint32)
        raws = cuda.local.array(RING, dtype=types.uint32)
        sums = cuda.local.array(12, dtype=types.float32)
        pixels = cuda.local.array(12, dtype=types.float32)
        d = cuda.local.array(2, dtype=types.float32)
        for i in range(12):
            sums[i], pixels[i] = f32(0.0), f32(0.0)
        for i in range(RING):
            raws[i] = u32(0)
        line_g, line_y, line_x = i64(wo * pg), i64(wo * py), i64(width * px)
        start = i64(max(i32(row0 - 1), i32(0)))
        take(g, start * line_g, at_g, 4, raw_g, 0)
        take(y, start * line_y, at_y, 4, raw_y, 0)
        take(x, i64(row0) * line_x, at_x, 2, coming, 0)
        target = u64(dx + u64(i64(row0) * i64(width * pd) + i64(column * pd)))
        for r in range(i32(row0 - 1), i32(last + 1)):
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
                    pixels[8 + p * 2 + i] = squash(d[i], scale[i], shift[i]) if real else f32(0.0)
                    sums[8 + p * 2 + i] = f32(0.0)
            next_row = i64(min(i32(r + 1), i32(ho - 1)))
            row_g, row_y = u64(g + u64(next_row * line_g)), u64(y + u64(next_row * line_y))
            bits = inside if r >= 0 and r < ho else i32(0)
            for p in range(4):
                behind(raw_g, raw_y, p, bits, factors, d)
                load(u64(row_g + u64(i64(at_g[p]))), raw_g, p * W)
                load(u64(row_y + u64(i64(at_y[p]))), raw_y, p * W)
                for q in range(2):
                    if q - p + 2 >= 0 and q - p + 2 < 3:
                        for k in range(3):
                            use(d, taps, k * 3 + q - p + 2, sums, k * 4 + q * 2, pixels, slopes)
            if r > row0:
                finish(sums, 0, pixels, 0, raws, 0, target, totals)
                if inside_x > 1:
                    finish(sums, 2, pixels, 2, raws, W, u64(target + u64(i64(pd))), totals)
                target = u64(target + u64(i64(width * pd)))

    @device_function
    def walk_strided(
        x, y, g, dx, column, row0, last, height, width, ho, wo, px, py, pg, pd, taps, scale, shift, factors, slopes,
        totals,
    ):
        """Stride 2: rows of y from row0 to last, each with two of x; a tap serves one pixel of 2 x 2."""
        at_x = cuda.local.array(2, dtype=types.int32)
        at_y = cuda.local.array(2, dtype=types.int32)
        at_g = cuda.local.array(2, dtype=types.int32)
        inside_x = columns_of(column, 2, width, px, at_x)
        inside = columns_of(column // 2, 2, wo, py, at_y)
        columns_of(column // 2, 2, wo, pg, at_g)
        raw_g = cuda.local.array(RAWY, dtype=types.uint32)
        raw_y = cuda.local.array(RAWY, dtype=types.uint32)
        raw_x = cuda.local.array(RAWX, dtype=types.uint32)
        coming = cuda.local.array(RAWX, dtype=types.uint32)
        sums = cuda.local.array(8, dtype=types.float32)
        pixels = cuda.local.array(8, dtype=types.float32)
        above = cuda.local.array(4, dtype=types.float32)
        below = cuda.local.array(4, dtype=types.float32)
        d = cuda.local.array(2, dtype=types.float32)
        line_g, line_y, line_x, line_d = i64(wo * pg), i64(wo * py), i64(width * px), i64(width * pd)
        take(g, i64(row0) * line_g, at_g, 2, raw_g, 0)
        take(y, i64(row0) * line_y, at_y, 2, raw_y, 0)
        for p in range(2):
            behind(raw_g, raw_y, p, inside, factors, d)
            below[p * 2], below[p * 2 + 1] = d[0], d[1]
        next_row = i64(min(i32(row0 + 1), i32(ho - 1)))
        take(g, next_row * line_g, at_g, 2, raw_g, 0)
        take(y, next_row * line_y, at_y, 2, raw_y, 0)
        take(x, i64(row0 * 2) * line_x, at_x, 2, coming, 0)
        take(x, i64(min(i32(row0 * 2 + 1), i32(height - 1))) * line_x, at_x, 2, coming, 2)
        target = u64(dx + u64(i64(row0 * 2) * line_d + i64(column * pd)))
        for r in range(row0, last):
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
                    pixels[p * 2 + i] = squash(d[i], scale[i], shift[i]) if real else f32(0.0)
                    sums[p * 2 + i] = f32(0.0)
            next_row, ahead = i64(min(i32(r + 2), i32(ho - 1))), i64(min(i32(r + 2 + AHEAD), i32(ho - 1)))
            prefetch(u64(g + u64(ahead * line_g + i64(at_g[0]))))
            prefetch(u64(y + u64(ahead * line_y + i64(at_y[0]))))
            for p in range(2):
                above[p * 2], above[p * 2 + 1] = below[p * 2], below[p * 2 + 1]
                behind(raw_g, raw_y, p, inside if r + 1 < ho else i32(0), factors, d)
                below[p * 2], below[p * 2 + 1] = d[0], d[1]
                load(u64(g + u64(next_row * line_g + i64(at_g[p]))), raw_g, p * W)
                load(u64(y + u64(next_row * line_y + i64(at_y[p]))), raw_y, p * W)
            for p in range(2):
                d[0], d[1] = above[p * 2], above[p * 2 + 1]
                for k in range(2):  # rows of x: taps of row 1 and 2
                    if p == 0:
                        use(d, taps, k * 3 + 4, sums, k * 4, pixels, slopes)
                        use(d, taps, k * 3 + 5, sums, k * 4 + 2, pixels, slopes)
                    else:
                        use(d, taps, k * 3 + 3, sums, k * 4 + 2, pixels, slopes)
                d[0], d[1] = below[p * 2], below[p * 2 + 1]
                if p == 0:
                    use(d, taps, 1, sums, 4, pixels, slopes)
                    use(d, taps, 2, sums, 6, pixels, slopes)
                else:
                    use(d, taps, 0, sums, 6, pixels, slopes)
            for k in range(2):
                if k == 0 or two_rows:
                    finish(sums, k * 4, pixels, k * 4, raw_x, k * 2 * W, target, totals)
                    if inside_x > 1:
                        beside = u64(target + u64(i64(pd)))
                        finish(sums, k * 4 + 2, pixels, k * 4 + 2, raw_x, (k * 2 + 1) * W, beside, totals)
                target = u64(target + u64(line_d))

    walk = walk_dense if stride == 1 else walk_strided

    def depthwise_gradient(
        x, y, g, weight, dx, before, after, slopes_out, sums_out, control, lanes, wide, items, pairs, strips, tall,
        p_mul, p_shift, s_mul, s_shift, height, width, ho, wo, ldx, ldy, ldg, ldd,
    ):
        shared = cuda.shared.array(STORED, dtype=types.float32)
        t = i32(cuda.threadIdx.x)
        ty = i32(t // wide)
        across = i32(i32(cuda.blockDim.x) // wide)
        c = i32((i32(cuda.blockIdx.y) * wide + t - ty * wide) * 2)
        channels = i32(lanes * 2)
        taps = cuda.local.array(18, dtype=types.float32)
        slopes = cuda.local.array(18, dtype=types.float32)
        scale = cuda.local.array(2, dtype=types.float32)
        shift = cuda.local.array(2, dtype=types.float32)
        factors = cuda.local.array(6, dtype=types.float32)
        totals = cuda.local.array(4, dtype=types.float32)
        words = cuda.local.array(2, dtype=types.uint32)
        for k in range(9):
            load(u64(weight + u64((i64(k) * channels + c) * element)), words, 0)
            unpack(words, 0, taps, k * 2)
        for i in range(18):
            slopes[i] = f32(0.0)
        for i in range(2):
            totals[i], totals[2 + i] = f32(0.0), f32(0.0)
            scale[i] = f32(load_float(u64(before + u64((i64(channels) * 2 + c + i) * 4))) * f32(1.0 / SIX))
            shift[i] = f32(load_float(u64(before + u64((i64(channels) * 3 + c + i) * 4))) * f32(1.0 / SIX))
            for k in range(3):
                factors[k * 2 + i] = load_float(u64(after + u64((i64(channels) * (4 + k) + c + i) * 4)))
        photos, rows = i32(load1(control)), i32(height if S == 1 else (height + 1) // 2)
        for item in range(i32(i32(cuda.blockIdx.x) * across + ty), items, i32(i32(cuda.gridDim.x) * across)):
            strip = i32(divide(item, p_mul, p_shift))
            n = i32(divide(strip, s_mul, s_shift))
            column, row0 = i32((item - strip * pairs) * 2), i32((strip - n * strips) * tall)
            last = i32(min(i32(row0 + tall), rows))
            if n < photos:
                walk(
                    u64(x + u64(i64(i32(n * height)) * i64(width * ldx * element) + i64(c * element))),
                    u64(y + u64(i64(i32(n * ho)) * i64(wo * ldy * element) + i64(c * element))),
                    u64(g + u64(i64(i32(n * ho)) * i64(wo * ldg * element) + i64(c * element))),
                    u64(dx + u64(i64(i32(n * height)) * i64(width * ldd * element) + i64(c * element))),
                    column, row0, last, height, width, ho, wo, i32(ldx * element), i32(ldy * element),
                    i32(ldg * element), i32(ldd * element), taps, scale, shift, factors, slopes, totals,
                )
        place = i64(i64(i32(cuda.blockIdx.y)) * wide * 2)
        for k in range(9):
            for i in range(2):
                slopes[k * 2 + i] = f32(slopes[k * 2 + i] * f32(SIX))
            at = i64((i64(i32(cuda.blockIdx.x)) * 9 + k) * channels + place)
            fold(shared, slopes, k * 2, t, wide, across, u64(slopes_out + u64(at * 4)))
        for k in range(2):
            at = i64((i64(i32(cuda.blockIdx.x)) * 2 + k) * channels + place)
            fold(shared, totals, k * 2, t, wide, across, u64(sums_out + u64(at * 4)))

    return depthwise_gradient
