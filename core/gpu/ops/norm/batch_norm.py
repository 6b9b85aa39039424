"""Batch norm: sums over pixels in two stages of fixed order, then one pass over the activations.

    sums    blocks of 256 threads; a thread sums one vector (16 bytes of channels) over every `rows`-th pixel of the
            block's share; the rows are added in shared memory                   -> partial (blocks, 2, channels)
    finish  8 channels x 64 threads add the partial sums in float64              -> saved (7, channels)
            synchronized: `rank_sums` adds them, NCCL averages over ranks, `finish` reads that mean
    apply   forward y = x scale + shift, backward dx = a dy + b x + c, 8 pixels per thread

Bytes: forward x twice and y once, backward dy and x twice and dx once; once less where a convolution computes the sums
while it writes x or dy. Images that only fill the batch count nowhere. Source: S. Ioffe and C. Szegedy, "Batch
normalization", 2015.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.arguments import CONTROL, MASK, MASKING, Group, KernelSignature, arguments, ints, pitches, pointers
from core.gpu.compilation.cuda import cuda, device_function, f32, f64, i32, i64, u32, u64
from core.gpu.compilation.ptx import bits_to_float, load1, load4_ordered, load_float, store_float
from core.gpu.control import make_reader, read_photos
from core.gpu.launch import THREADS
from core.gpu.parts.channels import make_fold, make_load, make_unpack
from core.gpu.parts.vectors import PACK, activate, clear, make_deliver

SAVED: Final = 7
"""float32 numbers that a batch norm saves per channel (`make_finish`)."""
AHEAD: Final = 4
"""Pixels that a thread loads before it adds the first, to hide the latency."""

read_rank_photos: Final = make_reader("rank_photos")
read_counted: Final = make_reader("counted")

_SIDES: Final = pointers(x="input of the batch norm (pixels, C)", dy="gradient of its output (pixels, C); 0 forward")
_SAVED: Final = pointers(saved="float32 (SAVED, padded C), see `make_finish`")
_SHARE: Final = Group("share", (
    *ints(hw="pixels per image", pixels="pixels in all", split="pixels per block",
          vectors="vectors (16 bytes) per pixel", wide="vectors per pixel of a block"),
    *pitches(ldx="x", ldy="dy"),
))  # fmt: skip

SUMS: Final = KernelSignature((*_SIDES, *pointers(partial="float32 (blocks, 2, padded C)"), CONTROL, _SHARE))


def make_sums(element: int, gradient: bool) -> Any:
    """Partial sums ``(blocks, 2, channels)``: of x and x^2, or of dy and dy x."""
    VEC = 16 // element
    load, unpack, fold = make_load(4), make_unpack(element, VEC), make_fold(VEC)
    STORED, RAW, TWO = THREADS * VEC, AHEAD * 4, 2 * VEC

    def sums(x, dy, partial, control, share):
        shared = cuda.shared.array(STORED, f32)
        t, vectors, wide = i32(cuda.threadIdx.x), share.vectors, share.wide
        rows = i32(256 // wide)
        ty = i32(t // wide)
        first = i32(i32(cuda.blockIdx.y) * wide)  # vector of the block
        vector = i32(first + t - ty * wide)
        start = i32(i32(cuda.blockIdx.x) * share.split)
        end = i32(min(i32(start + share.split), i32(read_photos(control) * share.hw)))
        active = vector < vectors and ty < rows
        totals = cuda.local.array(TWO, f32)
        value = cuda.local.array(VEC, f32)
        other = cuda.local.array(VEC, f32)
        raw = cuda.local.array(RAW, u32)
        raw2 = cuda.local.array(RAW, u32)
        clear(totals)
        if active:
            for row in range(i32(start + ty), end, rows * AHEAD):
                for w in range(AHEAD):
                    here = i32(row + w * rows)
                    load(u64(x + u64((i64(here) * share.ldx + vector * VEC) * element)) if here < end else x, raw,
                         w * 4)  # fmt: skip
                    if gradient:
                        at = u64(dy + u64((i64(here) * share.ldy + vector * VEC) * element))
                        load(at if here < end else dy, raw2, w * 4)
                for w in range(AHEAD):
                    if row + w * rows < end:
                        unpack(raw, w * 4, value, 0)
                        if gradient:
                            unpack(raw2, w * 4, other, 0)
                        for i in range(VEC):
                            v = other[i] if gradient else value[i]
                            totals[i] = f32(totals[i] + v)
                            totals[VEC + i] = f32(totals[VEC + i] + v * value[i])
        block, count = (t, i32(THREADS), wide, rows), i32(i32(min(wide, i32(vectors - first))) * VEC)
        for k in range(2):
            at = i64((i64(i64(i32(cuda.blockIdx.x)) * 2 + k) * vectors + first) * VEC)
            fold(shared, totals, k * VEC, block, count, u64(partial + u64(at * 4)))

    return sums


FINISH: Final = KernelSignature((
    *pointers(partial="float32 (blocks, 2, row)", weight="float32 (channels,)",
              bias="float32 (channels,); not read backward", running_mean="float32 (channels,); not read backward",
              running_var="float32 (channels,); not read backward"),
    *_SAVED,
    *pointers(**dict.fromkeys(("dweight", "dbias"), "float32 (channels,); not written forward")),
    CONTROL,
    *ints(blocks="partial sums", channels="C", row="padded C", hw="pixels of an image",
          accumulate="1 adds to the gradients"),
    *arguments("float32", epsilon="of the variance", momentum="of the running statistics"),
))  # fmt: skip

FINISH_BLOCK: Final = (8, 64)
"""Channels x rows of threads; many rows, because thousands of partial sums are added."""


@device_function
def add_partials(partial, blocks, row):
    """(sums, thread, row of threads, channel): the block's sums ``sums[:, 0, thread]`` of both kinds, added in float64
    in a fixed order."""
    shared = cuda.shared.array((2, 64, 8), f64)
    tx, ty = i32(cuda.threadIdx.x), i32(cuda.threadIdx.y)
    c = i32(i32(cuda.blockIdx.x) * 8 + tx)
    first, second = f64(0.0), f64(0.0)
    if c < row:
        for b in range(ty, blocks, 256):
            for way in range(4):
                here = i32(b + way * 64)
                at = u64(partial + u64((i64(here if here < blocks else ty) * 2 * row + c) * 4))
                v, w = bits_to_float(load1(at)), bits_to_float(load1(u64(at + u64(i64(row) * 4))))
                if here < blocks:
                    first, second = first + f64(v), second + f64(w)
    shared[0, ty, tx], shared[1, ty, tx] = first, second
    step = i32(32)
    while step > 0:
        cuda.syncthreads()
        if ty < step:
            shared[0, ty, tx] = shared[0, ty, tx] + shared[0, i32(ty + step), tx]
            shared[1, ty, tx] = shared[1, ty, tx] + shared[1, i32(ty + step), tx]
        step = i32(step // 2)
    return shared, tx, ty, c


RANK_SUMS: Final = KernelSignature((
    *pointers(partial="float32 (blocks, 2, row)", sums="float32 (2, row), which the mean over ranks replaces"),
    CONTROL,
    *ints(blocks="partial sums", row="padded C"),
))  # fmt: skip


def rank_sums(partial, sums, control, blocks, row):
    """Sums of this rank's images; zero where it has none and computes one that does not count."""
    shared, tx, ty, c = add_partials(partial, blocks, row)
    if ty == 0 and c < row:
        counted, at = f64(read_counted(control)), u64(sums + u64(i64(c) * 4))
        store_float(at, f32(shared[0, 0, tx] * counted))
        store_float(u64(at + u64(i64(row) * 4)), f32(shared[1, 0, tx] * counted))


