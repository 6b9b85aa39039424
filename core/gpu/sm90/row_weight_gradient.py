"""Weight gradient of a 3x3 convolution of stride 1 by TMA and `wgmma`, rows of pixels read as they are.

``dweight[f, ky, kx, c] = sum over pixels of dy[y, x, f] x[y + ky - 1, x + kx - 1, c]``. Pixels are numbered along rows
of `pitch`, at least one more than an image is wide, so a tap is a constant distance. TMA tiles
of rows are so by themselves and are zero beyond the edges.

                     kx = 0           kx = 1           kx = 2
                3 ky x channels  3 ky x channels  3 ky x channels   ones
               +----------------+----------------+----------------+ +---+
    64 filters |  warpgroup 0   |  warpgroup 1   |  warpgroup 2   | | 8 |   sums over `rows` rows of pixels a turn;
               +----------------+----------------+----------------+ +---+   both factors are read transposed

Sums stay in registers until the block's share of all turns is done; `partial_sums` adds the blocks'
in order. The bias gradient is one more product, with ones. The columns of three ky are `pitch` lines apart.

Shared memory: stages, each dy (swizzled lines of 64 filters) | x with a row above and below (swizzled lines of 16, 32
or 64 channels) | ones; then barriers. One thread sends for a turn when all warps have used its stage before.
Bytes: dy once, x once and two rows a turn for each 64 filters, and the partial sums.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from typing import Any, Final, final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import float_to_bits, shared_address, shared_store4, store2, store_float
from core.gpu.launch import INTEGER, POINTER, Argument, KernelSignature, divisions
from core.gpu.parts.tile import ONES
from core.gpu.parts.vectors import divide, in_turn
from core.gpu.sm90.pipeline import make_advance, make_barriers
from core.gpu.sm90.swizzle import LONGEST, PADDING, PERIOD, SHARED, aligned, swizzled_high_word
from core.gpu.sm90.tma import TENSOR_MAP, arrive, copy_activation_tile, expect_bytes, prefetch_map, wait_for
from core.gpu.sm90.wgmma import TILE, Place, fence_async_proxy, low_word, make_products, make_wait, uniform

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

WARPS: Final = 12
"""A warpgroup for each kx. A warp more that only sends would leave each thread 128 registers instead of 168."""
THREADS: Final = 32 * WARPS

FILTER_LINE: Final = 128
"""Bytes of 64 filters of a pixel's gradient."""

