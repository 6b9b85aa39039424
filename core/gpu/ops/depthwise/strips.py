"""3x3 depthwise convolution: a thread moves down two columns of four channels, sums of three rows in registers.

    columns    c-1   c   c+1  c+2          every pixel is loaded once per strip and multiplied into the rows of sums
    row y       x  [ x    x ]  x           whose windows contain it: y - 1, y and y + 1 (stride 1); the loads of the
    row y+1     x  [ x    x ]  x    |      next row are issued before the products of this one
    ...                             v

    grid: (blocks, groups / groups of a block); block: rows of threads, one thread per group of four channels
    work item of a row of threads: a strip, some rows of a pair of columns
    shared memory, with batch norms only: (threads, 4) float32 for the block's sums

Between batch norms x is the output of the convolution before: its batch norm and activation are applied to the loaded
values, so that the normalized activations are never stored, and the sums of the next batch norm are computed. With
rotated filters and stride 1 it is the input gradient, from dy.
Bytes: x (rows + 2) / rows times and 4 / 2 columns from the L1 cache, out once; floor: x and out once.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.arguments import ACTIVATION, CONTROL, MASK, MASKING, STRIPS, KernelSignature, pitches, pointers
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u32, u64
from core.gpu.compilation.ptx import load2_ordered, load4_ordered, load_float
from core.gpu.control import read_photos
from core.gpu.parts.channels import ceiling, make_apply_norm, make_fold, make_load, make_store, make_unpack
from core.gpu.parts.vectors import activate, clear, divide, passes

SIGNATURE: Final = KernelSignature((
    *pointers(x="activations (N, height, width, C); with norms the output of the convolution before",
              weight="filters (C, 9)", bias="float32 (C), or 0", out="activations (N, ho, wo, C)",
              saved="float32 (7, C) of the batch norm before: rows 2 and 3 are scale and shift",
              partial="float32 (blocks, 2, C): sums of out and of its squares"),
    MASK, CONTROL,
    STRIPS,
    *pitches(ldo="out and mask"),
    ACTIVATION, *MASKING,
))  # fmt: skip

PLAIN, GRADIENT = -1, -2
"""Values of `norm` without batch norms: x as it is; dy, to the gradient of x."""

CHANNELS: Final = 4
THREADS: Final = 128


def blocks(element: int, stride: int, norm: int) -> int:
    """Blocks per multiprocessor, limited by the registers."""
    if element == 4:
        return 4 if norm == PLAIN else 3
    return 3 if stride == 2 and norm == PLAIN else 4


@device_function
def find_strip(item, strips, rows):
    """(image, first column, first row, last row + 1) of a work item; `rows` is the height of an image in rows."""
    strip = i32(divide(item, strips.by_pairs))
    n = i32(divide(strip, strips.by_per_image))
    row0 = i32((strip - n * strips.per_image) * strips.rows)
    return n, i32((item - strip * strips.pairs) * 2), row0, i32(min(i32(row0 + strips.rows), rows))


@device_function
def find_columns(first, count, width, pitch, offsets):
    """Byte offsets of neighbouring columns, clamped to the image; returns a bit for each column inside the image."""
    inside = i32(0)
    for p in range(count):
        z = i32(first + p)
        inside = i32(inside | (i32(1 << p) if z >= 0 and z < width else i32(0)))
        offsets[p] = i32(min(max(z, i32(0)), i32(width - 1)) * pitch)
    return inside


def make_tap_loads(element: int, channels: int, rotated: bool = False) -> Any:
    """Device function: filters of neighbouring channels as (9, channels) into registers; `rotated`: the last tap first.

    Their elements are contiguous, and loaded as many at once as there are channels.
    """
    load, unpack = make_load(channels * element // 4), make_unpack(element, channels)
    WORDS, COUNT = channels, 9 * channels

    @device_function
    def load_taps(weight, c, taps):
        words = cuda.local.array(WORDS, u32)
        loaded = cuda.local.array(COUNT, f32)
        for k in range(9):
            load(u64(weight + u64((i64(c) * 9 + k * channels) * element)), words, 0)
            unpack(words, 0, loaded, k * channels)
        for k in range(9):
            for i in range(channels):
                taps[k * channels + i] = loaded[i * 9 + (8 - k if rotated else k)]

    return load_taps


def make_row_loads(words: int) -> Any:
    """Device function: neighbouring pixels of a row, of `words` 4-byte words each, into registers."""
    load = make_load(words)

    @device_function
    def load_row(image, line, offsets, count, raw, at):
        for p in range(count):
            load(u64(image + u64(line + i64(offsets[p]))), raw, (at + p) * words)

    return load_row


def columns_read(stride: int) -> int:
    """Columns of the input in the windows of two columns of the output."""
    return 4 if stride == 1 else 5


def make_row_products(element: int, stride: int, norm: int, rows: int) -> Any:
    """Device function: adds a row's pixels times their taps to one to three rows of sums."""
    WORDS, PX, S = element, columns_read(stride), stride
    load, unpack, apply_norm = make_load(WORDS), make_unpack(element, 4), make_apply_norm(norm)

    @device_function
    def add_row(raw, inside, scale, shift, following, offsets, taps, one, ky, two, ky2, three, ky3):
        v = cuda.local.array(4, f32)
        for p in range(PX):
            unpack(raw, p * WORDS, v, 0)
            load(u64(following + u64(offsets[p])), raw, p * WORDS)  # of the next row: these registers are free now
            for i in range(4):
                v[i] = apply_norm(v[i], scale[i], shift[i])
                v[i] = v[i] if (inside >> p) & 1 != 0 else f32(0.0)
            for q in range(2):
                kx = p - q * S
                if kx >= 0 and kx < 3:
                    for i in range(4):
                        o, k = q * 4 + i, kx * 4 + i
                        one[o] = f32(one[o] + f32(v[i] * taps[ky * 12 + k]))
                        if rows > 1:
                            two[o] = f32(two[o] + f32(v[i] * taps[ky2 * 12 + k]))
                        if rows > 2:
                            three[o] = f32(three[o] + f32(v[i] * taps[ky3 * 12 + k]))

    return add_row


