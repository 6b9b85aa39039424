"""The image's convolution, its ReLU and the 3x3 max pool of stride 2 in one kernel; what is between stays inside.

An image's pixel is 8 bytes (4 bf16 channels) and windows are two pixels apart: 16 bytes. So 8 windows of an image row
are a core matrix of `wgmma` without any copying. Even and odd image rows are apart in shared memory: the windows of
the next output row follow those of this one, at `row bytes / 16` places each, and any 64 neighbouring places are the
rows of one product.

    a strip of an image, traversed from top to bottom by a block with `columns` of the filters:

    turn 0  | output row -1 (kept)                 |
            | 4 rows of the convolution -> 2 rows of the pool (3x3, stride 2) with the row kept before
    turn 1  | 4 rows ...

Shared memory: filters, in parts of 16 bytes | a turn's image rows, even ones, then odd ones | five rows of the
convolution's output | biases. With two blocks on a multiprocessor one multiplies while the other pools.
Bytes: the image once (and some rows again for each strip), the pool's output and in training the winners' places.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation import ptx
from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.launch import INTEGER, POINTER, Argument, KernelSignature, divisions, pitches
from core.gpu.parts.vectors import divide, in_turn, passes
from core.gpu.parts.winners import STOPPED, write_places
from core.gpu.sm90.filters import make_filter_loader
from core.gpu.sm90.wgmma import TILE, fence_async_proxy, high_word, low_word, make_products, make_wait

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

TURN: Final = 4
"""Output rows of the convolution a turn, two of the pool."""
KEPT: Final = TURN + 1
"""Rows in shared memory."""
HIGHEST: Final = 0x7F7F7F7F
SIX: Final = 0x40C040C0
"""Pairs of bf16: the largest number, and 6."""
POOL: Final = 3
"""The pool's window; its stride is 2."""

SIGNATURE: Final = KernelSignature((
    Argument("x", POINTER, "images"),
    Argument("weight", POINTER, "filters of `pack_image`"),
    Argument("bias", POINTER, "float32, 0: none"),
    Argument("out", POINTER, "the pool's output"),
    Argument("marks", POINTER, "the pool's winners, a byte each, 0: keep none"),
    Argument("whole", POINTER, "the convolution's output, 0: not wanted"),
    Argument("strips", INTEGER, "strips of an image"),
    Argument("turns", INTEGER, "turns of a strip"),
    Argument("all_turns", INTEGER, "turns of an image"),
    Argument("filters", INTEGER, "filters in all"),
    *divisions(strips="strips of an image"),
    Argument("ho", INTEGER, "rows of the convolution's output"),
    Argument("wo", INTEGER, "columns of the convolution's output"),
    Argument("hp", INTEGER, "rows of the pool's output"),
    Argument("wp", INTEGER, "columns of the pool's output"),
    Argument("rows", INTEGER, "rows of an image"),
    Argument("places", INTEGER, "places of a row, 16 bytes each"),
    Argument("image_size", INTEGER, "bytes of an image"),
    *divisions(places="places of a row"),
    *pitches(ldo="output"),
    Argument("ldp", INTEGER, "bytes from one pixel's winners to the next"),
    Argument("activation", INTEGER, "1 ReLU, 2 ReLU6"),
))  # fmt: skip


def even_rows(kernel: int) -> int:
    """Even image rows of a turn; the odd ones are one fewer (`kernel` is odd)."""
    return TURN - 1 + (kernel + 1) // 2


def image_bytes(kernel: int, steps: int, places: int) -> int:
    """Bytes of a turn's image rows, and of what the last windows read past them."""
    return (2 * even_rows(kernel) - 1) * places * 16 + (TILE + 2 * steps) * 16


def shared_bytes(kernel: int, steps: int, columns: int, places: int) -> int:
    """Filters, a turn's image rows, the rows of output that the pool reads, and biases."""
    kept = KEPT * places * (columns * 2 + 16)
    return kernel * steps * 32 * columns + image_bytes(kernel, steps, places) + kept + columns * 4


def make_row_loader(kernel: int, warps: int) -> Any:
    """Device function: start the copies of a turn's image rows from row `first` on, but those outside the image."""
    EVEN, ROWS, WARPS = even_rows(kernel), 2 * even_rows(kernel) - 1, warps

    @device_function
    def load_rows(to, x, first, rows, places, tid):
        for r in range(i32(tid >> 5), ROWS, WARPS):
            target = u32(to + u32(((r >> 1) + (r & 1) * EVEN) * places * 16))
            if first + r >= 0 and first + r < rows:
                for i in range(i32(tid & 31), places, 32):
                    source = u64(x + u64(i64((first + r) * places + i) * 16))
                    ptx.copy_async16(u32(target + u32(i * 16)), source, u32(16))

    return load_rows


