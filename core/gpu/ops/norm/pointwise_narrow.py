"""1x1 convolutions from many channels to few, between two batch norms, in one pass over the wide side. bf16.

Forward (`make_projection`): the wide feature map is normalized and activated between global and shared memory; the
partial sums of the next batch norm are written too. Backward of an expanding convolution (`make_expansion_gradient`):
the gradient of its output is the batch norm's ``a g + b x + c``, computed between global and shared memory and used
there for the gradients of the input and of the filters.

    wide side (pixels x C)          filters (P x C)          out, or the input's gradient (pixels x P)
    +--------------------+                                   +------+
    | BM pixels: a tile  |   x   resident in shared    =     | tile |    warps: HIGH rows of 16 pixels x ACROSS of P
    +--------------------+       memory                      +------+
      registers -> norm -> shared memory; the next tile's loads are in flight during the products

Shared memory: `pointwise_tiles`. Bytes: the wide side once (backward x and g), the narrow side once: the floor.
"""

from __future__ import annotations

from math import gcd
from typing import Any, Final

from core.gpu.compilation import ptx
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u8, u32, u64
from core.gpu.control import read_photos
from core.gpu.launch import INTEGER, POINTER, Argument, KernelSignature, pitches
from core.gpu.ops.norm.pointwise_tiles import (
    Shape,
    ceiling,
    make_coefficients,
    make_copy_rows,
    make_fetch,
    make_gradient_product,
    make_normalise,
    make_product,
    make_write_sums,
    shape_to_narrow,
)
from core.gpu.parts.channels import make_unpack
from core.gpu.parts.vectors import PACK, clear

_CONTROL: Final = Argument("control", POINTER, "control block of the step (`core.gpu.control`)")
_X: Final = Argument("x", POINTER, "(pixels, wide), before its batch norm")
_SAVED: Final = Argument("saved", POINTER, "factors of that batch norm (`ops.norm.batch_norm.make_finish`)")
_WEIGHT: Final = Argument("weight", POINTER, "packed filters (narrow, depth)")
_COUNTS: Final = (
    Argument("pixels", INTEGER, "pixels in all"),
    Argument("hw", INTEGER, "pixels of an image"),
    Argument("depth", INTEGER, "elements from a filter to the next"),
)  # fmt: skip


GRADIENT: Final = KernelSignature((
    _X,
    Argument("g", POINTER, "gradient of the batch norm's output (pixels, wide)"),
    _SAVED, _WEIGHT,
    Argument("source", POINTER, "the convolution's input (pixels, narrow)"),
    Argument("out", POINTER, "its gradient"),
    Argument("partial", POINTER, "float32 (blocks, wide, narrow): filter gradients of each block"),
    _CONTROL, *_COUNTS, *pitches(ldx="x", ldg="g", lds="source", ldo="out"),
    Argument("accumulate", INTEGER, "1 adds to out"),
))  # fmt: skip


def gradient_shared(shape: Shape) -> int:
    """Bytes of shared memory per block of the gradient."""
    return (shape.narrow + shape.pixels) * shape.wide_row + 2 * shape.pixels * shape.narrow_row


def make_norm_gradient(chunks: int, rows: int, row: int) -> Any:
    """Device function: stores the batch norm's gradient ``one g + two x + three`` of a thread's vectors to a tile in
    shared memory of `row` bytes per pixel; zeros for images that only fill the batch."""
    unpack, pack = make_unpack(2, 8), PACK[2]

    @device_function
    def combine(raw_x, raw_g, first, real, one, two, three, to):
        a = cuda.local.array(8, f32)
        b = cuda.local.array(8, f32)
        for j in range(chunks):
            unpack(raw_x, j * 4, a, 0)
            unpack(raw_g, j * 4, b, 0)
            for i in range(8):
                a[i] = f32(f32(b[i] * one[i]) + f32(f32(a[i] * two[i]) + three[i]))
            v = pack(a)
            if first + j * rows >= real:
                v = u32(0), u32(0), u32(0), u32(0)
            ptx.shared_store4(u32(to + u32(j * rows * row)), v[0], v[1], v[2], v[3])

    return combine