def make_finish(element: int, norm: int) -> tuple[Any, Any]:
    """Device functions: load the masks of two columns; store the columns of a row, after the bias, the mask, or with
    the norms after adding them to the sums."""
    NORMAL, WORDS, MASKED = norm >= 0, element, norm == GRADIENT
    load, unpack, store = make_load(WORDS), make_unpack(element, 4), make_store(element, 4)

    @device_function
    def load_masks(target, ending, masks):
        if MASKED and ending[5] != 0:
            mask = u64(target + ending[4])
            load(mask, masks, 0)
            load(u64(mask + u64(i64(ending[0]))), masks, WORDS)

    @device_function
    def mask_column(sums, q, target, masks, masking, accumulate):
        value = cuda.local.array(4, f32)
        old = cuda.local.array(WORDS, u32)
        unpack(masks, q * WORDS, value, 0)
        for i in range(4):
            if not passes(value[i], masking):
                sums[q * 4 + i] = f32(0.0)
        if accumulate != 0:
            if element == 4:
                old[0], old[1], old[2], old[3] = load4_ordered(target)
            else:
                old[0], old[1] = load2_ordered(target)
            unpack(old, 0, value, 0)
            for i in range(4):
                sums[q * 4 + i] = f32(sums[q * 4 + i] + value[i])

    @device_function
    def finish(sums, target, ending, masks, totals):
        next_column, real, bias, activation, _, masking, accumulate = ending
        if NORMAL:
            if real:
                for q in range(2):
                    for i in range(4):
                        v = sums[q * 4 + i] if q == 0 or next_column != 0 else f32(0.0)
                        totals[i] = f32(totals[i] + v)
                        totals[4 + i] = f32(totals[4 + i] + f32(v * v))
        elif MASKED:
            for q in range(2):
                mask_column(sums, q, u64(target + u64(i64(q * next_column))), masks, masking, accumulate)
        else:
            for i in range(8):
                b = load_float(u64(bias + u64((i & 3) * 4))) if bias != u64(0) else f32(0.0)
                sums[i] = activate(f32(sums[i] + b), activation)
        store(target, sums, 0)
        if next_column != 0:
            store(u64(target + u64(i64(next_column))), sums, 4)

    return load_masks, finish


def make_dense(element: int, norm: int) -> Any:
    """Device function for stride 1: rows row0 to last of the output; the row above is already in `raw`."""
    add_three, (load_masks, finish) = make_row_products(element, 1, norm, 3), make_finish(element, norm)
    MASKS = 2 * element

    @device_function
    def run_dense(image, target, lines, row0, last, height, inside, ending, offsets, constants, raw, totals):
        line, target_line = lines
        taps, scale, shift = constants
        masks = cuda.local.array(MASKS, u32)
        first = cuda.local.array(8, f32)
        second = cuda.local.array(8, f32)
        third = cuda.local.array(8, f32)
        for i in range(8):
            second[i], third[i] = f32(0.0), f32(0.0)
        for y in range(i32(row0 - 1), i32(last + 1)):
            for i in range(8):  # renamed registers: `first` is the row whose windows end at y
                first[i], second[i], third[i] = second[i], third[i], f32(0.0)
            following = u64(image + u64(i64(min(i32(y + 1), i32(height - 1))) * line))
            load_masks(target, ending, masks)
            add_three(raw, inside if y >= 0 and y < height else i32(0), scale, shift, following, offsets, taps,
                      first, 2, second, 1, third, 0)
            if y > row0:
                finish(first, target, ending, masks, totals)
                target = u64(target + u64(target_line))

    return run_dense


