"""Weight gradient of the image's convolution from the gradient behind its 3x3 max pool of stride 2.

``dweight[f, ky, kx, c] = sum over windows of d[y, x, f] image[2 y + ky, 2 x + kx, c]``, where d is what the pool sends
back. d is never in memory: a block gathers two rows of it from the pool's windows and winners (`winners.make_sharing`)
into shared memory while `wgmma` multiplies the two rows before.

                    filters
               +---------------+   a product's 64 rows are 8 image rows of 8 elements (one more than a window of 7 has,
    8 rows x   |  warpgroup g  |   it is ignored); warpgroup g has 16 bytes of each row: the g-th part of a window.
    8 elements +---------------+   Both factors are read transposed: 8 windows of an image row are a core matrix.

A block takes its share of all turns of two rows and keeps its sums in registers; `partial_sums` adds
the blocks' in order. The bias gradient is the sum of all windows' gradients that a winner got.

Shared memory: image rows of two turns | d of two turns | three rows of the pool's gradients and winners | sums for the
bias. Bytes: images once, the pool's gradient and winners once, and the partial sums.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation import ptx
from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.launch import INTEGER, POINTER, Argument, KernelSignature, divisions
from core.gpu.parts.vectors import divide, in_turn
from core.gpu.parts.winners import EVERY, STOPPED, make_sharing
from core.gpu.sm90.wgmma import fence_async_proxy, high_word, low_word, make_products, make_wait

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

ROWS: Final = 2
"""Rows of the convolution's output a turn."""
BESIDE: Final = 8
"""Image rows of a product."""
KEPT: Final = 3
"""Rows of the pool's windows in shared memory: two that see a turn's rows, and the next."""
BEHIND: Final = 256
"""Bytes behind the image's rows that windows past a row's end read: zeros."""
PAD: Final = 16
"""Bytes between image rows, zeros: a product reads a pixel of all its rows at once, which must be in other banks."""
TALL: Final = 2 * (ROWS - 1) + BESIDE
"""Image rows of a turn."""

SIGNATURE: Final = KernelSignature((
    Argument("x", POINTER, "images"),
    Argument("dy", POINTER, "gradient of the pool's output"),
    Argument("partial", POINTER, "partial weight and bias gradients, one of each block"),
    Argument("marks", POINTER, "the pool's winners, a byte each"),
    Argument("total", INTEGER, "turns in all"),
    Argument("each", INTEGER, "turns of a block"),
    Argument("turns", INTEGER, "turns of an image"),
    *divisions(turns="turns of an image"),
    Argument("hp", INTEGER, "rows of the pool's output"),
    Argument("wp", INTEGER, "columns of the pool's output"),
    Argument("rows", INTEGER, "rows of an image"),
    Argument("places", INTEGER, "places of a row, 16 bytes each"),
    Argument("image_size", INTEGER, "bytes of an image"),
    Argument("channels", INTEGER, "channels of a window's row"),
    Argument("depth", INTEGER, "elements of a filter"),
    Argument("size", INTEGER, "floats of a partial result"),
))  # fmt: skip


def part_bytes(steps: int) -> int:
    """From 8 filters' gradients to the next 8's: `steps` x 16 pixels, and 16 bytes against bank conflicts."""
    return steps * 256 + 16


