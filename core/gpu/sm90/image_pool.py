"""The image's convolution, its ReLU and the 3x3 max pool of stride 2 in one kernel.

A pixel of the image is 8 bytes (4 bf16 channels) and windows are two pixels apart: 16 bytes, a vector. So 8 windows of
an image row are a core matrix of `wgmma` without any copying. Even and odd image rows are apart in shared memory: the
windows of the next output row follow those of this one after the vectors of a row, and any 64 consecutive vectors are
the rows of one product.

    a strip of an image, traversed from top to bottom by a block with `columns` of the filters:

    step 0  | output row -1 (of the strip above)   |
            | 4 rows of the convolution -> 2 rows of the pool (3x3, stride 2), with the last row of the step before
    step 1  | 4 rows ...

Shared memory: filters, in vectors | a step's image rows, even ones, then odd ones | a ring of five rows of the
convolution's output | biases. Of two blocks on a multiprocessor one multiplies while the other pools.
Bytes: the image once (and some rows again for each strip), the pool's output and in training the positions of its
maxima; the convolution's output stays in shared memory.
Floor: these bytes / bandwidth.
Source: PTX ISA 8.x, 9.7.15 (wgmma without swizzle); ADR 21.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.arguments import KernelSignature, divisions, ints, pointers
from core.gpu.compilation import ptx
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u8, u32, u64
from core.gpu.parts.vectors import clear, divide, in_turn, passes
from core.gpu.parts.winners import STOPPED, write_positions
from core.gpu.sm90.filters import make_filter_loader
from core.gpu.sm90.wgmma import TILE, fence_async_proxy, high_word, low_word, make_products, make_wait

STEP_ROWS: Final = 4
"""Output rows of the convolution in a step, two of the pool."""
RING_ROWS: Final = STEP_ROWS + 1
"""Rows of the convolution's output in shared memory."""
MAX_PAIR, SIX_PAIR = 0x7F7F7F7F, 0x40C040C0
"""Pairs of bf16: the largest number, and 6."""
POOL: Final = 3
"""The pool's window; its stride is 2."""

SIGNATURE: Final = KernelSignature((
    *pointers(x="images", weight="filters of `pack_image`", bias="float32, or 0", out="the pool's output",
              positions="of the pool's maxima, a byte each, or 0"),
    *ints(strips="strips of an image", strip_steps="steps of a strip", image_steps="steps of an image",
          filters="filters in all: channels of the output and of the positions, which have no gaps"),
    *divisions(strips="`strips`"),
    *ints(ho="rows of the convolution's output", wo="columns of the convolution's output",
          hp="rows of the pool's output", wp="columns of the pool's output", rows="rows of an image",
          row_vectors="vectors of an image row", image_bytes="bytes of an image"),
    *divisions(row_vectors="`row_vectors`"),
    *ints(activation="1 ReLU, 2 ReLU6"),
))  # fmt: skip


def even_rows(kernel: int) -> int:
    """Even image rows of a step; the odd ones are one fewer (`kernel` is odd)."""
    return STEP_ROWS - 1 + (kernel + 1) // 2


def shared_bytes(kernel: int, steps: int, columns: int, row_vectors: int) -> int:
    """Filters, a step's image rows and what the last windows read past them, the ring of output rows, and biases."""
    image = (2 * even_rows(kernel) - 1) * row_vectors * 16 + (TILE + 2 * steps) * 16
    return kernel * steps * 32 * columns + image + RING_ROWS * row_vectors * (columns * 2 + 16) + columns * 4


def make_row_loader(kernel: int, warps: int) -> Any:
    """Device function: start the copies of a step's image rows from row `first` on, but those outside the image."""
    EVEN, ROWS, WARPS = even_rows(kernel), 2 * even_rows(kernel) - 1, warps

    @device_function
    def load_rows(to, x, first, rows, row_vectors, tid):
        for r in range(i32(tid >> 5), ROWS, WARPS):
            target = u32(to + u32(((r >> 1) + (r & 1) * EVEN) * row_vectors * 16))
            if first + r >= 0 and first + r < rows:
                for i in range(i32(tid & 31), row_vectors, 32):
                    source = u64(x + u64(i64((first + r) * row_vectors + i) * 16))
                    ptx.copy_async16(u32(target + u32(i * 16)), source, u32(16))

    return load_rows


