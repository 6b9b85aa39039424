"""1x1 products from few channels to many in one pass over the wide side. bf16.

Forward of an expanding convolution: the wide feature map is written once, with the partial sums of the next batch norm.
Backward of a projecting convolution, whose input is wide: the gradient of the input is masked by its activation and
written with the partial sums for its batch norm; the input is normalized again for the gradient of the filters.

    narrow side (pixels x P)     filters (C x P)           out (pixels x C)
    +------+                                               +--------------------+
    | tile |   x                 resident in shared   =    | BM pixels: a tile  |   a warp: all pixels x C / warps
    +------+  two buffers        memory                    +--------------------+
      products -> shared memory -> 16 bytes per thread to global memory, added to the sums of its eight channels

Shared memory: filters | products of a tile | backward the normalized input | two narrow tiles (`pointwise_tiles`).
Bytes: the wide side written once (backward also read once), the narrow side once: the floor.
"""

from __future__ import annotations

from typing import Any

from core.gpu.compilation import ptx
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u8, u32, u64
from core.gpu.control import read_photos
from core.gpu.ops.norm import pointwise_tiles as common
from core.gpu.ops.norm.pointwise_tiles import Shape
from core.gpu.parts.channels import make_apply_norm, make_fold, make_unpack
from core.gpu.parts.vectors import PACK, UNPACK, clear


def shared_bytes(shape: Shape, gradient: bool) -> int:
    tiles = (1 + gradient) * shape.pixels * shape.wide_row + 2 * shape.pixels * shape.narrow_row
    return max(shape.wide * shape.narrow_row + tiles, shape.threads * 8 * 4)


