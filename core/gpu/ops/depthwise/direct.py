"""Depthwise convolution and average pool of any window: one thread per 16-byte vector of channels of a pixel.

Forward and input gradient: a thread reads its window of the other side, tap by tap (in a window of the gradient only
the taps whose output position exists). The taps of an average are one over the number of its window's pixels that count
(`core.ops.pooling`). The weight gradient is summed in parts, in a fixed order:

    grid: (vectors / wide, rows of the window / those of a block, splits of the runs)
    block: up to 256 threads = rows of `wide` vectors; a row takes every run of the split whose number is its own,
           modulo the rows. A run is some neighbouring pixels of dy, whose windows share their columns of x
    registers: sums of all taps if they are few, else of one row, and of the bias; dy of a run
    shared memory: one float32 vector per thread, added by row

Bytes: forward reads x taps times, all but once from the L1 and L2 caches; floor: x and out once.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.arguments import MASKING, PADDING, PIXELS, SIDES, KernelSignature, ints, pitches, pointers
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u32, u64
from core.gpu.compilation.ptx import load4, load_float
from core.gpu.launch import THREADS
from core.gpu.parts.channels import make_fold
from core.gpu.parts.vectors import PACK, UNPACK, activate, clear, divide, find_pixel, make_deliver, make_take

SIGNATURE: Final = KernelSignature((
    *pointers(x="activations (N, height, width, C); for the gradient dy",
              weight="packed filters (taps, C); not read for an average", bias="float32 (C), or 0",
              mask="output of the producer's activation, or 0", out="activations (N, ho, wo, C); for the gradient dx"),
    PIXELS, SIDES,
    *pitches(ldm="mask"),
    *PADDING,
    *ints(bottom="padding below", right="padding on the right", activation="of out (`core.gpu.launch.RELU`)"),
    *MASKING,
))  # fmt: skip

WEIGHT_SIGNATURE: Final = KernelSignature((
    *pointers(x="activations (N, height, width, C)", dy="gradient of out (N, ho, wo, C)",
              partial="float32 (splits, taps + 1, C); the last row is the bias gradient"),
    PIXELS,
    *ints(split="runs per split", wide="vectors of a pixel per block"),
    SIDES,
    *PADDING,
))  # fmt: skip

FILTERS, MEAN, PADDED_MEAN = "filters", "mean", "padded mean"
"""Kinds of `make_depthwise`: a convolution, and averages over the pixels of the image, or of image and padding."""


def make_share(shape: tuple[int, int, int, int], padded: bool) -> Any:
    """Device function: one over the number of pixels that count in the window of output (oy, ox)."""
    KH, KW, SY, SX = shape

    @device_function
    def share(oy, ox, height, width, padding):
        top, left, bottom, right = padding
        y, x = i32(oy * SY - top), i32(ox * SX - left)
        if padded:
            rows, columns = i32(min(y + KH, height + bottom) - y), i32(min(x + KW, width + right) - x)
        else:
            rows, columns = i32(min(y + KH, height) - max(y, 0)), i32(min(x + KW, width) - max(x, 0))
        return f32(f32(1.0) / f32(rows * columns))

    return share


def make_depthwise(element: int, gradient: bool, shape: tuple[int, int, int, int], kind: str) -> Any:
    """Forward, or the gradient of the input: both read a window of the other side. `shape`: kernel, stride."""
    unpack, pack, VEC = UNPACK[element], PACK[element], 16 // element
    take, deliver = make_take(element), make_deliver(element)
    (KH, KW, SY, SX), AVERAGE, share = shape, kind != FILTERS, make_share(shape, kind == PADDED_MEAN)

    def depthwise(
        x, weight, bias, mask, out, pixels, sides, ldm, top, left, bottom, right, activation, masking, accumulate
    ):
        at = i32(cuda.grid(1))
        if at >= pixels.total:
            return
        pixel, vector, n, oy, ox = find_pixel(at, pixels)
        height, width, padding = sides.height, sides.width, (top, left, bottom, right)
        sums = cuda.local.array(VEC, f32)
        value = cuda.local.array(VEC, f32)
        filt = cuda.local.array(VEC, f32)
        for i in range(VEC):
            sums[i] = load_float(u64(bias + u64(i64(vector * VEC + i) * 4))) if bias != u64(0) else f32(0.0)
            filt[i] = share(oy, ox, height, width, padding) if AVERAGE and not gradient else f32(0.0)
        for ky in range(KH):
            for kx in range(KW):
                if gradient:  # the pixel of dy whose tap (ky, kx) is on this pixel, if the stride has one
                    up, along = i32(oy + top - ky), i32(ox + left - kx)
                    y, xx = i32(up // SY), i32(along // SX)
                    ok = up >= 0 and along >= 0 and y * SY == up and xx * SX == along and y < height and xx < width
                else:
                    y, xx = i32(oy * SY - top + ky), i32(ox * SX - left + kx)
                    ok = y >= 0 and y < height and xx >= 0 and xx < width
                take(x, ok, n, y, xx, height, width, sides.ldx, vector, value)
                if not AVERAGE:
                    tap = i64(i64(ky * KW + kx) * pixels.vectors + vector)
                    unpack(load4(u64(weight + u64(tap * 16))), filt)
                elif gradient:
                    mine = share(y, xx, sides.ho, sides.wo, padding) if ok else f32(0.0)
                    for i in range(VEC):
                        filt[i] = mine
                for i in range(VEC):
                    sums[i] = f32(sums[i] + (f32(value[i] * filt[i]) if ok else f32(0.0)))
        for i in range(VEC):
            sums[i] = activate(sums[i], activation)
        deliver(pack(sums), mask, out, i64(pixel), vector, ldm, sides.ldo, masking, accumulate)

    return depthwise


RUN: Final = 2
"""Neighbouring pixels of dy that a thread of the weight gradient takes together; `PIXELS` counts these runs."""


def make_depthwise_weight(element: int, shape: tuple[int, int, int, int], tap_rows: int) -> Any:
    """Weight gradient: a thread has the sums of `tap_rows` rows of taps, and of the bias, in registers."""
    unpack, take, VEC = UNPACK[element], make_take(element), 16 // element
    fold = make_fold(VEC)
    (KH, KW, SY, SX), TAPS = shape, tap_rows * shape[1]
    SUMS, STORED, GRADIENTS, COLUMNS = (TAPS + 1) * VEC, THREADS * VEC, RUN * VEC, KW + (RUN - 1) * SX

    @device_function
    def load_run(dy, m, count, pitch, vector, gradients, value, sums):
        for p in range(RUN):
            ok = p < count
            unpack(load4(u64(dy + u64((i64(m + p) * pitch + vector * VEC) * element)) if ok else dy), value)
            for i in range(VEC):
                gradients[p * VEC + i] = value[i] if ok else f32(0.0)
                sums[TAPS * VEC + i] = f32(sums[TAPS * VEC + i] + gradients[p * VEC + i])

    @device_function
    def add_column(value, column, ky, gradients, sums):
        for p in range(RUN):
            kx = column - p * SX
            if kx >= 0 and kx < KW:
                for i in range(VEC):
                    at = (ky * KW + kx) * VEC + i
                    sums[at] = f32(sums[at] + f32(value[i] * gradients[p * VEC + i]))

    def depthwise_weight(x, dy, partial, pixels, split, wide, sides, top, left):
        shared = cuda.shared.array(STORED, f32)
        t, ky = i32(cuda.threadIdx.x), i32(i32(cuda.blockIdx.y) * tap_rows)
        threads = i32(cuda.blockDim.x)
        rows = i32(threads // wide)
        ty = i32(t // wide)
        first, vectors = i32(i32(cuda.blockIdx.x) * wide), pixels.vectors  # `first`: vector of the block
        vector = i32(first + t - ty * wide)
        start, height, width = i32(i32(cuda.blockIdx.z) * split), sides.height, sides.width
        end = i32(min(i32(start + split), i32(divide(pixels.total, pixels.by_vectors))))
        sums = cuda.local.array(SUMS, f32)
        value = cuda.local.array(VEC, f32)
        gradients = cuda.local.array(GRADIENTS, f32)
        clear(sums)
        if vector < vectors and ty < rows:
            for run in range(i32(start + ty), end, rows):
                n = divide(run, pixels.by_area)
                rest = u32(u32(run) - n * u32(pixels.area))
                oy = i32(divide(rest, pixels.by_columns))
                ox = i32(i32(rest - u32(oy * pixels.columns)) * RUN)
                y0, x0 = i32(oy * SY - top + ky), i32(ox * SX - left)
                m = i32((i32(n) * sides.ho + oy) * sides.wo + ox)
                load_run(dy, m, i32(sides.wo - ox), sides.ldo, vector, gradients, value, sums)
                for row in range(tap_rows):
                    for column in range(COLUMNS):
                        y, xx = i32(y0 + row), i32(x0 + column)
                        ok = y >= 0 and y < height and xx >= 0 and xx < width
                        take(x, ok, n, y, xx, height, width, sides.ldx, vector, value)
                        for i in range(VEC):
                            value[i] = value[i] if ok else f32(0.0)
                        add_column(value, column, row, gradients, sums)
        block, count = (t, threads, wide, rows), i32(i32(min(wide, i32(vectors - first))) * VEC)
        for tap in range(TAPS + 1):
            if tap < TAPS or ky == 0:  # one row of blocks stores the bias gradient
                row = i32(ky * KW + tap) if tap < TAPS else i32(KH * KW)
                at = i64(((i64(i32(cuda.blockIdx.z)) * (KH * KW + 1) + row) * vectors + first) * VEC)
                fold(shared, sums, tap * VEC, block, count, u64(partial + u64(at * 4)))

    return depthwise_weight