def make_row_store(columns: int) -> Any:
    """Device function: a warp's sums from row m0 on, activated, to the ring of output rows; zeros beyond its edges."""
    PITCH, EIGHTS = columns * 2 + 16, columns // 8

    @device_function
    def store_rows(acc, ring, m0, top, ho, wo, row_vectors, by_row, lane, activation):
        g, t = i32(lane >> 2), i32(lane & 3)
        for half in range(2):
            m = i32(m0 + g + half * 8)
            r = i32(divide(u32(m), by_row))
            column, slot = i32(m - r * row_vectors), i32(u32(top + r + RING_ROWS) % u32(RING_ROWS))
            at = u32(ring + u32((slot * row_vectors + column) * PITCH + t * 4))
            highest = u32(MAX_PAIR if activation == 1 else SIX_PAIR) if top + r < ho and column < wo else u32(0)
            if r < STEP_ROWS:
                for n in range(EIGHTS):
                    o = n * 4 + half * 2
                    pair = ptx.min_bf16(ptx.max_bf16(ptx.pack_bf16(acc[o], acc[o + 1]), u32(0)), highest)
                    ptx.shared_store1(u32(at + u32(n * 16)), pair)

    return store_rows


def make_pool(columns: int, threads: int, stores: bool) -> Any:
    """Device function: two rows of the pool, from row `top` of the convolution on."""
    PITCH, EIGHTS, TH, STORES = columns * 2 + 16, columns // 8, threads, stores

    def make_tap(ky: int, kx: int) -> Any:
        POSITION = 255 - (ky * POOL + kx)

        @device_function
        def tap(at, best):
            v = ptx.shared_load4(u32(at[ky] + u32(kx * PITCH)))
            for i in range(4):
                if STORES:  # the position in the low byte: one integer maximum gives the value and its position
                    low = i32(ptx.permute(v[i], u32(POSITION), u32(0x1054)))
                    high = i32(ptx.permute(v[i], u32(POSITION), u32(0x3254)))
                    best[2 * i] = low if low > best[2 * i] else best[2 * i]
                    best[2 * i + 1] = high if high > best[2 * i + 1] else best[2 * i + 1]
                else:
                    best[i] = i32(ptx.max_bf16(u32(best[i]), v[i]))

        return tap

    take_taps = in_turn([make_tap(ky, kx) for ky in range(POOL) for kx in range(POOL)])

    @device_function
    def pool(ring, out, positions, n, top, hp, wp, row_vectors, filters, first, activation, tid):
        for i in range(tid, 2 * wp * EIGHTS, TH):
            pixel, vector = i32(i // EIGHTS), i32(i % EIGHTS)
            down = i32(1) if pixel >= wp else i32(0)
            q, row = i32(pixel - down * wp), i32(top + 2 * down)
            if (row >> 1) < hp:
                best = cuda.local.array(8, i32)
                at = cuda.local.array(POOL, u32)
                clear(best)
                for j in range(POOL):
                    slot = i32(u32(row + j) % u32(RING_ROWS))
                    at[j] = u32(ring + u32((slot * row_vectors + 2 * q) * PITCH + vector * 16))
                take_taps(at, best)
                pairs = cuda.local.array(4, u32)
                for j in range(4):
                    low, high = u32(best[2 * j]), u32(best[2 * j + 1])
                    pairs[j] = ptx.permute(low, high, u32(0x7632)) if STORES else u32(best[j])
                pooled = (i64(n) * hp + (row >> 1)) * wp + q
                at_out = pooled * filters + first + vector * 8
                ptx.store4(u64(out + u64(at_out * 2)), pairs[0], pairs[1], pairs[2], pairs[3])
                if STORES:
                    codes = cuda.local.array(8, u32)
                    for j in range(8):
                        value = ptx.high_bf16(u32(best[j]))
                        position = u32(255) - u32(u32(best[j]) & u32(255))
                        codes[j] = position if passes(value, activation) else u32(STOPPED)
                    write_positions(u64(positions + u64(at_out)), codes, True)

    return pool


def make_image_pool(kernel: int, steps: int, columns: int, groups: int, stores: bool) -> Any:
    """The kernel for `columns` filters of a block, windows of `kernel` rows of `steps` x 32 bytes, and warpgroups;
    `stores`: the positions of the maxima."""
    EVEN, N, TH, WARPGROUPS, STEPS = even_rows(kernel), columns, 128 * groups, groups, steps
    VECTORS, NACC, PITCH, FILTERS = kernel * steps * 2, columns // 2, columns * 2 + 16, kernel * steps * 32 * columns
    NBIAS, ROWS = columns // 4, 2 * even_rows(kernel) - 1
    taps = [(ky, s) for ky in range(kernel) for s in range(steps)]
    products = make_products(
        columns, [[(2 * s, (ky >> 1) + (ky & 1) * EVEN, i * 2 * columns) for i, (ky, s) in enumerate(taps)]]
    )
    finish, wait_all = make_wait(NACC, 0), ptx.WAIT_COPIES[0]
    load_filters, load_rows = make_filter_loader(VECTORS, N, TH), make_row_loader(kernel, 4 * groups)
    store_rows, pool = make_row_store(N), make_pool(N, TH, stores)

    def image_pool(
        x, weight, bias, out, positions, strips, strip_steps, image_steps, filters, by_strips, ho, wo, hp, wp, rows,
        row_vectors, image_bytes, by_row_vectors, activation,
    ):
        base = ptx.shared_address(cuda.shared.array(0, u8))
        tid = i32(cuda.threadIdx.x)
        lane, warp = i32(tid & 31), i32(tid >> 5)
        group = i32(warp >> 2)
        first = i32(i32(cuda.blockIdx.y) * N)
        load_filters(base, weight, first, filters, tid)
        n = i32(divide(u32(i32(cuda.blockIdx.x)), by_strips))
        step = i32(i32(i32(cuda.blockIdx.x) - n * strips) * strip_steps)
        last = i32(min(step + strip_steps, image_steps))
        source = u64(x + u64(i64(n) * i64(image_bytes)))
        image = u32(base + u32(FILTERS))
        ring = u32(image + u32((ROWS * row_vectors + TILE + 2 * STEPS) * 16))
        tiles, begin = i32((STEP_ROWS * row_vectors + TILE - 1) // TILE), i32((STEP_ROWS - 1) * row_vectors // TILE)
        acc = cuda.local.array(NACC, f32)
        biases = u32(ring + u32(RING_ROWS * row_vectors * PITCH))
        if tid < N:  # ordered so that those of a lane's columns are consecutive
            value = ptx.load_float(u64(bias + u64((first + tid) * 4))) if bias != u64(0) else f32(0.0)
            at = (((tid >> 1) & 3) * NBIAS + (tid >> 3) * 2 + (tid & 1)) * 4
            ptx.shared_store1(u32(biases + u32(at)), ptx.float_to_bits(value))
        biases = u32(biases + u32((lane & 3) * NBIAS * 4))
        step, pooling = i32(step - 1), False  # the row above the strip comes first
        load_rows(image, source, i32(2 * (step * STEP_ROWS + 1)), rows, row_vectors, tid)
        ptx.commit_copies()
        b = low_word(base, u32(N * 16))
        while step < last:
            tid = ptx.hold32(tid)  # keeps values computed from it out of registers between steps
            top = i32(step * STEP_ROWS + 1)
            wait_all()
            fence_async_proxy()
            cuda.syncthreads()  # the image rows are in shared memory; the pool has read the output rows
            for tile in range(i32(begin + group), tiles, WARPGROUPS):
                for j in range(NBIAS // 4):  # the sums begin with the biases
                    v = ptx.shared_load4(u32(biases + u32(j * 16)))
                    for half in range(2):
                        for i in range(4):
                            acc[j * 8 + i // 2 * 4 + half * 2 + i % 2] = ptx.bits_to_float(v[i])
                a = low_word(u32(image + u32(tile * TILE * 16)), u32(16))
                products(acc, a, high_word(u32(128)), u32(row_vectors), b, high_word(u32(128)), u32(1))
                finish(acc)
                m0 = i32(tile * TILE + (warp & 3) * 16)
                store_rows(acc, ring, m0, top, ho, wo, row_vectors, by_row_vectors, lane, activation)
            cuda.syncthreads()  # the output rows are complete; the image rows may be replaced
            step = i32(step + 1)
            if step < last:  # the next image rows are copied while this step pools
                load_rows(image, source, i32(2 * (step * STEP_ROWS + 1)), rows, row_vectors, tid)
            ptx.commit_copies()
            if pooling:
                pool(ring, out, positions, n, i32(top - 1), hp, wp, row_vectors, filters, first, activation, tid)
            begin, pooling = i32(0), True
        wait_all()

    return image_pool