SIGNATURE: Final = KernelSignature((
    Argument("map_x", TENSOR_MAP, "input, a turn's rows and one above and below"),
    Argument("map_dy", TENSOR_MAP, "gradient of the output, a turn's rows"),
    Argument("partial", POINTER, "partial weight and bias gradients, one of each block"),
    Argument("total", INTEGER, "turns in all"),
    Argument("each", INTEGER, "turns of a block"),
    Argument("turns", INTEGER, "turns of an image"),
    *divisions(turns="turns of an image"),
    Argument("filters", INTEGER, "filters in all"),
    Argument("size", INTEGER, "floats of a partial result"),
))  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class RowShape:
    """A block's work: `rows` of an image a turn, `pitch` pixels from one to the next, `tiles` x 64 filters, stages.

    TMA tiles of x have `line` of its `channels`: 16, 32 or 64.
    """

    channels: int
    line: int
    pitch: int
    rows: int
    tiles: int
    stages: int

    @property
    def numbers(self) -> tuple[int, ...]:
        """The fields, for a recipe."""
        return astuple(self)

    def fitted(self, height: int, width: int) -> RowShape:
        """The same for maps of a size: about as many pixels a turn, turns of nearly as many rows each.

        As many stages as fit, at most as many as here; perhaps none.
        """
        pitch = self.pitch if 0 < self.pitch - width <= 2 else width + 1
        turns = -(-height // max(1, self.rows * self.pitch // pitch))
        shape = replace(self, pitch=pitch, rows=-(-height // turns))
        return replace(shape, stages=min(self.stages, (SHARED - PERIOD) // (shape.stage + 16)))

    def suits(self, height: int, width: int) -> bool:
        """Whether TMA tiles and stages have a possible size, and little is computed that is padding."""
        computed = -(-height // self.rows) * self.pixels
        return self.stages >= 2 and max(self.pitch, self.rows + 2) <= LONGEST and computed <= PADDING * height * width

    @property
    def parts(self) -> int:
        """TMA tiles of x side by side."""
        return -(-self.channels // self.line)

    @property
    def pixels(self) -> int:
        """Pixels that a turn sums over, up to whole instructions."""
        return -(-self.rows * self.pitch // 16) * 16

    @property
    def source(self) -> int:
        """Where x begins in a stage, in bytes; the gradient is before it."""
        return self.tiles * self.pixels * FILTER_LINE

    @property
    def part(self) -> int:
        """Bytes from one TMA tile of x to the next: all that a tap of a padded turn reads."""
        return -(-(self.pixels + 2 * self.pitch + 2) * 2 * self.line // PERIOD) * PERIOD

    @property
    def ones(self) -> int:
        """Where the ones begin, a factor 16 deep, for the biases."""
        return self.source + self.parts * self.part

    @property
    def stage(self) -> int:
        """Bytes of a stage."""
        return self.ones + max(PERIOD, 32 * self.line)

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory: stages and their barriers."""
        return PERIOD + self.stages * (self.stage + 16)

    @property
    def copied(self) -> int:
        """Bytes that TMA copies in a turn."""
        gradient = self.tiles * self.rows * FILTER_LINE
        return self.pitch * (gradient + self.parts * (self.rows + 2) * 2 * self.line)

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Where what TMA does not fill begins and ends in a stage: zeros, but for the ones, which come last."""
        filled = self.rows * self.pitch
        found = [((m * self.pixels + filled) * FILTER_LINE, (m + 1) * self.pixels * FILTER_LINE)
                 for m in range(self.tiles)]  # fmt: skip
        for p in range(self.parts):
            begin = self.source + p * self.part
            found.append((begin + (filled + 2 * self.pitch) * 2 * self.line, begin + self.part))
        return [*found, (self.ones, self.stage)]

    def products(self) -> tuple[list[list[Place]], list[list[Place]]]:
        """A turn's products of every 64 filters and TMA tile of x, and those with ones."""
        steps, ones = range(self.pixels // 16), (self.ones - self.source) // 16
        firsts = [[(m * self.pixels // 16 + k) * FILTER_LINE for k in steps] for m in range(self.tiles)]
        wide = [[(first, 0, p * self.part // 16 + k * 2 * self.line) for k, first in enumerate(tile)]
                for tile in firsts for p in range(self.parts)]  # fmt: skip
        return wide, [[(first, 0, ones) for first in tile] for tile in firsts]


def make_sender(shape: RowShape) -> Any:
    """Device function of one thread: the copies of a turn into a stage."""
    STAGE, R, MT, P = shape.stage, shape.rows, shape.tiles, shape.parts
    DY, X, PART, LINE, BYTES = shape.pixels * FILTER_LINE, shape.source, shape.part, shape.line, shape.copied

    @device_function
    def send(ring, full, slot, map_x, map_dy, bf, turn, turns, t_mul, t_shift):
        n = i32(divide(u32(turn), t_mul, t_shift))
        y, to, ready = i32((turn - n * turns) * R), u32(ring + slot * u32(STAGE)), u32(full + slot * u32(8))
        expect_bytes(ready, u32(BYTES))
        for m in range(MT):
            copy_activation_tile(u32(to + u32(m * DY)), map_dy, i32(bf + m * TILE), i32(0), y, n, ready)
        for p in range(P):
            copy_activation_tile(u32(to + u32(X + p * PART)), map_x, i32(p * LINE), i32(-1), i32(y - 1), n, ready)

    return send


def make_store(shape: RowShape) -> Any:
    """Device function: a warpgroup's sums into the block's partial result, and its biases' of the first one."""
    MT, P, C, EIGHTS, LINE = shape.tiles, shape.parts, shape.channels, shape.line // 8, shape.line
    BLOCKS = 3 * EIGHTS * P

    @device_function
    def store(acc, mine, bf, group, warp, lane, filters):
        g, t, depth = i32(lane >> 2), i32(lane & 3), i32(9 * C)
        for m in range(MT):
            for half in range(2):
                f = i32(bf + m * TILE + (warp & 3) * 16 + g + half * 8)
                row = u64(mine + u64((i64(f) * depth + group * C + t * 2) * 4))
                for i in range(BLOCKS):
                    ky, c = i // EIGHTS % 3, i // EIGHTS // 3 * LINE + i % EIGHTS * 8
                    o = (m * BLOCKS + i) * 4 + half * 2
                    if c < C:
                        at = u64(row + u64((ky * 3 * C + c) * 4))
                        store2(at, float_to_bits(acc[o]), float_to_bits(acc[o + 1]))
                if group == 0 and t == 0:
                    at = u64(mine + u64((i64(filters) * depth + f) * 4))
                    store_float(at, acc[MT * BLOCKS * 4 + m * 4 + half * 2])

    return store


def make_clear(shape: RowShape) -> Any:
    """Device function: zeros and ones into every stage where TMA does not write."""
    ST, STAGE = shape.stages, shape.stage

    def of_gap(first: int, count: int, value: int) -> Any:
        @device_function
        def clear(ring, tid):
            for i in range(tid, ST * count, THREADS):
                slot = i32(i // count)
                at = u32(ring + u32(slot * STAGE + (first + i - slot * count) * 16))
                shared_store4(at, u32(value), u32(value), u32(value), u32(value))

        return clear

    gaps = [(begin // 16, (end - begin) // 16) for begin, end in shape.gaps]
    return in_turn([*[of_gap(*gap, 0) for gap in gaps[:-1] if gap[1]], of_gap(*gaps[-1], ONES["bf16"])])


def make_row_weight_gradient(channels: int, line: int, pitch: int, rows: int, tiles: int, stages: int) -> Any:
    """The kernel as a Python function; the arguments are those of `RowShape`."""
    shape = RowShape(channels, line, pitch, rows, tiles, stages)
    ST, STAGE, SOURCE, LINE, FILTERS = stages, shape.stage, shape.source, 2 * line, TILE * tiles
    NACC, APART = tiles * (shape.parts * 3 * line // 2 + 4), pitch * 2 * line
    HIGH_A, HIGH_B = swizzled_high_word(FILTER_LINE), swizzled_high_word(2 * line)
    wide, narrow = shape.products()
    products = make_products(3 * line, wide, (True, True), narrow=narrow)
    keep_one, finish = make_wait(NACC, 1), make_wait(NACC, 0)
    send, store, clear = make_sender(shape), make_store(shape), make_clear(shape)
    advance, open_barriers = make_advance(ST), make_barriers(ST, WARPS)

    def weight_gradient(map_x, map_dy, partial, total, each, turns, by_turns_mul, by_turns_shift, filters, size):
        ring = aligned(shared_address(cuda.shared.array(0, types.uint8)))
        full = u32(ring + u32(ST * STAGE))
        empty = u32(full + u32(8 * ST))
        tid, bf = i32(cuda.threadIdx.x), i32(i32(cuda.blockIdx.y) * FILTERS)
        lane, warp = i32(tid & 31), uniform(i32(tid >> 5))
        turn = i32(i32(cuda.blockIdx.x) * each)
        end = i32(min(turn + each, total))
        if tid == 0:
            open_barriers(full, empty)
        clear(ring, tid)
        fence_async_proxy()
        cuda.syncthreads()  # the barriers are initialised, and what TMA does not fill is there
        if tid == 0:
            prefetch_map(map_x)
            prefetch_map(map_dy)
            for ahead in range(ST - 1):
                if turn + ahead < end:
                    send(ring, full, u32(ahead), map_x, map_dy, bf, i32(turn + ahead), turns, by_turns_mul,
                         by_turns_shift)
        group = i32(warp >> 2)
        every = u32(1) if group == 0 else u32(0)
        acc = cuda.local.array(NACC, dtype=types.float32)
        for i in range(NACC):
            acc[i] = f32(0.0)
        slot, parity, before = u32(0), u32(0), u32(ST - 1)
        while turn < end:
            wait_for(u32(full + slot * u32(8)), parity)
            a = u32(ring + slot * u32(STAGE))
            b = low_word(u32(a + u32(SOURCE) + u32(group * LINE)), u32(APART))
            products(acc, low_word(a, u32(16)), u32(HIGH_A), u32(0), b, u32(HIGH_B), every)
            keep_one(acc)
            if lane == 0:  # the products of the turn before read no more
                free, later = u32(empty + before * u32(8)), i32(turn + ST - 1)
                arrive(free)
                if warp == 0 and later < end:
                    wait_for(free, parity)
                    send(ring, full, before, map_x, map_dy, bf, later, turns, by_turns_mul, by_turns_shift)
            before = slot
            slot, parity = advance(slot, parity)
            turn = i32(turn + 1)
        finish(acc)
        mine = u64(partial + u64(i64(i32(cuda.blockIdx.x)) * i64(size) * 4))
        store(acc, mine, bf, group, warp, lane, filters)

    return weight_gradient
