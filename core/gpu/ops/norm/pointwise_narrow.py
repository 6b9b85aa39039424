"""1x1 convolutions from many channels to few, between two batch norms, in one pass over the wide side. bf16.

Forward of a projecting convolution: the wide feature map is normalized and activated between global and shared memory;
the partial sums of the next batch norm are written too. Backward of an expanding convolution: the gradient of its
output is the batch norm's ``a g + b x + c``, computed between global and shared memory and used there for the gradients
of the input and of the filters.

    wide side (pixels x C)          filters (P x C)          out, or the input's gradient (pixels x P)
    +--------------------+                                   +------+
    | BM pixels: a tile  |   x   resident in shared    =     | tile |    warps: HIGH rows of 16 pixels x ACROSS of P
    +--------------------+       memory                      +------+
      registers -> norm -> shared memory; the next tile's loads are in flight during the products

Shared memory: `pointwise_tiles`. Bytes: the wide side once (backward x and g), the narrow side once: the floor.
"""

from __future__ import annotations

from typing import Any

from core.gpu.compilation import ptx
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u8, u32, u64
from core.gpu.control import read_photos
from core.gpu.ops.norm import pointwise_tiles as common
from core.gpu.ops.norm.pointwise_tiles import Shape
from core.gpu.parts.vectors import clear


def shared_bytes(shape: Shape, gradient: bool) -> int:
    """Bytes of shared memory per block: filters and a wide tile; two narrow tiles, or the sums of the warps."""
    narrow = 2 * shape.pixels * shape.narrow_row if gradient else shape.pixels // 16 * shape.narrow * 8
    return (shape.narrow + shape.pixels) * shape.wide_row + narrow


def make_write(tiles: int, gradient: bool) -> Any:
    """Device function: stores a warp's sums of 16 rows to the narrow side; `out` is at the lane's first column.

    Forward the stored values and their squares are added to `totals`, the gradient may be added to what is there.
    """

    @device_function
    def write(acc, out, row, pixels, real, ldo, accumulate, totals):
        for n in range(tiles):
            for half in range(2):
                m = i32(row + half * 8)
                v, w = acc[n * 4 + half * 2], acc[n * 4 + half * 2 + 1]
                if m < pixels:
                    at = u64(out + u64((i64(m) * ldo + n * 8) * 2))
                    if gradient and accumulate != 0:
                        old = ptx.load1(at)
                        v, w = f32(v + ptx.low_bf16(old)), f32(w + ptx.high_bf16(old))
                    ptx.store1(at, ptx.pack_bf16(v, w))
                if not gradient and m < real:  # images that only fill the batch do not count
                    totals[n * 4], totals[n * 4 + 1] = f32(totals[n * 4] + v), f32(totals[n * 4 + 1] + f32(v * v))
                    totals[n * 4 + 2] = f32(totals[n * 4 + 2] + w)
                    totals[n * 4 + 3] = f32(totals[n * 4 + 3] + f32(w * w))

    return write


