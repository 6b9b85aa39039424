"""The first convolution, its ReLU and the max pool after it in one kernel, for Hopper: what is between stays inside.

A photo's pixel is 8 bytes, a window begins every second one: 16 bytes further. So 8 windows of a photo row are one of
`wgmma`'s blocks as they lie. Even and odd photo rows stand apart in shared memory; then the windows of the next output
row follow those of this one without a gap, a row's place for `row bytes / 16` windows, and any 64 neighbouring places
are the rows of one product. A block walks down a strip of a photo with some of the filters, four output rows a turn;
with the one row kept from the turn before they are two rows of the pool (3 x 3, stride 2). Where two blocks share a
multiprocessor one multiplies while the other looks for the largest.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import (
    WAIT_COPIES,
    bits_to_float,
    commit_copies,
    copy_async16,
    float_to_bits,
    high_bf16,
    hold32,
    load_float,
    max_bf16,
    min_bf16,
    pack_bf16,
    permute,
    shared_address,
    shared_load4,
    shared_store1,
    store4,
)
from core.gpu.kernels.parts.fragments import divide
from core.gpu.kernels.parts.lanes import in_turn, passes
from core.gpu.kernels.parts.warpgroup import TILE, high_word, low_word, make_products, make_wait
from core.gpu.kernels.parts.wgmma import show_to_tensor_cores
from core.gpu.kernels.parts.winners import STOPPED, write_places

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

ARGUMENTS: Final = (
    *(types.uint64,) * 6,  # x, packed filters, bias (0: none), out, places (0: keep none), whole output (0: not wanted)
    *(types.int32,) * 4,  # strips a photo, turns a strip, turns a photo; filters in all
    *(types.uint32,) * 2,  # fast division by strips a photo
    *(types.int32,) * 5,  # height, width of the convolution's output, of the pool's; rows of a photo
    *(types.int32,) * 2,  # places of a row; bytes of a photo
    *(types.uint32,) * 2,  # fast division by places of a row
    *(types.int32,) * 3,  # pixel pitch of out, of places; activation
)


def even_rows(kernel: int) -> int:
    """Even photo rows of a turn; the odd ones are one fewer (`kernel` is odd)."""
    return TURN - 1 + (kernel + 1) // 2


def photo_bytes(kernel: int, steps: int, places: int) -> int:
    """Bytes of a turn's photo rows, and of what the last windows read past them."""
    return (2 * even_rows(kernel) - 1) * places * 16 + (TILE + 2 * steps) * 16


def shared_bytes(kernel: int, steps: int, columns: int, places: int) -> int:
    """Filters, a turn's photo rows, the rows of output that the pool reads, and biases."""
    kept = KEPT * places * (columns * 2 + 16)
    return kernel * steps * 32 * columns + photo_bytes(kernel, steps, places) + kept + columns * 4