def make_strided(element: int, norm: int) -> Any:
    """Device function for stride 2: the same, two rows of the input for each row of the output."""
    add_one, add_two = make_row_products(element, 2, norm, 1), make_row_products(element, 2, norm, 2)
    _, finish = make_finish(element, norm)

    @device_function
    def run_strided(image, target, lines, row0, last, height, inside, ending, offsets, constants, raw, totals):
        line, target_line = lines
        taps, scale, shift = constants
        sums = cuda.local.array(8, f32)
        below = cuda.local.array(8, f32)
        clear(sums)
        y = i32(row0 * 2 - 1)
        following = u64(image + u64(i64(y + 1) * line))
        add_one(raw, inside if y >= 0 else i32(0), scale, shift, following, offsets, taps, sums, 0, sums, 0, sums, 0)
        for _ in range(row0, last):
            following = u64(image + u64(i64(min(i32(y + 2), i32(height - 1))) * line))
            add_one(raw, inside, scale, shift, following, offsets, taps, sums, 1, sums, 0, sums, 0)
            following = u64(image + u64(i64(min(i32(y + 3), i32(height - 1))) * line))
            clear(below)
            # The third row of these windows is the first row of the windows below.
            add_two(raw, inside if y + 2 < height else i32(0), scale, shift, following, offsets, taps, sums, 2,
                    below, 0, below, 0)
            finish(sums, target, ending, raw, totals)
            for i in range(8):
                sums[i] = below[i]
            target = u64(target + u64(target_line))
            y = i32(y + 2)

    return run_strided


def make_depthwise_strips(element: int, stride: int, norm: int) -> Any:
    """The kernel. `norm`: `PLAIN` reads x as it is and adds bias and activation; 0, 1, 2 read it through batch norm and
    no activation, ReLU, ReLU6, and sum what they write; `GRADIENT` reads dy and masks what it writes."""
    WORDS, PX, S = element, columns_read(stride), stride
    NORMAL, SIX = norm >= 0, ceiling(norm)
    RAW, STORED = WORDS * PX, THREADS * CHANNELS
    load_taps, fold = make_tap_loads(element, CHANNELS, norm == GRADIENT), make_fold(CHANNELS)
    load_row, execute = make_row_loads(WORDS), (make_dense if stride == 1 else make_strided)(element, norm)

    def depthwise_strips(
        x, weight, bias, out, saved, partial, mask, control, strips, ldo, activation, masking, accumulate
    ):
        shared = cuda.shared.array(STORED, f32)
        t, threads = i32(cuda.threadIdx.x), i32(cuda.blockDim.x)
        wide = strips.wide
        ty, across = i32(t // wide), i32(threads // wide)
        c = i32((i32(cuda.blockIdx.y) * wide + t - ty * wide) * 4)
        channels = i32(strips.groups * 4)
        taps = cuda.local.array(36, f32)
        scale = cuda.local.array(4, f32)
        shift = cuda.local.array(4, f32)
        totals = cuda.local.array(8, f32)
        load_taps(weight, c, taps)
        for i in range(4):
            totals[i], totals[4 + i] = f32(0.0), f32(0.0)
            if NORMAL:  # ReLU6 is computed over six (`make_apply_norm`), so the taps are six times as large
                scale[i] = f32(load_float(u64(saved + u64((i64(channels) * 2 + c + i) * 4))) * f32(1.0 / SIX))
                shift[i] = f32(load_float(u64(saved + u64((i64(channels) * 3 + c + i) * 4))) * f32(1.0 / SIX))
                for k in range(9):
                    taps[k * 4 + i] = f32(taps[k * 4 + i] * f32(SIX))
        mine = u64(bias + u64(i64(c) * 4)) if bias != u64(0) else u64(0)
        raw = cuda.local.array(RAW, u32)
        offsets = cuda.local.array(PX, i32)
        line, target_line = i64(i64(strips.width) * strips.ldx * element), i64(i64(strips.wo) * ldo * element)
        images = read_photos(control) if NORMAL else i32(0)
        for item in range(i32(i32(cuda.blockIdx.x) * across + ty), strips.items, i32(i32(cuda.gridDim.x) * across)):
            n, column, row0, last = find_strip(item, strips, strips.ho)
            inside = find_columns(i32(column * S - 1), PX, strips.width, i32(strips.ldx * element), offsets)
            image = u64(x + u64(i64(i32(n * strips.height)) * line + i64(c * element)))
            target = u64(
                out + u64(i64(i32(n * strips.ho + row0)) * target_line + i64(i32((column * ldo + c) * element)))
            )
            next_column = i32(ldo * element) if column + 1 < strips.wo else i32(0)
            load_row(image, i64(max(i32(row0 * S - 1), i32(0))) * line, offsets, PX, raw, 0)
            execute(
                image, target, (line, target_line), row0, last, strips.height, inside,
                (next_column, n < images, mine, activation, u64(mask - out), masking, accumulate), offsets,
                (taps, scale, shift), raw, totals,
            )  # fmt: skip
        if NORMAL:
            block, count = (t, wide * across, wide, across), wide * 4
            at = i64(i64(i32(cuda.blockIdx.x)) * 2 * channels + i64(i32(cuda.blockIdx.y)) * wide * 4)
            fold(shared, totals, 0, block, count, u64(partial + u64(at * 4)))
            fold(shared, totals, 4, block, count, u64(partial + u64((at + channels) * 4)))

    return depthwise_strips