def make_finish(gradient: bool, ranks: int) -> Any:
    """Adds the partial sums in float64 and writes the factors of each channel for `apply`.

    Rows of `saved`: mean, inverse, scale and shift (forward: ``y = x scale + shift``), and a, b, c (backward:
    ``dx = a dy + b x + c``, which is ``w inverse (dy - mean(dy) - normalised x mean(dy normalised x))``). The sums of
    several ranks are the mean of theirs (`rank_sums`), as the gradients of weight and bias will be.
    """

    def finish(
        partial, weight, bias, running_mean, running_var, saved, dweight, dbias, control,
        blocks, channels, row, hw, accumulate, epsilon, momentum,
    ):
        shared, tx, ty, c = add_partials(partial, blocks, row)
        if ty == 0 and c < row:
            first, second = shared[0, 0, tx], shared[1, 0, tx]
            count = f64(read_photos(control) if ranks == 1 else read_rank_photos(control)) * f64(hw)
            mine = u64(saved + u64(i64(c) * 4))
            line = u64(i64(row) * 4)
            real = c < channels
            at = u64(i64(c) * 4)
            w = load_float(u64(weight + at)) if real else f32(0.0)
            if gradient:
                mean, inverse = f64(load_float(mine)), f64(load_float(u64(mine + line)))
                second = inverse * (second - mean * first)
                factor = f64(w) * inverse
                inside = factor if ranks == 1 else factor * f64(read_counted(control))
                scale = -inside * inverse * second / count
                store_float(u64(mine + line * u64(4)), f32(factor))
                store_float(u64(mine + line * u64(5)), f32(scale))
                store_float(u64(mine + line * u64(6)), f32(-inside * first / count - scale * mean))
                if real:
                    before_w = load_float(u64(dweight + at)) if accumulate != 0 else f32(0.0)
                    before_b = load_float(u64(dbias + at)) if accumulate != 0 else f32(0.0)
                    store_float(u64(dweight + at), f32(before_w + f32(second)))
                    store_float(u64(dbias + at), f32(before_b + f32(first)))
            else:
                mean = first / count
                variance = max(second / count - mean * mean, f64(0.0))
                inverse = f32(f64(1.0) / cuda.libdevice.sqrt(variance + f64(epsilon)))
                shift = load_float(u64(bias + at)) if real else f32(0.0)
                scale = f32(inverse * w)
                store_float(mine, f32(mean))
                store_float(u64(mine + line), inverse)
                store_float(u64(mine + line * u64(2)), scale)
                store_float(u64(mine + line * u64(3)), f32(f64(shift) - mean * f64(scale)))
                if real:
                    old = f64(load_float(u64(running_mean + at)))
                    store_float(u64(running_mean + at), f32(old + f64(momentum) * (mean - old)))
                    old = f64(load_float(u64(running_var + at)))
                    total = count * f64(ranks)
                    new = variance * total / max(total - f64(1.0), f64(1.0))
                    store_float(u64(running_var + at), f32(old + f64(momentum) * (new - old)))

    return finish


