"""Weight gradient of a 3x3 convolution of stride 1 for Hopper: `wgmma` sums over pixels as they lie, row by row.

``dweight[f, ky, kx, c] = sum over pixels of dy[y, x, f] x[y + ky - 1, x + kx - 1, c]``: one product of 64 filters and
all that one kx has, 3 ky x channels. In shared memory a row of x lies in parts of 8 channels, one pixel's 16 bytes
after another's, part after part, row after row: so the blocks of columns of three ky are as far from each other as
those of a row's parts, and kx is 16 bytes. The gradient lies in parts of 8 filters. Both are read as transposed, 8
pixels of a row at a time; rows are filled up with zeros. A block takes a few rows of a photo (or of photos side by
side) a turn, each of its three warpgroups has one kx, and the sums stay in registers until the block's share of all
rows is done; `conv_weight_gradient.reduction` adds the blocks' in order. The bias gradient is one more product with
ones.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any, Final, final

from core.gpu.cuda import cuda, device_function, types
from core.gpu.kernels.fragments import ONES, divide, fast_divisor
from core.gpu.kernels.warpgroup import TILE, Place, high_word, low_word, make_products, make_wait, uniform
from core.gpu.kernels.wgmma import show_to_tensor_cores
from core.gpu.ptx import (
    WAIT_COPIES,
    commit_copies,
    copy_async16,
    float_to_bits,
    shared_address,
    shared_store4,
    store2,
    store_float,
)

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

THREADS: Final = 384
"""A warpgroup for each kx."""

SPREAD: Final = {2: 4, 4: 2, 6: 5, 8: 1}
"""Pixels from one part of x to the next, modulo 8, by parts: so that the copies of a pixel fall into other banks."""

ARGUMENTS: Final = (
    *(types.uint64,) * 3,  # x, dy, partial
    *(types.int32,) * 3,  # turns in all, a block, a photo
    *(types.uint32,) * 2,  # fast division by turns a photo
    *(types.int32,) * 4,  # photos, height; pixel pitch of x and of dy, in elements
    *(types.int32,) * 2,  # filters; floats of one partial result
)


@final
@dataclass(frozen=True, slots=True)
class Rows:
    """A block's work: `parts` of 8 channels, photos `width` pixels wide, `rows` of `abreast` photos a turn.

    `tiles` x 64 filters, stages. `lines`: eight lanes copy eight pixels of a part, a line of shared memory, not the
    parts of a pixel.
    """

    parts: int
    width: int
    rows: int
    tiles: int
    stages: int
    abreast: int = 1
    lines: bool = False

    @property
    def numbers(self) -> tuple[int, ...]:
        """The fields, for a recipe."""
        return astuple(self)

    @property
    def eights(self) -> int:
        """Blocks of 8 pixels of a row, the last one filled up; a zero lies between photos."""
        return -(-(self.abreast * (self.width + 1) - 1) // 8)

    @property
    def steps(self) -> int:
        """Pairs of blocks of a turn, the last one filled up."""
        return -(-self.rows * self.eights // 2)

    @property
    def room(self) -> int:
        """Pixels' room of a part of a row of x: one more on either side."""
        least = 8 * self.eights + 2
        if self.lines:
            return -(-least // 8) * 8
        return least + (SPREAD.get(self.parts, 1) - least) % 8

    @property
    def pitch(self) -> int:
        """Pixels from 8 filters of the gradient to the next 8: one more, against bank conflicts, but for `lines`."""
        return 16 * self.steps + (0 if self.lines else 1)

    @property
    def gradient(self) -> int:
        """Where the gradient begins in a stage, in units of 16 bytes; x lies before it."""
        return (self.rows + 2) * self.parts * self.room

    @property
    def ones(self) -> int:
        """Where two blocks of ones begin."""
        return self.gradient + 8 * self.tiles * self.pitch

    @property
    def stage(self) -> int:
        """Units of 16 bytes of a stage."""
        return self.ones + 16

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory."""
        return 16 * self.stages * self.stage

    def waste(self, height: int) -> float:
        """Pixels computed over pixels of photos so high."""
        computed = -(-height // self.rows) * self.steps * 16
        return computed / (self.abreast * height * self.width)

    def pixels(self, eight: int) -> int:
        """Where the block of 8 pixels of so high a number begins in the first part of x."""
        return eight // self.eights * self.parts * self.room + eight % self.eights * 8

    def products(self) -> tuple[list[list[Place]], list[list[Place]]]:
        """A turn's products of every 64 filters, and those with ones: 16 pixels each, perhaps of two rows."""
        wide, narrow = [], []
        starts = [self.pixels(eight) for eight in range(self.rows * self.eights)]
        starts += [starts[-1] + 8] * (len(starts) % 2)  # anything: the gradient is zero there
        for tile in range(self.tiles):
            first = [8 * tile * self.pitch + 16 * i for i in range(self.steps)]
            pairs = zip(first, starts[::2], starts[1::2], strict=True)
            wide.append([(a, 0, b + (c - b - 8 << 16)) for a, b, c in pairs])
            narrow.append([(a, 0, self.ones) for a in first])
        return wide, narrow


def make_sender(shape: Rows) -> Any:
    """Device function that starts the copies of a turn: rows of photos, of x one more above and below."""
    P, W, E, F, R, A = shape.parts, shape.width, shape.eights, 8 * shape.tiles, shape.rows, shape.abreast
    ALL, ROOM, PITCH, GRADIENT, TH = A * W, shape.room, shape.pitch, shape.gradient, THREADS
    COUNT, OTHER = (R + 2) * ALL * P, R * ALL * F
    (P_MUL, P_SHIFT), (W_MUL, W_SHIFT), (F_MUL, F_SHIFT) = fast_divisor(P), fast_divisor(W), fast_divisor(F)
    ALL_MUL, ALL_SHIFT = fast_divisor(ALL)

    @device_function
    def send(slot, place, tid):
        x, dy, turn, turns, t_mul, t_shift, photos, height, pitch, ldy = place
        n = i32(divide(u32(turn), t_mul, t_shift))
        y = i32((turn - n * turns) * R)
        first = i64(i64(i32(n * A * height + y)) * W)
        left, beside = i32(photos - n * A), i32((height - 1) * W)
        x, dy = u64(x + u64((first - W) * pitch * 2)), u64(dy + u64(first * ldy * 2))
        for i in range(tid, COUNT, TH):
            q = i32(divide(u32(i), P_MUL, P_SHIFT))
            row, part = i32(divide(u32(q), ALL_MUL, ALL_SHIFT)), i32(i32(i) - q * P)
            u = i32(q - row * ALL)
            a = i32(divide(u32(u), W_MUL, W_SHIFT)) if A > 1 else i32(0)
            ok = u32(y + row - 1) < u32(height) and a < left
            at = i32(i32(row * W + u + a * beside) * pitch + part * 8)
            to = u32(slot + u32(((row * P + part) * ROOM + u + a + 1) * 16))
            copy_async16(to, u64(x + u64(i64(at) * 2)) if ok else dy, u32(16) if ok else u32(0))
        for i in range(tid, OTHER, TH):
            q = i32(divide(u32(i), F_MUL, F_SHIFT))
            row, part = i32(divide(u32(q), ALL_MUL, ALL_SHIFT)), i32(i32(i) - q * F)
            u = i32(q - row * ALL)
            a = i32(divide(u32(u), W_MUL, W_SHIFT)) if A > 1 else i32(0)
            ok = y + row < height and a < left
            at = i32(i32(row * W + u + a * beside) * ldy + part * 8)
            to = u32(slot + u32((GRADIENT + part * PITCH + row * E * 8 + u + a) * 16))
            copy_async16(to, u64(dy + u64(i64(at) * 2)) if ok else dy, u32(16) if ok else u32(0))

    return send


def make_line_copies(shape: Rows, rows: int, parts: int, apart: tuple[int, int], before: int) -> Any:
    """Device function that starts the copies of a factor's `rows` rows, warp by warp.

    A part's places, a line of eight for eight lanes, are `before` its first pixel; four parts a warp, or two, are whole
    sectors of memory. `apart`: places from row to row and from part to part.
    """
    W, A, TOGETHER, (ROW, PART) = shape.width, shape.abreast, 4 if parts % 4 == 0 else 2 - parts % 2, apart
    ACROSS, PLACES = parts // TOGETHER, 32 // TOGETHER
    STRETCHES, WARPS = -(-(A * (W + 1) - 1 + before) // PLACES), THREADS // 32
    UNITS, (S_MUL, S_SHIFT), (A_MUL, A_SHIFT) = rows * ACROSS * STRETCHES, fast_divisor(STRETCHES), fast_divisor(ACROSS)
    N_MUL, N_SHIFT = fast_divisor(W + 1)

    @device_function
    def copy(to, source, first, height, left, pitch, warp, lane):
        part, place = i32(lane // PLACES), i32(lane % PLACES)
        for i in range(warp, UNITS, WARPS):
            q = i32(divide(u32(i), S_MUL, S_SHIFT))
            row = i32(divide(u32(q), A_MUL, A_SHIFT))
            p, c = i32((i - q * STRETCHES) * PLACES + place), i32((q - row * ACROSS) * TOGETHER + part)
            u = i32(p - before)
            a = i32(divide(u32(max(u, 0)), N_MUL, N_SHIFT)) if A > 1 else i32(0)
            u = i32(u - a * (W + 1))
            if u >= 0 and u < W and a < A:
                ok = u32(first + row) < u32(height) and a < left
                at = i32(i32((a * height + row) * W + u) * pitch + c * 8)
                copy_async16(
                    u32(to + u32((row * ROW + c * PART + p) * 16)), u64(source + u64(i64(at) * 2)) if ok else source,
                    u32(16) if ok else u32(0),
                )

    return copy


def make_line_sender(shape: Rows) -> Any:
    """`make_sender` with copies by whole lines."""
    P, W, F, R, A = shape.parts, shape.width, 8 * shape.tiles, shape.rows, shape.abreast
    GRADIENT = shape.gradient
    copy_x = make_line_copies(shape, R + 2, P, (P * shape.room, shape.room), 1)
    copy_dy = make_line_copies(shape, R, F, (shape.eights * 8, shape.pitch), 0)

    @device_function
    def send(slot, place, tid):
        x, dy, turn, turns, t_mul, t_shift, photos, height, pitch, ldy = place
        n = i32(divide(u32(turn), t_mul, t_shift))
        y = i32((turn - n * turns) * R)
        first, left = i64(i64(i32(n * A * height + y)) * W), i32(photos - n * A)
        warp, lane = uniform(i32(tid >> 5)), i32(tid & 31)
        copy_x(slot, u64(x + u64((first - W) * pitch * 2)), i32(y - 1), height, left, pitch, warp, lane)
        copy_dy(u32(slot + u32(GRADIENT * 16)), u64(dy + u64(first * ldy * 2)), y, height, left, ldy, warp, lane)

    return send


def make_row_gradient(
    parts: int, width: int, rows: int, tiles: int, stages: int, abreast: int, lines: bool = False
) -> Any:
    """The kernel as a Python function; the arguments are those of `Rows`."""
    shape = Rows(parts, width, rows, tiles, stages, abreast, lines)
    P, MT, ST, TH, STAGE, ONE = parts, tiles, stages, THREADS, shape.stage * 16, ONES["bf16"]
    BLOCKS, NACC, FILTERS = 3 * parts, tiles * (12 * parts + 4), TILE * tiles
    FIRST_ONE, UNITS, LAST, CHANNELS = shape.ones, shape.stage, (stages - 1) * shape.stage * 16, 8 * parts
    GRADIENT, PITCH, ROOM = shape.gradient * 16, shape.pitch * 16, shape.room * 16
    assert stages >= 3
    wide, narrow = shape.products()
    products = make_products(24 * parts, wide, (True, True), narrow=narrow)
    keep_one, finish = make_wait(NACC, 1), make_wait(NACC, 0)
    wait, wait_all, send = WAIT_COPIES[ST - 3], WAIT_COPIES[0], (make_line_sender if lines else make_sender)(shape)

    @device_function
    def clear(base, tid):
        """Zeros for all that no copy fills, and the ones."""
        for i in range(tid, ST * UNITS, TH):
            word = u32(ONE) if i % UNITS >= FIRST_ONE else u32(0)
            shared_store4(u32(base + u32(i * 16)), word, word, word, word)

    @device_function
    def store(acc, mine, bf, group, warp, lane, filters):
        """A warpgroup's sums into the block's partial result, and its biases' of the first one."""
        g, t, depth = i32(lane >> 2), i32(lane & 3), i32(9 * CHANNELS)
        for m in range(MT):
            for half in range(2):
                f = i32(bf + m * TILE + (warp & 3) * 16 + g + half * 8)
                row = u64(mine + u64((i64(f) * depth + group * CHANNELS + t * 2) * 4))
                for i in range(BLOCKS):
                    o = (m * BLOCKS + i) * 4 + half * 2
                    at = u64(row + u64((i // P * 3 * CHANNELS + i % P * 8) * 4))
                    store2(at, float_to_bits(acc[o]), float_to_bits(acc[o + 1]))
                if group == 0 and t == 0:
                    at = u64(mine + u64((i64(filters) * depth + f) * 4))
                    store_float(at, acc[MT * BLOCKS * 4 + m * 4 + half * 2])

    def row_gradient(x, dy, partial, total, each, turns, t_mul, t_shift, photos, height, pitch, ldy, filters, size):
        shared = cuda.shared.array(0, dtype=types.uint8)
        base = shared_address(shared)
        tid = i32(cuda.threadIdx.x)
        lane, warp = i32(tid & 31), uniform(i32(tid >> 5))
        group, bf = i32(warp >> 2), i32(i32(cuda.blockIdx.y) * FILTERS)
        dy = u64(dy + u64(bf * 2))
        clear(base, tid)
        cuda.syncthreads()
        acc = cuda.local.array(NACC, dtype=types.float32)
        for i in range(NACC):
            acc[i] = f32(0.0)
        turn = i32(i32(cuda.blockIdx.x) * each)
        end = i32(min(turn + each, total))
        filled, used = u32(0), u32(0)
        every = u32(1) if group == 0 else u32(0)
        for ahead in range(ST - 2):
            later = i32(turn + ahead)
            if later < end:
                place = (x, dy, later, turns, t_mul, t_shift, photos, height, pitch, ldy)
                send(u32(base + u32(ahead * STAGE)), place, tid)
            commit_copies()
        filled = u32((ST - 2) * STAGE)
        while turn < end:
            wait()
            show_to_tensor_cores()
            cuda.syncthreads()  # this turn's rows are here; no product reads the slot that is filled next
            slot = u32(base + used)
            used = u32(used + u32(STAGE)) if used != u32(LAST) else u32(0)
            a = low_word(u32(slot + u32(GRADIENT)), u32(128))
            b = low_word(u32(slot + u32(group * 16)), u32(128))
            products(acc, a, high_word(u32(PITCH)), u32(0), b, high_word(u32(ROOM)), every)
            later = i32(turn + ST - 2)
            if later < end:
                place = (x, dy, later, turns, t_mul, t_shift, photos, height, pitch, ldy)
                send(u32(base + filled), place, tid)
                filled = u32(filled + u32(STAGE)) if filled != u32(LAST) else u32(0)
            commit_copies()
            keep_one(acc)
            turn = i32(turn + 1)
        finish(acc)
        wait_all()
        mine = u64(partial + u64(i64(i32(cuda.blockIdx.x)) * i64(size) * 4))
        store(acc, mine, bf, group, warp, lane, filters)

    return row_gradient