def make_add_up(narrow: int, tiles: int, rows: int, threads: int) -> Any:
    """Device function: the block's sums ``(2, narrow)`` from those of its warps, `rows` of which have each column."""

    @device_function
    def add_up(totals, base, high, column, lane, tid, sums):
        for i in range(tiles * 4):  # add the eight lanes with the same columns
            for bit in range(2, 5):
                totals[i] = f32(totals[i] + ptx.shuffle_xor(totals[i], u32(1 << bit)))
        if lane < 4:
            for n in range(tiles * 2):
                at = u32(base + u32((high * narrow + column + n // 2 * 8 + n % 2) * 8))
                ptx.shared_store2(at, ptx.float_to_bits(totals[n * 2]), ptx.float_to_bits(totals[n * 2 + 1]))
        cuda.syncthreads()  # the sums of all warps are stored
        for i in range(tid, 2 * narrow, threads):
            total = f32(0.0)
            for h in range(rows):
                at = u32(base + u32((h * narrow + i % narrow) * 8 + i // narrow * 4))
                total = f32(total + ptx.bits_to_float(ptx.shared_load1(at)))
            ptx.store_float(u64(sums + u64(i64(i32(cuda.blockIdx.x) * 2 * narrow + i) * 4)), total)

    return add_up


def make_narrow(wide: int, narrow: int, gradient: bool, norm: int) -> Any:
    """A 1x1 convolution from `wide` to `narrow` channels of ``activation(x scale + shift)``, norm as in
    `make_apply_norm`, with the sums of what it writes; or the gradients of input and filters of one from `narrow` to
    `wide` channels, with partial filter gradients ``(blocks, wide, narrow)``."""
    shape = common.shape_to_narrow(wide, narrow)
    C, P, BM, TH = wide, narrow, shape.pixels, shape.threads
    WR, NR, FIRST, VECTORS, HIGH = shape.wide_row, shape.narrow_row, 4 if gradient else 2, shape.vectors, BM // 16
    NT, (CROWS, CT, GN) = P // 8 // (shape.warps // HIGH), shape.gradient_tiles
    RAW, SUMS, KEPT = shape.chunks * 4, NT * 4, CT * GN * 4 if gradient else NT * 4
    TILE, NARROW = P * WR, (P + BM) * WR
    wait_all, coefficients, fetch = ptx.WAIT_COPIES[0], common.make_coefficients(norm), common.make_fetch(shape)
    copy_filters = common.make_copy_rows(P, VECTORS, VECTORS, WR, TH)
    copy_narrow = common.make_copy_rows(BM, shape.depth // 8, P // 8, NR, TH)
    transform, product = common.make_transform(shape, gradient, norm), common.make_product(C // 16, NT, WR)
    gradient_product, write_sums = common.make_gradient_product(shape), common.make_write_sums(shape)
    write, add_up = make_write(NT, gradient), make_add_up(P, NT, HIGH, TH)

    def pointwise_narrow(
        x, g, saved, weight, source, out, partial, sums, control, pixels, hw, depth, ldx, ldg, lds, ldo, accumulate
    ):
        base = ptx.shared_address(cuda.shared.array(0, u8))
        tid = i32(cuda.threadIdx.x)
        lane, warp, vector, r0 = i32(tid & 31), i32(tid >> 5), i32(tid % VECTORS), i32(tid // VECTORS)
        first, real = i32(i32(cuda.blockIdx.x) * BM), i32(min(i32(read_photos(control) * hw), pixels))
        step = i32(i32(cuda.gridDim.x) * BM)
        copy_filters(base, weight, depth, i32(P), tid)
        if gradient:
            copy_narrow(u32(base + u32(NARROW)), u64(source + u64(i64(first) * lds * 2)), lds, i32(pixels - first), tid)
        ptx.commit_copies()
        one = cuda.local.array(8, f32)
        two = cuda.local.array(8, f32)
        three = cuda.local.array(8, f32)
        rows = u64(saved + u64((FIRST * C + vector * 8) * 4))
        coefficients(rows, one)
        coefficients(u64(rows + u64(C * 4)), two)
        if gradient:
            coefficients(u64(rows + u64(C * 8)), three)
        raw_x = cuda.local.array(RAW, u32)
        raw_g = cuda.local.array(RAW, u32)
        acc = cuda.local.array(SUMS, f32)
        kept = cuda.local.array(KEPT, f32)  # of all tiles: filter gradients, or sums of the output
        clear(kept)
        mine_x, mine_g = u64(x + u64(i64(vector * 16))), u64(g + u64(i64(vector * 16)))
        fetch(mine_x, i32(first + r0), pixels, ldx, raw_x)
        if gradient:
            fetch(mine_g, i32(first + r0), pixels, ldg, raw_g)
        to = u32(base + u32(TILE + r0 * WR + vector * 16))
        high, across, lower, right = i32(warp % HIGH), i32(warp // HIGH), i32(warp % CROWS), i32(warp // CROWS)
        rows_a, rows_b = u32(base + u32(TILE + high * 16 * WR)), u32(base + u32(across * NT * 8 * WR))
        column = i32(across * NT * 8 + (lane & 3) * 2)
        used = i32(0)
        while first < pixels:
            transform(raw_x, raw_g, i32(first + r0), real, one, two, three, to)
            wait_all()
            cuda.syncthreads()  # the tiles are in shared memory
            following = i32(first + step)  # its loads are in flight during the products of this tile
            fetch(mine_x, i32(following + r0), pixels, ldx, raw_x)
            if gradient:
                fetch(mine_g, i32(following + r0), pixels, ldg, raw_g)
                if following < pixels:
                    place, other = u64(source + u64(i64(following) * lds * 2)), NARROW + (1 - used) * BM * NR
                    copy_narrow(u32(base + u32(other)), place, lds, i32(pixels - following), tid)
                ptx.commit_copies()
            clear(acc)
            product(rows_a, rows_b, lane, acc)
            if gradient:
                narrow_tile = u32(base + u32(NARROW + used * BM * NR + right * GN * 16))
                gradient_product(u32(base + u32(TILE + lower * CT * 32)), narrow_tile, lane, kept)
            row = i32(first + high * 16 + (lane >> 2))
            write(acc, u64(out + u64(i64(column * 2))), row, pixels, real, ldo, accumulate, kept)
            cuda.syncthreads()  # no thread reads the wide tile any more
            used = i32(1 - used)
            first = following
        if gradient:
            write_sums(kept, u64(partial + u64(i64(i32(cuda.blockIdx.x)) * (C * P * 4))), lower, right, lane)
        else:
            add_up(kept, u32(base + u32(NARROW)), high, column, lane, tid, sums)

    return pointwise_narrow