FIX: Final = KernelSignature((
    *pointers(**dict.fromkeys(("weight", "bias", "mean", "variance"), "float32 (channels,)")),
    *_SAVED,
    *ints(channels="C", row="padded C"),
    *arguments("float32", epsilon="of the variance"),
))  # fmt: skip


def fix(weight, bias, mean, variance, saved, channels, row, epsilon):
    """Scale and shift from the running statistics; the gradient's factor is the scale, its means are zero."""
    c = i32(cuda.grid(1))
    if c >= channels:
        return
    at, step = u64(i64(c) * 4), u64(i64(row) * 4)
    inverse = f32(f32(1.0) / cuda.libdevice.sqrtf(f32(load_float(u64(variance + at)) + epsilon)))
    scale = f32(inverse * load_float(u64(weight + at)))
    middle = load_float(u64(mean + at))
    mine = u64(saved + at)
    store_float(mine, middle)
    store_float(u64(mine + step), inverse)
    store_float(u64(mine + step * u64(2)), scale)
    store_float(u64(mine + step * u64(3)), f32(load_float(u64(bias + at)) - middle * scale))


APPLY: Final = KernelSignature((
    *_SIDES,
    MASK,
    *pointers(out="output, or gradient of x (pixels, C)"),
    *_SAVED, CONTROL, _SHARE,
    *pitches(ldm="`mask`", ldo="out"),
    *ints(activation="applied to the output (`core.gpu.launch.RELU`)"),
    *MASKING,
))  # fmt: skip