def make_keep(columns: int) -> Any:
    """Device function: a warp's sums, activated, to their rows of output, zeros beyond its edges; m0: the first."""
    PITCH, EIGHTS = columns * 2 + 16, columns // 8

    @device_function
    def keep_rows(
        acc, kept, m0, top, ho, wo, places, by_places_mul, by_places_shift, lane, activation
    ):
        g, t = i32(lane >> 2), i32(lane & 3)
        for half in range(2):
            m = i32(m0 + g + half * 8)
            r = i32(divide(u32(m), by_places_mul, by_places_shift))
            column, slot = i32(m - r * places), i32(u32(top + r + KEPT) % u32(KEPT))
            at = u32(kept + u32((slot * places + column) * PITCH + t * 4))
            highest = u32(HIGHEST if activation == 1 else SIX) if top + r < ho and column < wo else u32(0)
            if r < TURN:
                for n in range(EIGHTS):
                    o = n * 4 + half * 2
                    pair = ptx.min_bf16(ptx.max_bf16(ptx.pack_bf16(acc[o], acc[o + 1]), u32(0)), highest)
                    ptx.shared_store1(u32(at + u32(n * 16)), pair)

    return keep_rows


def make_pool(columns: int, threads: int, keeps: bool) -> Any:
    """Device function: two rows of the pool, from row `top` of the convolution on."""
    PITCH, EIGHTS, TH, KEEPS = columns * 2 + 16, columns // 8, threads, keeps

    def make_tap(ky: int, kx: int) -> Any:
        MARK = 255 - (ky * POOL + kx)

        @device_function
        def tap(at, best):
            v = ptx.shared_load4(u32(at[ky] + u32(kx * PITCH)))
            for i in range(4):
                if KEEPS:
                    low = i32(ptx.permute(v[i], u32(MARK), u32(0x1054)))
                    high = i32(ptx.permute(v[i], u32(MARK), u32(0x3254)))
                    best[2 * i] = low if low > best[2 * i] else best[2 * i]
                    best[2 * i + 1] = high if high > best[2 * i + 1] else best[2 * i + 1]
                else:
                    best[i] = i32(ptx.max_bf16(u32(best[i]), v[i]))

        return tap

    take_taps = in_turn([make_tap(ky, kx) for ky in range(POOL) for kx in range(POOL)])

    @device_function
    def pool(kept, out, marks_at, n, top, hp, wp, places, ldo, ldp, first, activation, tid):
        for i in range(tid, 2 * wp * EIGHTS, TH):
            pixel, part = i32(i // EIGHTS), i32(i % EIGHTS)
            down = i32(1) if pixel >= wp else i32(0)
            q, row = i32(pixel - down * wp), i32(top + 2 * down)
            if (row >> 1) < hp:
                best = cuda.local.array(8, dtype=types.int32)
                at = cuda.local.array(POOL, dtype=types.uint32)
                for j in range(8):
                    best[j] = i32(0)
                for j in range(POOL):
                    slot = i32(u32(row + j) % u32(KEPT))
                    at[j] = u32(kept + u32((slot * places + 2 * q) * PITCH + part * 16))
                take_taps(at, best)
                pairs = cuda.local.array(4, dtype=types.uint32)
                for j in range(4):
                    low, high = u32(best[2 * j]), u32(best[2 * j + 1])
                    pairs[j] = ptx.permute(low, high, u32(0x7632)) if KEEPS else u32(best[j])
                place = (i64(n) * hp + (row >> 1)) * wp + q
                ptx.store4(u64(out + u64((place * ldo + first + part * 8) * 2)), pairs[0], pairs[1], pairs[2], pairs[3])
                if KEEPS:
                    marks = cuda.local.array(8, dtype=types.uint32)
                    for j in range(8):
                        value = ptx.high_bf16(u32(best[j]))
                        mark = u32(255) - u32(u32(best[j]) & u32(255))
                        marks[j] = mark if passes(value, activation) else u32(STOPPED)
                    write_places(u64(marks_at + u64(place * ldp + first + part * 8)), marks, True)

    return pool


def make_show(columns: int, threads: int) -> Any:
    """Device function: rows of the convolution's output from `row` to `end` to memory, to be looked at."""
    PITCH, EIGHTS, TH = columns * 2 + 16, columns // 8, threads

    @device_function
    def show_whole(kept, whole, n, row, end, ho, wo, places, filters, first, tid):
        for y in range(max(row, i32(0)), min(end, ho)):
            slot = i32(u32(y) % u32(KEPT))
            for i in range(tid, wo * EIGHTS, TH):
                column, part = i32(i // EIGHTS), i32(i % EIGHTS)
                v = ptx.shared_load4(u32(kept + u32((slot * places + column) * PITCH + part * 16)))
                place = (i64(n) * ho + y) * wo + column
                ptx.store4(u64(whole + u64((place * filters + first + part * 8) * 2)), v[0], v[1], v[2], v[3])

    return show_whole


def make_photo_pool(kernel: int, steps: int, columns: int, groups: int, keeps: bool) -> Any:
    """The kernel for `columns` filters a block, windows of `kernel` rows of `steps` x 32 bytes, so many warpgroups;
    `keeps`: the winners' places."""
    EVEN, N, TH, WARPGROUPS, STEPS = even_rows(kernel), columns, 128 * groups, groups, steps
    PARTS, NACC, PITCH, FILTERS = kernel * steps * 2, columns // 2, columns * 2 + 16, kernel * steps * 32 * columns
    NBIAS, ROWS = columns // 4, 2 * even_rows(kernel) - 1
    taps = [(ky, s) for ky in range(kernel) for s in range(steps)]
    products = make_products(
        columns, [[(2 * s, (ky >> 1) + (ky & 1) * EVEN, i * 2 * columns) for i, (ky, s) in enumerate(taps)]]
    )
    finish, wait_all = make_wait(NACC, 0), ptx.WAIT_COPIES[0]
    load_filters, load_rows = make_filter_loader(PARTS, N, TH), make_row_loader(kernel, 4 * groups)
    keep_rows, pool, show_whole = make_keep(N), make_pool(N, TH, keeps), make_show(N, TH)

    def image_pool(
        x, weight, bias, out, marks, whole, strips, turns, all_turns, filters, by_strips_mul, by_strips_shift,
        ho, wo, hp, wp, rows, places, image_size, by_places_mul, by_places_shift, ldo, ldp, activation,
    ):
        shared = cuda.shared.array(0, dtype=types.uint8)
        base = ptx.shared_address(shared)
        tid = i32(cuda.threadIdx.x)
        lane, warp = i32(tid & 31), i32(tid >> 5)
        group = i32(warp >> 2)
        first = i32(i32(cuda.blockIdx.y) * N)
        load_filters(base, weight, first, filters, tid)
        n = i32(divide(u32(i32(cuda.blockIdx.x)), by_strips_mul, by_strips_shift))
        turn = i32(i32(i32(cuda.blockIdx.x) - n * strips) * turns)
        last = i32(min(turn + turns, all_turns))
        mine = u64(x + u64(i64(n) * i64(image_size)))
        image = u32(base + u32(FILTERS))
        kept = u32(image + u32((ROWS * places + TILE + 2 * STEPS) * 16))
        tiles, begin = i32((TURN * places + TILE - 1) // TILE), i32((TURN - 1) * places // TILE)
        acc = cuda.local.array(NACC, dtype=types.float32)
        biases = u32(kept + u32(KEPT * places * PITCH))
        if tid < N:  # those of a lane's columns stand together
            value = ptx.load_float(u64(bias + u64((first + tid) * 4))) if bias != u64(0) else f32(0.0)
            at = (((tid >> 1) & 3) * NBIAS + (tid >> 3) * 2 + (tid & 1)) * 4
            ptx.shared_store1(u32(biases + u32(at)), ptx.float_to_bits(value))
        biases = u32(biases + u32((lane & 3) * NBIAS * 4))
        turn, pooling = i32(turn - 1), False  # the row above the strip comes first
        load_rows(image, mine, i32(2 * (turn * TURN + 1)), rows, places, tid)
        ptx.commit_copies()
        b = low_word(base, u32(N * 16))
        while turn < last:
            tid = ptx.hold32(tid)  # nothing that follows from it may stand in registers from turn to turn
            top = i32(turn * TURN + 1)
            wait_all()
            fence_async_proxy()
            cuda.syncthreads()  # the image's rows are here; the pool is done with the output's
            for tile in range(i32(begin + group), tiles, WARPGROUPS):
                for j in range(NBIAS // 4):
                    v = ptx.shared_load4(u32(biases + u32(j * 16)))
                    for half in range(2):
                        for i in range(4):
                            acc[j * 8 + i // 2 * 4 + half * 2 + i % 2] = ptx.bits_to_float(v[i])
                a = low_word(u32(image + u32(tile * TILE * 16)), u32(16))
                products(acc, a, high_word(u32(128)), u32(places), b, high_word(u32(128)), u32(1))
                finish(acc)
                keep_rows(acc, kept, i32(tile * TILE + (warp & 3) * 16), top, ho, wo, places,
                          by_places_mul, by_places_shift, lane, activation)
            cuda.syncthreads()  # the output's rows are here; the image's are free
            turn = i32(turn + 1)
            if turn < last:
                load_rows(image, mine, i32(2 * (turn * TURN + 1)), rows, places, tid)
            ptx.commit_copies()
            if whole != u64(0):
                show_whole(kept, whole, n, i32(top if pooling else top + TURN - 1), i32(top + TURN), ho, wo, places,
                           filters, first, tid)
            if pooling:
                pool(kept, out, marks, n, i32(top - 1), hp, wp, places, ldo, ldp, first, activation, tid)
            begin, pooling = i32(0), True
        wait_all()

    return image_pool