def make_narrow_write(tiles: int) -> Any:
    """Device function: stores a warp's sums of 16 rows to the narrow gradient; `out` is at the lane's first column."""

    @device_function
    def write(acc, out, row, pixels, ldo, accumulate):
        for n in range(tiles):
            for half in range(2):
                m = i32(row + half * 8)
                if m < pixels:
                    at = u64(out + u64((i64(m) * ldo + n * 8) * 2))
                    v, w = acc[n * 4 + half * 2], acc[n * 4 + half * 2 + 1]
                    if accumulate != 0:
                        old = ptx.load1(at)
                        v, w = f32(v + ptx.low_bf16(old)), f32(w + ptx.high_bf16(old))
                    ptx.store1(at, ptx.pack_bf16(v, w))

    return write


def make_expansion_gradient(wide: int, narrow: int) -> Any:
    """Gradients of input and filters of a 1x1 convolution from `narrow` to `wide` channels; partial filter gradients
    ``(blocks, wide, narrow)``."""
    shape = shape_to_narrow(wide, narrow)
    C, P, BM, TH, CHUNKS = wide, narrow, shape.pixels, shape.threads, shape.chunks
    WR, NR = shape.wide_row, shape.narrow_row
    PARTS, HIGH = C // 8, BM // 16
    ROWS, ACROSS, CROWS = TH // PARTS, shape.warps // HIGH, gcd(shape.warps, C // 16)
    NT, CT, GN = P // 8 // ACROSS, C // 16 // CROWS, P // 8 // (shape.warps // CROWS)
    RAW, SUMS, WEIGHTS = CHUNKS * 4, NT * 4, CT * GN * 4
    TILE, NARROW = P * WR, (P + BM) * WR
    wait_all, coefficients, combine, write = (
        ptx.WAIT_COPIES[0], make_coefficients(1.0), make_norm_gradient(CHUNKS, ROWS, WR), make_narrow_write(NT)
    )  # fmt: skip
    copy_filters, fetch = make_copy_rows(P, PARTS, PARTS, WR, TH), make_fetch(CHUNKS, ROWS)
    write_sums = make_write_sums(CT, GN, P)
    copy_narrow = make_copy_rows(BM, shape.depth // 8, P // 8, NR, TH)
    product, gradient_product = make_product(C // 16, NT, WR, WR), make_gradient_product(BM // 16, CT, GN, WR, NR)

    def pointwise_gradient(
        x, g, saved, weight, source, out, partial, control, pixels, hw, depth, ldx, ldg, lds, ldo, accumulate
    ):
        base = ptx.shared_address(cuda.shared.array(0, u8))
        tid = i32(cuda.threadIdx.x)
        lane, warp, part, r0 = i32(tid & 31), i32(tid >> 5), i32(tid % PARTS), i32(tid // PARTS)
        first, real = i32(i32(cuda.blockIdx.x) * BM), i32(min(i32(read_photos(control) * hw), pixels))
        step = i32(i32(cuda.gridDim.x) * BM)
        copy_filters(base, weight, depth, i32(P), tid)
        copy_narrow(u32(base + u32(NARROW)), u64(source + u64(i64(first) * lds * 2)), lds, i32(pixels - first), tid)
        ptx.commit_copies()
        one = cuda.local.array(8, f32)
        two = cuda.local.array(8, f32)
        three = cuda.local.array(8, f32)
        kept = u64(saved + u64((4 * C + part * 8) * 4))
        coefficients(kept, one)
        coefficients(u64(kept + u64(C * 4)), two)
        coefficients(u64(kept + u64(C * 8)), three)
        raw_x = cuda.local.array(RAW, u32)
        raw_g = cuda.local.array(RAW, u32)
        acc = cuda.local.array(SUMS, f32)
        weight_sums = cuda.local.array(WEIGHTS, f32)
        clear(weight_sums)
        mine_x, mine_g = u64(x + u64(i64(part * 16))), u64(g + u64(i64(part * 16)))
        fetch(mine_x, i32(first + r0), pixels, ldx, raw_x)
        fetch(mine_g, i32(first + r0), pixels, ldg, raw_g)
        to = u32(base + u32(TILE + r0 * WR + part * 16))
        high, across = i32(warp % HIGH), i32(warp // HIGH)
        rows_a, rows_b = u32(base + u32(TILE + high * 16 * WR)), u32(base + u32(across * NT * 8 * WR))
        column = i32(across * NT * 8 + (lane & 3) * 2)
        lower, right = i32(warp % CROWS), i32(warp // CROWS)
        used = i32(0)
        while first < pixels:
            combine(raw_x, raw_g, i32(first + r0), real, one, two, three, to)
            wait_all()
            cuda.syncthreads()  # both tiles are in shared memory
            following = i32(first + step)  # its loads are in flight during the products of this tile
            fetch(mine_x, i32(following + r0), pixels, ldx, raw_x)
            fetch(mine_g, i32(following + r0), pixels, ldg, raw_g)
            if following < pixels:
                place = u64(source + u64(i64(following) * lds * 2))
                copy_narrow(u32(base + u32(NARROW + (1 - used) * BM * NR)), place, lds, i32(pixels - following), tid)
            ptx.commit_copies()
            clear(acc)
            product(rows_a, rows_b, lane, acc)
            narrow_tile = u32(base + u32(NARROW + used * BM * NR))
            gradient_product(
                u32(base + u32(TILE + lower * CT * 32)), u32(narrow_tile + u32(right * GN * 16)), lane, weight_sums
            )
            write(acc, u64(out + u64(i64(column * 2))), i32(first + high * 16 + (lane >> 2)), pixels, ldo, accumulate)
            cuda.syncthreads()  # no thread reads the wide tile any more
            used = i32(1 - used)
            first = following
        mine = u64(partial + u64(i64(i32(cuda.blockIdx.x)) * (C * P * 4)))
        write_sums(weight_sums, mine, lower, right, lane)

    return pointwise_gradient


FORWARD: Final = KernelSignature((
    _X, _SAVED, _WEIGHT,
    Argument("out", POINTER, "(pixels, narrow)"),
    Argument("sums", POINTER, "float32 (blocks, 2, narrow): sums of out and its square"),
    _CONTROL, *_COUNTS, *pitches(ldx="x", ldo="out"),
))  # fmt: skip


def forward_shared(shape: Shape) -> int:
    """Bytes of shared memory per block, forward."""
    return (shape.narrow + shape.pixels) * shape.wide_row + shape.pixels // 16 * shape.narrow * 8


def make_projection(wide: int, narrow: int, norm: int) -> Any:
    """A 1x1 convolution from `wide` to `narrow` channels of ``activation(x scale + shift)``, norm as in
    `make_apply_norm`, with the sums of what it writes."""
    shape = shape_to_narrow(wide, narrow)
    C, P, BM, TH, CHUNKS, WR = wide, narrow, shape.pixels, shape.threads, shape.chunks, shape.wide_row
    PARTS, HIGH, SIX = C // 8, BM // 16, ceiling(norm)
    ROWS, ACROSS = TH // PARTS, shape.warps // HIGH
    NT = P // 8 // ACROSS
    RAW, SUMS, TOTALS = CHUNKS * 4, NT * 4, NT * 4
    TILE, PLACES = P * WR, (P + BM) * WR
    wait_all, fetch, normalise = ptx.WAIT_COPIES[0], make_fetch(CHUNKS, ROWS), make_normalise(CHUNKS, ROWS, WR, norm)
    copy_filters, product = make_copy_rows(P, PARTS, PARTS, WR, TH), make_product(C // 16, NT, WR, WR)

    @device_function
    def write(acc, out, row, pixels, real, ldo, totals):
        for n in range(NT):
            for half in range(2):
                m = i32(row + half * 8)
                v, w = acc[n * 4 + half * 2], acc[n * 4 + half * 2 + 1]
                if m < pixels:
                    ptx.store1(u64(out + u64((i64(m) * ldo + n * 8) * 2)), ptx.pack_bf16(v, w))
                if m < real:
                    totals[n * 4], totals[n * 4 + 1] = f32(totals[n * 4] + v), f32(totals[n * 4 + 1] + f32(v * v))
                    totals[n * 4 + 2] = f32(totals[n * 4 + 2] + w)
                    totals[n * 4 + 3] = f32(totals[n * 4 + 3] + f32(w * w))

    def pointwise_forward(x, saved, weight, out, sums, control, pixels, hw, depth, ldx, ldo):
        base = ptx.shared_address(cuda.shared.array(0, u8))
        tid = i32(cuda.threadIdx.x)
        lane, warp, part, r0 = i32(tid & 31), i32(tid >> 5), i32(tid % PARTS), i32(tid // PARTS)
        first, real = i32(i32(cuda.blockIdx.x) * BM), i32(min(i32(read_photos(control) * hw), pixels))
        step = i32(i32(cuda.gridDim.x) * BM)
        copy_filters(base, weight, depth, i32(P), tid)
        ptx.commit_copies()
        scale = cuda.local.array(8, f32)
        shift = cuda.local.array(8, f32)
        for i in range(8):
            scale[i] = f32(ptx.load_float(u64(saved + u64((2 * C + part * 8 + i) * 4))) * f32(1.0 / SIX))
            shift[i] = f32(ptx.load_float(u64(saved + u64((3 * C + part * 8 + i) * 4))) * f32(1.0 / SIX))
        raw = cuda.local.array(RAW, u32)
        acc = cuda.local.array(SUMS, f32)
        totals = cuda.local.array(TOTALS, f32)
        clear(totals)
        mine = u64(x + u64(i64(part * 16)))
        fetch(mine, i32(first + r0), pixels, ldx, raw)
        high, across = i32(warp % HIGH), i32(warp // HIGH)
        column = i32(across * NT * 8 + (lane & 3) * 2)
        wait_all()
        while first < pixels:
            normalise(raw, scale, shift, u32(base + u32(TILE + r0 * WR + part * 16)))
            cuda.syncthreads()  # the tile is in shared memory
            following = i32(first + step)
            fetch(mine, i32(following + r0), pixels, ldx, raw)
            clear(acc)
            product(u32(base + u32(TILE + high * 16 * WR)), u32(base + u32(across * NT * 8 * WR)), lane, acc)
            row = i32(first + high * 16 + (lane >> 2))
            write(acc, u64(out + u64(i64(column * 2))), row, pixels, real, ldo, totals)
            cuda.syncthreads()  # no thread reads the tile any more
            first = following
        for i in range(TOTALS):  # add the eight lanes with the same columns
            for bit in range(2, 5):
                totals[i] = f32(totals[i] + ptx.shuffle_xor(totals[i], u32(1 << bit)))
        if lane < 4:
            for n in range(NT * 2):
                at = u32(base + u32(PLACES + (high * P + column + n // 2 * 8 + n % 2) * 8))
                ptx.shared_store2(at, ptx.float_to_bits(totals[n * 2]), ptx.float_to_bits(totals[n * 2 + 1]))
        cuda.syncthreads()  # the sums of all warps are stored
        for i in range(tid, 2 * P, TH):
            total = f32(0.0)
            for h in range(HIGH):
                at = u32(base + u32(PLACES + (h * P + i % P) * 8 + i // P * 4))
                total = f32(total + ptx.bits_to_float(ptx.shared_load1(at)))
            ptx.store_float(u64(sums + u64(i64(i32(cuda.blockIdx.x) * 2 * P + i) * 4)), total)

    return pointwise_forward