APPLIED: Final = 8
"""Pixels per thread of `apply`, which loads the factors of its channels once."""


def make_apply(element: int, gradient: bool, centred: bool) -> Any:
    """Forward ``activation(x scale + shift)``; backward ``a dy + b x + c``, ``scale dy`` if frozen."""
    pack, deliver, VEC = PACK[element], make_deliver(element), 16 // element
    load, unpack, LOADS = make_load(4), make_unpack(element, VEC), 2 if gradient else 4
    RAW = LOADS * 4
    READS_X = centred or not gradient
    FIRST = 4 if gradient and centred else 2  # row of `saved`

    @device_function
    def compute(raw, raw2, at, first, second, third, activation):
        """16 bytes of the result."""
        x = cuda.local.array(VEC, f32)
        y = cuda.local.array(VEC, f32)
        if READS_X:
            unpack(raw, at, x, 0)
        if gradient:
            unpack(raw2, at, y, 0)
        for i in range(VEC):
            if gradient and centred:
                x[i] = f32(f32(y[i] * first[i]) + f32(f32(x[i] * second[i]) + third[i]))
            elif gradient:
                x[i] = f32(y[i] * first[i])
            else:
                x[i] = activate(f32(f32(x[i] * first[i]) + second[i]), activation)
        return pack(x)

    def apply(x, dy, mask, out, saved, control, share, ldm, ldo, activation, masking, accumulate):
        t, vectors, wide = i32(cuda.threadIdx.x), share.vectors, share.wide
        rows = i32(256 // wide)
        ty = i32(t // wide)
        vector = i32(i32(cuda.blockIdx.y) * wide + t - ty * wide)
        if vector >= vectors or ty >= rows:
            return
        start = i32(i32(cuda.blockIdx.x) * share.split)
        end, real = i32(min(i32(start + share.split), share.pixels)), i32(read_photos(control) * share.hw)
        first = cuda.local.array(VEC, f32)
        second = cuda.local.array(VEC, f32)
        third = cuda.local.array(VEC, f32)
        for i in range(VEC):
            at = u64(saved + u64((i64(vectors) * (FIRST * VEC) + vector * VEC + i) * 4))
            first[i] = load_float(at)
            second[i] = load_float(u64(at + u64(i64(vectors) * (VEC * 4)))) if READS_X else f32(0.0)
            third[i] = load_float(u64(at + u64(i64(vectors) * (VEC * 8)))) if FIRST == 4 else f32(0.0)
        raw = cuda.local.array(RAW, u32)
        raw2 = cuda.local.array(RAW, u32)
        for row in range(i32(start + ty), end, rows * LOADS):
            for w in range(LOADS):
                here = i64(min(i32(row + w * rows), i32(end - 1)))
                if READS_X:
                    load(u64(x + u64((here * share.ldx + vector * VEC) * element)), raw, w * 4)
                if gradient:
                    v = load4_ordered(u64(dy + u64((here * share.ldy + vector * VEC) * element)))
                    for i in range(4):
                        raw2[w * 4 + i] = v[i]
            for w in range(LOADS):
                here = i32(row + w * rows)
                if here < end:
                    v = compute(raw, raw2, w * 4, first, second, third, activation)
                    if gradient and here >= real:
                        v = u32(0), u32(0), u32(0), u32(0)
                    deliver(v, mask, out, i64(here), vector, ldm, ldo, masking, accumulate)

    return apply