def make_multiply(shape: Shape) -> Any:
    """Device function: a warp's products of a tile to shared memory, 16 rows at a time."""
    pixels, tiles, wide_row, narrow_row = shape.pixels, shape.vectors // shape.warps, shape.wide_row, shape.narrow_row
    product, SUMS = common.make_product(shape.depth // 16, tiles, narrow_row), tiles * 4

    @device_function
    def multiply(source, filters, to, lane):
        acc = cuda.local.array(SUMS, f32)
        at = u32(to + u32((lane >> 2) * wide_row + (lane & 3) * 4))
        for m in range(pixels // 16):
            clear(acc)
            product(u32(source + u32(m * 16 * narrow_row)), filters, lane, acc)
            for n in range(tiles):
                place = u32(at + u32(m * 16 * wide_row + n * 16))
                ptx.shared_store1(place, ptx.pack_bf16(acc[n * 4], acc[n * 4 + 1]))
                ptx.shared_store1(u32(place + u32(8 * wide_row)), ptx.pack_bf16(acc[n * 4 + 2], acc[n * 4 + 3]))

    return multiply


def make_write(shape: Shape, gradient: bool, norm: int) -> Any:
    """Device function: stores a thread's vectors of the products, masked in the gradient, and adds them to its sums.

    totals: eight sums of the stored values, then eight of their products with themselves, or with x in the gradient.
    """
    unpack, unpack_x, pack, apply_norm = UNPACK[2], make_unpack(2, 8), PACK[2], make_apply_norm(norm)
    chunks, rows, row = shape.chunks, shape.rows, shape.wide_row

    @device_function
    def write(tile, raw, scale, shift, out, first, pixels, real, ldo, totals):
        a = cuda.local.array(8, f32)
        b = cuda.local.array(8, f32)
        for j in range(chunks):
            pixel = i32(first + j * rows)
            if pixel < pixels:
                v = ptx.shared_load4(u32(tile + u32(j * rows * row)))
                unpack(v, a)
                if gradient:
                    unpack_x(raw, j * 4, b, 0)
                    for i in range(8):
                        if norm > 0:
                            z = apply_norm(b[i], scale[i], shift[i])
                            a[i] = a[i] if z > f32(0.0) and (norm == 1 or z < f32(1.0)) else f32(0.0)
                    v = pack(a)
                ptx.store4(u64(out + u64(i64(pixel) * ldo * 2)), v[0], v[1], v[2], v[3])
                if pixel < real:  # images that only fill the batch do not count
                    for i in range(8):
                        totals[i] = f32(totals[i] + a[i])
                        totals[8 + i] = f32(totals[8 + i] + f32(a[i] * (b[i] if gradient else a[i])))

    return write


def make_wide(wide: int, narrow: int, gradient: bool, norm: int) -> Any:
    """``out = source weight^T``, ``(pixels, narrow) x (wide, narrow)``, and sums of out and its square (forward), or of
    out and out times x (gradient). `norm`: x's activation, as in `make_apply_norm`."""
    shape = common.shape_to_wide(wide, narrow)
    C, P, BM, TH = wide, narrow, shape.pixels, shape.threads
    WR, NR, VECTORS, ROWS = shape.wide_row, shape.narrow_row, shape.vectors, shape.rows
    NT, (CROWS, CT, GN) = VECTORS // shape.warps, shape.gradient_tiles
    RAW, WEIGHTS = shape.chunks * 4, CT * GN * 4 if gradient else 1
    OUT, INNER = C * NR, C * NR + BM * WR
    NARROW = INNER + (BM * WR if gradient else 0)
    wait_all, coefficients, fetch = ptx.WAIT_COPIES[0], common.make_coefficients(norm), common.make_fetch(shape)
    copy_filters = common.make_copy_rows(C, shape.depth // 8, shape.depth // 8, NR, TH)
    copy_narrow = common.make_copy_rows(BM, shape.depth // 8, P // 8, NR, TH)
    transform, multiply = common.make_transform(shape, False, norm), make_multiply(shape)
    write, fold = make_write(shape, gradient, norm), make_fold(8)
    gradient_product, write_sums = common.make_gradient_product(shape), common.make_write_sums(shape)

    def pointwise_wide(
        x, g, saved, weight, source, out, partial, sums, control, pixels, hw, depth, ldx, ldg, lds, ldo, accumulate
    ):
        base = ptx.shared_address(cuda.shared.array(0, u8))
        tid = i32(cuda.threadIdx.x)
        lane, warp, vector, r0 = i32(tid & 31), i32(tid >> 5), i32(tid % VECTORS), i32(tid // VECTORS)
        first, real = i32(i32(cuda.blockIdx.x) * BM), i32(min(i32(read_photos(control) * hw), pixels))
        step = i32(i32(cuda.gridDim.x) * BM)
        copy_filters(base, weight, depth, i32(C), tid)
        copy_narrow(u32(base + u32(NARROW)), u64(source + u64(i64(first) * lds * 2)), lds, i32(pixels - first), tid)
        ptx.commit_copies()
        scale = cuda.local.array(8, f32)
        shift = cuda.local.array(8, f32)
        totals = cuda.local.array(16, f32)
        raw = cuda.local.array(RAW, u32)
        weight_sums = cuda.local.array(WEIGHTS, f32)
        clear(totals)
        clear(weight_sums)
        rows = u64(saved + u64((2 * C + vector * 8) * 4))
        if gradient:
            coefficients(rows, scale)
            coefficients(u64(rows + u64(C * 4)), shift)
        mine_x, mine_out = u64(x + u64(i64(vector * 16))), u64(out + u64(i64(vector * 16)))
        chunk = u32(r0 * WR + vector * 16)
        lower, right, used = i32(warp % CROWS), i32(warp // CROWS), i32(0)
        if gradient:
            fetch(mine_x, i32(first + r0), pixels, ldx, raw)
        while first < pixels:
            wait_all()
            cuda.syncthreads()  # the narrow tile has arrived; no thread reads the other tiles any more
            following = i32(first + step)
            if following < pixels:
                place = u64(source + u64(i64(following) * lds * 2))
                copy_narrow(u32(base + u32(NARROW + (1 - used) * BM * NR)), place, lds, i32(pixels - following), tid)
            ptx.commit_copies()
            narrow_tile = u32(base + u32(NARROW + used * BM * NR))
            multiply(narrow_tile, u32(base + u32(warp * NT * 8 * NR)), u32(base + u32(OUT + warp * NT * 16)), lane)
            if gradient:
                transform(raw, raw, first, real, scale, shift, shift, u32(base + u32(INNER) + chunk))
            cuda.syncthreads()  # products and normalized input are in shared memory
            write(u32(base + u32(OUT) + chunk), raw, scale, shift, mine_out, i32(first + r0), pixels, real, ldo, totals)
            if gradient:  # the next loads of x are in flight during the products of the filter gradient
                fetch(mine_x, i32(following + r0), pixels, ldx, raw)
                inner = u32(base + u32(INNER + lower * CT * 32))
                gradient_product(inner, u32(narrow_tile + u32(right * GN * 16)), lane, weight_sums)
            used = i32(1 - used)
            first = following
        if gradient:
            write_sums(weight_sums, u64(partial + u64(i64(i32(cuda.blockIdx.x)) * (C * P * 4))), lower, right, lane)
        wait_all()
        shared, block = cuda.shared.array(0, f32), (tid, i32(TH), i32(VECTORS), i32(ROWS))
        for kind in range(2):
            at = i64(i32(i32(cuda.blockIdx.x) * 2 + kind) * C)
            fold(shared, totals, kind * 8, block, i32(C), u64(sums + u64(at * 4)))

    return pointwise_wide