def make_photo_pool(kernel: int, steps: int, columns: int, groups: int, keeps: bool) -> Any:
    """The kernel for `columns` filters a block, windows of `kernel` rows of `steps` x 32 bytes, so many warpgroups;
    `keeps`: the winners' places."""
    EVEN, N, TH, WARPGROUPS, KEEPS = even_rows(kernel), columns, 128 * groups, groups, keeps
    PARTS, NACC, PITCH, FILTERS = kernel * steps * 2, columns // 2, columns * 2 + 16, kernel * steps * 32 * columns
    NBIAS, EIGHTS, ROWS, WARPS, STEPS = columns // 4, columns // 8, 2 * even_rows(kernel) - 1, 4 * groups, steps
    taps = [(ky, s) for ky in range(kernel) for s in range(steps)]
    products = make_products(
        columns, [[(2 * s, (ky >> 1) + (ky & 1) * EVEN, i * 2 * columns) for i, (ky, s) in enumerate(taps)]]
    )
    finish, wait_all = make_wait(NACC, 0), WAIT_COPIES[0]

    @device_function
    def load_rows(to, x, first, rows, places, tid):
        """Start the copies of a turn's photo rows from row `first` on; those outside the photo are left."""
        for r in range(i32(tid >> 5), ROWS, WARPS):
            target = u32(to + u32(((r >> 1) + (r & 1) * EVEN) * places * 16))
            if first + r >= 0 and first + r < rows:
                for i in range(i32(tid & 31), places, 32):
                    source = u64(x + u64(i64((first + r) * places + i) * 16))
                    copy_async16(u32(target + u32(i * 16)), source, u32(16))

    @device_function
    def keep_rows(acc, kept, m0, top, ho, wo, places, p_mul, p_shift, lane, activation):
        """A warp's sums, activated, to their rows of output, zeros beyond its edges; m0: the place of its first."""
        g, t = i32(lane >> 2), i32(lane & 3)
        for half in range(2):
            m = i32(m0 + g + half * 8)
            r = i32(divide(u32(m), p_mul, p_shift))
            column, slot = i32(m - r * places), i32(u32(top + r + KEPT) % u32(KEPT))
            at = u32(kept + u32((slot * places + column) * PITCH + t * 4))
            highest = u32(HIGHEST if activation == 1 else SIX) if top + r < ho and column < wo else u32(0)
            if r < TURN:
                for n in range(EIGHTS):
                    o = n * 4 + half * 2
                    pair = min_bf16(max_bf16(pack_bf16(acc[o], acc[o + 1]), u32(0)), highest)
                    shared_store1(u32(at + u32(n * 16)), pair)

    def make_tap(ky: int, kx: int) -> Any:
        MARK = 255 - (ky * POOL + kx)

        @device_function
        def tap(at, best):
            v = shared_load4(u32(at[ky] + u32(kx * PITCH)))
            for i in range(4):
                if KEEPS:
                    low, high = i32(permute(v[i], u32(MARK), u32(0x1054))), i32(permute(v[i], u32(MARK), u32(0x3254)))
                    best[2 * i] = low if low > best[2 * i] else best[2 * i]
                    best[2 * i + 1] = high if high > best[2 * i + 1] else best[2 * i + 1]
                else:
                    best[i] = i32(max_bf16(u32(best[i]), v[i]))

        return tap

    take_taps = in_turn([make_tap(ky, kx) for ky in range(POOL) for kx in range(POOL)])

    @device_function
    def pool(kept, out, marks_at, n, top, hp, wp, places, ldo, ldp, first, activation, tid):
        """Two rows of the pool, from row `top` of the convolution on."""
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
                    pairs[j] = permute(u32(best[2 * j]), u32(best[2 * j + 1]), u32(0x7632)) if KEEPS else u32(best[j])
                place = (i64(n) * hp + (row >> 1)) * wp + q
                store4(u64(out + u64((place * ldo + first + part * 8) * 2)), pairs[0], pairs[1], pairs[2], pairs[3])
                if KEEPS:
                    marks = cuda.local.array(8, dtype=types.uint32)
                    for j in range(8):
                        value = high_bf16(u32(best[j]))
                        mark = u32(255) - u32(u32(best[j]) & u32(255))
                        marks[j] = mark if passes(value, activation) else u32(STOPPED)
                    write_places(u64(marks_at + u64(place * ldp + first + part * 8)), marks, True)

    @device_function
    def show_whole(kept, whole, n, row, end, ho, wo, places, filters, first, tid):
        """Rows of output from `row` to `end` as they are, for looking at."""
        for y in range(max(row, i32(0)), min(end, ho)):
            slot = i32(u32(y) % u32(KEPT))
            for i in range(tid, wo * EIGHTS, TH):
                column, part = i32(i // EIGHTS), i32(i % EIGHTS)
                v = shared_load4(u32(kept + u32((slot * places + column) * PITCH + part * 16)))
                place = (i64(n) * ho + y) * wo + column
                store4(u64(whole + u64((place * filters + first + part * 8) * 2)), v[0], v[1], v[2], v[3])

    def photo_pool(
        x, weight, bias, out, marks, whole, strips, turns, all_turns, filters, s_mul, s_shift,
        ho, wo, hp, wp, rows, places, photo_size, p_mul, p_shift, ldo, ldp, activation,
    ):
        shared = cuda.shared.array(0, dtype=types.uint8)
        base = shared_address(shared)
        tid = i32(cuda.threadIdx.x)
        lane, warp = i32(tid & 31), i32(tid >> 5)
        group = i32(warp >> 2)
        first = i32(i32(cuda.blockIdx.y) * N)
        for i in range(tid, PARTS * N, TH):
            part, f = i32(i // N), i32(i % N)
            copy_async16(u32(base + u32(i * 16)), u64(weight + u64(i64(part * filters + first + f) * 16)), u32(16))
        n = i32(divide(u32(i32(cuda.blockIdx.x)), s_mul, s_shift))
        turn = i32(i32(i32(cuda.blockIdx.x) - n * strips) * turns)
        last = i32(min(turn + turns, all_turns))
        mine = u64(x + u64(i64(n) * i64(photo_size)))
        photo = u32(base + u32(FILTERS))
        kept = u32(photo + u32((ROWS * places + TILE + 2 * STEPS) * 16))
        tiles, begin = i32((TURN * places + TILE - 1) // TILE), i32((TURN - 1) * places // TILE)
        acc = cuda.local.array(NACC, dtype=types.float32)
        biases = u32(kept + u32(KEPT * places * PITCH))
        if tid < N:  # those of a lane's columns stand together
            value = load_float(u64(bias + u64((first + tid) * 4))) if bias != u64(0) else f32(0.0)
            at = (((tid >> 1) & 3) * NBIAS + (tid >> 3) * 2 + (tid & 1)) * 4
            shared_store1(u32(biases + u32(at)), float_to_bits(value))
        biases = u32(biases + u32((lane & 3) * NBIAS * 4))
        turn, pooling = i32(turn - 1), False  # the row above the strip comes first
        load_rows(photo, mine, i32(2 * (turn * TURN + 1)), rows, places, tid)
        commit_copies()
        b = low_word(base, u32(N * 16))
        while turn < last:
            tid = hold32(tid)  # nothing that follows from it may stand in registers from turn to turn
            top = i32(turn * TURN + 1)
            wait_all()
            show_to_tensor_cores()
            cuda.syncthreads()  # the photo's rows are here; the pool is done with the output's
            for tile in range(i32(begin + group), tiles, WARPGROUPS):
                for j in range(NBIAS // 4):
                    v = shared_load4(u32(biases + u32(j * 16)))
                    for half in range(2):
                        acc[j * 8 + half * 2], acc[j * 8 + half * 2 + 1] = bits_to_float(v[0]), bits_to_float(v[1])
                        acc[j * 8 + 4 + half * 2], acc[j * 8 + 5 + half * 2] = bits_to_float(v[2]), bits_to_float(v[3])
                a = low_word(u32(photo + u32(tile * TILE * 16)), u32(16))
                products(acc, a, high_word(u32(128)), u32(places), b, high_word(u32(128)), u32(1))
                finish(acc)
                keep_rows(acc, kept, i32(tile * TILE + (warp & 3) * 16), top, ho, wo, places, p_mul, p_shift, lane,
                          activation)
            cuda.syncthreads()  # the output's rows are here; the photo's are free
            turn = i32(turn + 1)
            if turn < last:
                load_rows(photo, mine, i32(2 * (turn * TURN + 1)), rows, places, tid)
            commit_copies()
            if whole != u64(0):
                show_whole(kept, whole, n, i32(top if pooling else top + TURN - 1), i32(top + TURN), ho, wo, places,
                           filters, first, tid)
            if pooling:
                pool(kept, out, marks, n, i32(top - 1), hp, wp, places, ldo, ldp, first, activation, tid)
            begin, pooling = i32(0), True
        wait_all()

    return photo_pool