def shared_bytes(places: int, parts: int, steps: int, filters: int, pooled: int) -> int:
    """Image rows and gradients of two turns, three rows of `pooled` windows' gradients and winners, the bias's sums."""
    gradients = ROWS * (filters // 8) * part_bytes(steps)
    return 2 * (TALL * (places * 16 + PAD) + BEHIND + gradients) + KEPT * pooled * filters * 3 + 4096 * parts


def workers(threads: int, filters: int) -> int:
    """Threads that gather: whole pixels of 8 filters each."""
    return threads // (filters // 8) * (filters // 8)


def make_row_loader(warps: int) -> Any:
    """Device function: start the copies of a turn's image rows; zeros after the first `real`."""
    WARPS = warps

    @device_function
    def load_rows(to, x, real, places, tid):
        for r in range(i32(tid >> 5), TALL, WARPS):
            for i in range(i32(tid & 31), places, 32):
                source = u64(x + u64(u32((r * places + i) * 16)))
                place = u32(to + u32(r * (places * 16 + PAD) + i * 16))
                ptx.copy_async16(place, source if r < real else x, u32(16) if r < real else u32(0))

    return load_rows


def make_row_of(filters: int) -> Any:
    """Device function: where a turn's own row of the pool's windows is."""
    N = filters

    @device_function
    def row_of(kept, turn, wp):
        return u32(kept + u32(u32(turn + KEPT) % u32(KEPT)) * u32(wp * (N * 3)))

    return row_of


def make_window_loader(filters: int, threads: int) -> Any:
    """Device function: start the copies of a turn's own row of the pool's windows: gradients, then winners."""
    N, EIGHTS, TH, row_of = filters, filters // 8, threads, make_row_of(filters)

    @device_function
    def copy(to, source, count, tid):
        """Start the copies of `count` x 16 bytes that lie in a row."""
        for i in range(tid, count, TH):
            ptx.copy_async16(u32(to + u32(i * 16)), u64(source + u64(u32(i * 16))), u32(16))

    @device_function
    def load_windows(to, dy, marks, turn, turns, by_turns_mul, by_turns_shift, hp, wp, tid):
        n = i32(divide(u32(turn), by_turns_mul, by_turns_shift))
        a = i32(turn - n * turns)
        if a < hp:
            first, slot = i64(i32(n * hp + a) * wp) * N, row_of(to, turn, wp)
            copy(slot, u64(dy + u64(first * 2)), i32(wp * EIGHTS), tid)
            count = i32(wp * (N // 16))
            copy(u32(slot + u32(wp * N * 2)), u64(marks + u64(first)), count, tid)

    return load_windows


def make_gather(filters: int, steps: int, threads: int, pool: int) -> Any:
    """Device function: a turn's two rows of d; a: the place of its own row of windows."""
    N, EIGHTS, PART, WORKERS = filters, filters // 8, part_bytes(steps), workers(threads, filters)
    TASKS, (shares, windows) = steps * 8 * EIGHTS, make_sharing((pool, pool, 2, 2))
    WORDS, PLACES = 4 * len(windows), 2 * len(windows)

    def make_take(k: int, da: int, db: int) -> Any:
        share = shares[k]

        @device_function
        def take(above, own, a, b, part, hp, wp, v, found, four):
            ok = a >= da and a - da < hp and b >= db and b - db < wp
            row = own if da == 0 else above
            q = i32(b - db) if ok else i32(0)
            here = ptx.shared_load4(u32(row + u32(q * (N * 2) + part * 16)))
            at = u32(row + u32(wp * (N * 2) + q * N + part * 8))
            one, two = ptx.shared_load1(at), ptx.shared_load1(u32(at + u32(4)))
            for i in range(4):
                v[k * 4 + i] = here[i]
            found[k * 2] = one if ok else u32(STOPPED * EVERY)
            found[k * 2 + 1] = two if ok else u32(STOPPED * EVERY)
            share(v, found, four)

        return take

    take_windows = in_turn([make_take(k, da, db) for k, (da, db) in enumerate(windows)])

    @device_function
    def gather(to, above, own, a, hp, wp, tid):
        v = cuda.local.array(WORDS, dtype=types.uint32)
        found = cuda.local.array(PLACES, dtype=types.uint32)
        four = cuda.local.array(16, dtype=types.uint32)
        if tid < WORKERS:
            part = i32(tid % EIGHTS)
            for i in range(tid, TASKS, WORKERS):
                b = i32(i // EIGHTS)
                for j in range(16):
                    four[j] = u32(0)
                take_windows(above, own, a, b, part, hp, wp, v, found, four)
                for j in range(4):
                    at = u32(to + u32(((j >> 1) * EIGHTS + part) * PART + (2 * b + (j & 1)) * 16))
                    ptx.shared_store4(at, four[4 * j], four[4 * j + 1], four[4 * j + 2], four[4 * j + 3])

    return gather


def make_bias_sums(filters: int, threads: int) -> Any:
    """Device function: a row's gradients that a winner got, added to the thread's eight sums for the bias."""
    N, EIGHTS, WORKERS = filters, filters // 8, workers(threads, filters)

    @device_function
    def add_windows(row, mine, a, hp, wp, tid):
        sums = cuda.local.array(8, dtype=types.float32)
        if tid < WORKERS and a < hp:
            for j in range(2):
                v = ptx.shared_load4(u32(mine + u32(j * 16)))
                for i in range(4):
                    sums[4 * j + i] = ptx.bits_to_float(v[i])
            for i in range(tid, wp * EIGHTS, WORKERS):
                v = ptx.shared_load4(u32(row + u32(i * 16)))
                at = u32(row + u32(wp * (N * 2) + i * 8))
                found = (ptx.shared_load1(at), ptx.shared_load1(u32(at + u32(4))))
                for j in range(4):
                    low = u32(found[j // 2] >> u32(16 * (j % 2))) & u32(255)
                    high = u32(found[j // 2] >> u32(16 * (j % 2) + 8)) & u32(255)
                    sums[2 * j] = f32(sums[2 * j] + (ptx.low_bf16(v[j]) if low != u32(STOPPED) else f32(0.0)))
                    sums[2 * j + 1] = f32(sums[2 * j + 1] + (ptx.high_bf16(v[j]) if high != u32(STOPPED) else f32(0.0)))
            for j in range(2):
                ptx.shared_store4(
                    u32(mine + u32(j * 16)), ptx.float_to_bits(sums[4 * j]), ptx.float_to_bits(sums[4 * j + 1]),
                    ptx.float_to_bits(sums[4 * j + 2]), ptx.float_to_bits(sums[4 * j + 3]),
                )

    return add_windows


def make_bias_writer(filters: int, threads: int) -> Any:
    """Device function: the threads' sums of each filter, added in order."""
    N, EIGHTS, WORKERS = filters, filters // 8, workers(threads, filters)

    @device_function
    def add_biases(base, target, tid):
        cuda.syncthreads()
        if tid < N:
            total = f32(0.0)
            for i in range(WORKERS // EIGHTS):
                at = u32(base + u32(((i * EIGHTS + (tid >> 3)) * 8 + (tid & 7)) * 4))
                total = f32(total + ptx.bits_to_float(ptx.shared_load1(at)))
            ptx.store_float(u64(target + u64(tid * 4)), total)

    return add_biases


def make_store(kernel: int, filters: int) -> Any:
    """Device function: a warp's sums to the block's partial result, rows of `depth` for each filter."""
    KH, EIGHTS = kernel, filters // 8

    @device_function
    def store(acc, mine, group, warp, lane, channels, depth):
        g, t = i32(lane >> 2), i32(lane & 3)
        for half in range(2):
            ky = i32((warp & 3) * 2 + half)
            column = i32(ky * channels + group * 8 + g)
            if ky < KH:
                for i in range(EIGHTS):
                    for j in range(2):
                        f = i32(i * 8 + t * 2 + j)
                        ptx.store_float(u64(mine + u64((i64(f) * depth + column) * 4)), acc[i * 4 + half * 2 + j])

    return store


def make_photo_gradient(kernel: int, parts: int, steps: int, filters: int, pool: int) -> Any:
    """The kernel for windows of `kernel` rows of `parts` x 16 bytes, a warpgroup each; `steps` x 16 pixels a row.

    `pool`: the side of its window, whose stride is 2.
    """
    N, EIGHTS, TH, NACC, PART = filters, filters // 8, 128 * parts, filters // 2, part_bytes(steps)
    BLOCK = ROWS * EIGHTS * PART
    turns = [(r, k) for r in range(ROWS) for k in range(steps)]
    products = make_products(
        filters, [[(k * 16, 2 * r, r * EIGHTS * PART // 16 + k * 16) for r, k in turns]], (True, True)
    )
    finish, wait_all, load_rows = make_wait(NACC, 0), ptx.WAIT_COPIES[0], make_row_loader(4 * parts)
    load_windows, row_of, gather = make_window_loader(N, TH), make_row_of(N), make_gather(N, steps, TH, pool)
    add_windows, add_biases, store = make_bias_sums(N, TH), make_bias_writer(N, TH), make_store(kernel, N)

    def image_pool_gradient(
        x, dy, partial, marks, total, each, turns, by_turns_mul, by_turns_shift, hp, wp, rows, places, image_size,
        channels, depth, size,
    ):
        shared = cuda.shared.array(0, dtype=types.uint8)
        base = ptx.shared_address(shared)
        tid = i32(cuda.threadIdx.x)
        lane, warp = i32(tid & 31), i32(tid >> 5)
        group = i32(warp >> 2)
        pitch = i32(places * 16 + PAD)
        room = i32(TALL * pitch + BEHIND)
        gradients = u32(base + u32(2 * room))
        for i in range(tid, 2 * room // 16, TH):
            ptx.shared_store4(u32(base + u32(i * 16)), u32(0), u32(0), u32(0), u32(0))
        cuda.syncthreads()  # what is not copied over stays zero
        acc = cuda.local.array(NACC, dtype=types.float32)
        for i in range(NACC):
            acc[i] = f32(0.0)
        block = i32(cuda.blockIdx.x)
        turn = i32(block * each)
        end = i32(min(turn + each, total))
        slot, kept = u32(1), u32(gradients + u32(2 * BLOCK))
        biases = u32(kept + u32(KEPT * wp * N * 3))
        ptx.shared_store4(u32(biases + u32(tid * 32)), u32(0), u32(0), u32(0), u32(0))
        ptx.shared_store4(u32(biases + u32(tid * 32 + 16)), u32(0), u32(0), u32(0), u32(0))
        start, turn = turn, i32(turn - 3)
        while turn < end:
            tid = ptx.hold32(tid)  # nothing that follows from it may stand in registers from turn to turn
            wait_all()
            fence_async_proxy()
            cuda.syncthreads()  # this turn's rows and the next one's windows are here; the other slots are free
            if turn >= start:
                a_low = low_word(u32(base + slot * u32(room) + u32(group * 16)), u32(128))
                b_low = low_word(u32(gradients + slot * u32(BLOCK)), u32(128))
                products(acc, a_low, high_word(u32(pitch)), u32(pitch >> 4), b_low, high_word(u32(PART)), u32(1))
            slot, turn = u32(slot ^ u32(1)), i32(turn + 1)
            if turn + 2 >= start and turn + 1 >= 0 and turn + 1 < end:
                load_windows(kept, dy, marks, i32(turn + 1), turns, by_turns_mul, by_turns_shift, hp, wp, tid)
            if turn >= start and turn < end:
                n = i32(divide(u32(turn), by_turns_mul, by_turns_shift))
                a = i32(turn - n * turns)
                image = u64(x + u64(i64(n) * i64(image_size) + i64(4 * a * places) * 16))
                load_rows(u32(base + slot * u32(room)), image, i32(rows - 4 * a), places, tid)
                ptx.commit_copies()
                own = row_of(kept, turn, wp)
                gather(u32(gradients + slot * u32(BLOCK)), row_of(kept, i32(turn - 1), wp), own, a, hp, wp, tid)
                add_windows(own, u32(biases + u32(tid * 32)), a, hp, wp, tid)
            ptx.commit_copies()
            finish(acc)
        wait_all()
        mine = u64(partial + u64(i64(block) * i64(size) * 4))
        store(acc, mine, group, warp, lane, channels, depth)
        add_biases(biases, u64(mine + u64(i64(N) * depth * 4)), tid)

    return image_pool_gradient
