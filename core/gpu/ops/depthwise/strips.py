"""3x3 depthwise convolution: a thread moves down two columns of four channels, sums of three rows in registers.

    columns    c-1   c   c+1  c+2          every pixel is loaded once a strip and multiplied onto the rows of sums
    row y       x  [ x    x ]  x           that see it: y - 1, y and y + 1 (stride 1); the next row's loads
    row y+1     x  [ x    x ]  x    |      are issued before this one's products
    ...                             v

    grid: (blocks, groups / wide); block: rows of `wide` groups of four channels; an item is a strip of two columns
    shared memory, with norms only: (threads, 4) float32 for the block's sums

In training the input is the output of the convolution before: its batch norm and activation are applied on the way, so
that the normalised activations are never stored, and the sums that the next batch norm needs are made.
Bytes: x (tall + 2) / tall times and 4 / 2 columns from the L1 cache, out once; floor: x and out once.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, types
from core.gpu.compilation.ptx import load_float
from core.gpu.control import read_photos
from core.gpu.launch import INTEGER, POINTER, Argument, KernelSignature, divisions, pitches
from core.gpu.ops.depthwise.strip_rows import columns_read, make_dense, make_strided
from core.gpu.parts.channels import make_fold, make_load, make_unpack
from core.gpu.parts.vectors import divide

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

STRIPS: Final = (
    Argument("groups", INTEGER, "groups of CHANNELS channels a pixel"),
    Argument("wide", INTEGER, "groups a block"),
    Argument("items", INTEGER, "work items: images x strips x pairs of columns"),
    Argument("pairs", INTEGER, "pairs of columns"),
    Argument("strips", INTEGER, "strips of rows an image"),
    Argument("tall", INTEGER, "rows a strip"),
    *divisions(pairs="`pairs`", strips="`strips`"),
    Argument("height", INTEGER, "rows of x"),
    Argument("width", INTEGER, "columns of x"),
    Argument("ho", INTEGER, "rows of out"),
    Argument("wo", INTEGER, "columns of out"),
    *pitches(ldx="x"),
)  # fmt: skip
"""Arguments that describe the strips; shared with the gradient."""

SIGNATURE: Final = KernelSignature((
    Argument("x", POINTER, "activations (N, height, width, C); with norms the output of the convolution before"),
    Argument("weight", POINTER, "packed filters (9, C)"),
    Argument("bias", POINTER, "float32 (C), or 0"),
    Argument("out", POINTER, "activations (N, ho, wo, C)"),
    Argument("saved", POINTER, "float32 (7, C) of the batch norm before: rows 2 and 3 are scale and shift"),
    Argument("partial", POINTER, "float32 (blocks, 2, C): sums of out and of its squares"),
    Argument("control", POINTER, "control block: how many images count"),
    *STRIPS,
    *pitches(ldo="out"),
    Argument("activation", INTEGER, "of out (`core.gpu.launch.RELU`)"),
))  # fmt: skip

CHANNELS: Final = 4
THREADS: Final = 128


def blocks(element: int, stride: int, normal: bool) -> int:
    """Blocks a multiprocessor: as many as the registers allow. `normal`: with the batch norms around."""
    return 2 if element == 4 else 3 if stride == 2 and not normal else 4


def make_depthwise_strips(element: int, stride: int, norm: int) -> Any:
    """The kernel. `norm`: -1 reads x as it is and adds bias and activation; 0, 1, 2 read it through batch norm and no
    activation, ReLU, ReLU6, and sum what they write."""
    WORDS, PX, S = element, columns_read(stride), stride
    NORMAL, SIX = norm >= 0, 6.0 if norm == 2 else 1.0
    RAW, STORED = WORDS * PX, THREADS * CHANNELS
    load, unpack, fold = make_load(WORDS), make_unpack(element, CHANNELS), make_fold(CHANNELS)
    execute = make_dense(element, norm) if stride == 1 else make_strided(element, norm)

    def depthwise_forward(
        x, weight, bias, out, saved, partial, control, groups, wide, items, pairs, strips, tall,
        by_pairs_mul, by_pairs_shift, by_strips_mul, by_strips_shift, height, width, ho, wo, ldx, ldo, activation,
    ):
        shared = cuda.shared.array(STORED, dtype=types.float32)
        t, threads = i32(cuda.threadIdx.x), i32(cuda.blockDim.x)
        ty, across = i32(t // wide), i32(threads // wide)
        c = i32((i32(cuda.blockIdx.y) * wide + t - ty * wide) * 4)
        channels = i32(groups * 4)
        taps = cuda.local.array(36, dtype=types.float32)
        words = cuda.local.array(4, dtype=types.uint32)
        scale = cuda.local.array(4, dtype=types.float32)
        shift = cuda.local.array(4, dtype=types.float32)
        totals = cuda.local.array(8, dtype=types.float32)
        for k in range(9):
            load(u64(weight + u64((i64(k) * channels + c) * element)), words, 0)
            unpack(words, 0, taps, k * 4)
        for i in range(4):
            totals[i], totals[4 + i] = f32(0.0), f32(0.0)
            if NORMAL:
                scale[i] = f32(load_float(u64(saved + u64((i64(channels) * 2 + c + i) * 4))) * f32(1.0 / SIX))
                shift[i] = f32(load_float(u64(saved + u64((i64(channels) * 3 + c + i) * 4))) * f32(1.0 / SIX))
                for k in range(9):
                    taps[k * 4 + i] = f32(taps[k * 4 + i] * f32(SIX))
        mine = u64(bias + u64(i64(c) * 4)) if bias != u64(0) else u64(0)
        raw = cuda.local.array(RAW, dtype=types.uint32)
        places = cuda.local.array(PX, dtype=types.int32)
        first = cuda.local.array(8, dtype=types.float32)
        second = cuda.local.array(8, dtype=types.float32)
        third = cuda.local.array(8, dtype=types.float32)
        line, target_line = i64(i64(width) * ldx * element), i64(i64(wo) * ldo * element)
        images = read_photos(control) if NORMAL else i32(0)
        for item in range(i32(i32(cuda.blockIdx.x) * across + ty), items, i32(i32(cuda.gridDim.x) * across)):
            strip = i32(divide(item, by_pairs_mul, by_pairs_shift))
            n = i32(divide(strip, by_strips_mul, by_strips_shift))
            column, row0 = i32((item - strip * pairs) * 2), i32((strip - n * strips) * tall)
            last = i32(min(i32(row0 + tall), ho))
            inside = i32(0)
            for p in range(PX):
                z = i32(column * S - 1 + p)
                inside = i32(inside | (i32(1 << p) if z >= 0 and z < width else i32(0)))
                places[p] = i32(min(max(z, i32(0)), i32(width - 1)) * ldx * element)
            image = u64(x + u64(i64(i32(n * height)) * line + i64(c * element)))
            target = u64(out + u64(i64(i32(n * ho + row0)) * target_line + i64(i32((column * ldo + c) * element))))
            beside = i32(ldo * element) if column + 1 < wo else i32(0)
            y = i32(row0 * S - 1)
            row = u64(image + u64(i64(max(y, i32(0))) * line))
            for p in range(PX):
                load(u64(row + u64(places[p])), raw, p * WORDS)
            for i in range(8):
                second[i], third[i] = f32(0.0), f32(0.0)
            execute(
                image, target, line, target_line, row0, last, height, inside, beside, n < images, mine, activation,
                places, taps, scale, shift, raw, first, second, third, totals,
            )  # fmt: skip
        if NORMAL:
            at = i64(i64(i32(cuda.blockIdx.x)) * 2 * channels + i64(i32(cuda.blockIdx.y)) * wide * 4)
            fold(shared, totals, 0, t, wide, across, u64(partial + u64(at * 4)))
            fold(shared, totals, 4, t, wide, across, u64(partial + u64((at + channels) * 4)))

    return depthwise_forward
