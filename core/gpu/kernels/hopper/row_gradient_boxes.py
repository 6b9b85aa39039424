"""Weight gradient of a 3x3 convolution of stride 1 for Hopper: rows of pixels by the copy engine, read as they lie.

``dweight[f, ky, kx, c] = sum over pixels of dy[y, x, f] x[y + ky - 1, x + kx - 1, c]``: one product has 64 filters and
all that one kx has, three ky of the channels. Each of three warpgroups has one kx, and the sums stay in registers until
the block's share of all turns is done; `partial_sums` adds the blocks' in order. The bias gradient is
one more product, with ones.

Pixels are numbered along rows of `pitch`, at least one more than a photo's width, so that a tap is a constant distance,
as in `halo`; boxes of the copy engine, one or a few a turn, lie so by themselves and are zero beyond the photo's
edges. A pixel's channels are a swizzled line of 32, 64 or 128 bytes; `wgmma` swizzles by the address it reads, so a
factor may begin at any line. The blocks of columns of three ky are `pitch` lines apart. One thread sends for a turn's
boxes when all warps have done with the slot.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from typing import Any, Final, final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import float_to_bits, shared_address, shared_store4, store2, store_float
from core.gpu.kernels.parts.box_lines import FILLED, LONGEST, SHARED, UNIT, high_word_of
from core.gpu.kernels.parts.bulk_copy import (
    arrive,
    copy_photo_box,
    expect_bytes,
    prefetch_map,
    wait_for,
)
from core.gpu.kernels.parts.fragments import ONES, divide
from core.gpu.kernels.parts.lanes import in_turn
from core.gpu.kernels.parts.ring import make_advance, make_opening
from core.gpu.kernels.parts.warpgroup import TILE, Place, low_word, make_products, make_wait, uniform
from core.gpu.kernels.parts.wgmma import show_to_tensor_cores

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

WARPS: Final = 12
"""A warpgroup for each kx. A warp more that only sends would leave each thread 128 registers instead of 168."""
THREADS: Final = 32 * WARPS

FILTER_LINE: Final = 128
"""Bytes of 64 filters of a pixel's gradient."""
KINDS: Final = (
    *("tensor_map",) * 2,  # x and dy
    "uint64",  # partial results
    *("int32",) * 3,  # turns in all, a block, a photo
    *("uint32",) * 2,  # fast division by turns a photo
    *("int32",) * 2,  # filters; floats of one partial result
)


@final
@dataclass(frozen=True, slots=True)
class RowBoxes:
    """A block's work: `rows` of a photo a turn, `pitch` pixels from one to the next, `tiles` x 64 filters, stages.

    Boxes of x have `line` of its `channels`: 16, 32 or 64.
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

    def fitted(self, height: int, width: int) -> RowBoxes:
        """The same for photos of a size: about as many pixels a turn, turns of nearly as many rows each.

        As many stages as fit, at most as many as here; perhaps none.
        """
        pitch = self.pitch if 0 < self.pitch - width <= 2 else width + 1
        turns = -(-height // max(1, self.rows * self.pitch // pitch))
        shape = replace(self, pitch=pitch, rows=-(-height // turns))
        return replace(shape, stages=min(self.stages, (SHARED - UNIT) // (shape.stage + 16)))

    def suits(self, height: int, width: int) -> bool:
        """Whether boxes and stages are of a size that can be, and not much is computed that is filled up."""
        computed = -(-height // self.rows) * self.pixels
        return self.stages >= 2 and max(self.pitch, self.rows + 2) <= LONGEST and computed <= FILLED * height * width

    @property
    def parts(self) -> int:
        """Boxes of x side by side."""
        return -(-self.channels // self.line)

    @property
    def pixels(self) -> int:
        """Pixels that a turn sums over, filled up to whole instructions."""
        return -(-self.rows * self.pitch // 16) * 16

    @property
    def source(self) -> int:
        """Where x begins in a stage, in bytes; the gradient lies before it."""
        return self.tiles * self.pixels * FILTER_LINE

    @property
    def part(self) -> int:
        """Bytes from one box of x to the next: all that a tap of a filled up turn reads."""
        return -(-(self.pixels + 2 * self.pitch + 2) * 2 * self.line // UNIT) * UNIT

    @property
    def ones(self) -> int:
        """Where the ones begin, a factor 16 deep, for the biases."""
        return self.source + self.parts * self.part

    @property
    def stage(self) -> int:
        """Bytes of a stage."""
        return self.ones + max(UNIT, 32 * self.line)

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory: stages and their barriers."""
        return UNIT + self.stages * (self.stage + 16)

    @property
    def boxes(self) -> int:
        """Bytes that come in a turn."""
        gradient = self.tiles * self.rows * FILTER_LINE
        return self.pitch * (gradient + self.parts * (self.rows + 2) * 2 * self.line)

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Where what no box fills begins and ends in a stage: it is zero, but for the ones, which come last."""
        filled = self.rows * self.pitch
        found = [((m * self.pixels + filled) * FILTER_LINE, (m + 1) * self.pixels * FILTER_LINE)
                 for m in range(self.tiles)]  # fmt: skip
        for p in range(self.parts):
            begin = self.source + p * self.part
            found.append((begin + (filled + 2 * self.pitch) * 2 * self.line, begin + self.part))
        return [*found, (self.ones, self.stage)]

    def products(self) -> tuple[list[list[Place]], list[list[Place]]]:
        """A turn's products of every 64 filters and box of x, and those with ones."""
        steps, ones = range(self.pixels // 16), (self.ones - self.source) // 16
        firsts = [[(m * self.pixels // 16 + k) * FILTER_LINE for k in steps] for m in range(self.tiles)]
        wide = [[(first, 0, p * self.part // 16 + k * 2 * self.line) for k, first in enumerate(tile)]
                for tile in firsts for p in range(self.parts)]  # fmt: skip
        return wide, [[(first, 0, ones) for first in tile] for tile in firsts]


def make_sender(shape: RowBoxes) -> Any:
    """Device function of one thread that sends for the boxes of a turn, into the slot of so high a number."""
    STAGE, R, MT, P = shape.stage, shape.rows, shape.tiles, shape.parts
    DY, X, PART, LINE, BYTES = shape.pixels * FILTER_LINE, shape.source, shape.part, shape.line, shape.boxes

    @device_function
    def send(ring, full, slot, map_x, map_dy, bf, turn, turns, t_mul, t_shift):
        n = i32(divide(u32(turn), t_mul, t_shift))
        y, to, ready = i32((turn - n * turns) * R), u32(ring + slot * u32(STAGE)), u32(full + slot * u32(8))
        expect_bytes(ready, u32(BYTES))
        for m in range(MT):
            copy_photo_box(u32(to + u32(m * DY)), map_dy, i32(bf + m * TILE), i32(0), y, n, ready)
        for p in range(P):
            copy_photo_box(u32(to + u32(X + p * PART)), map_x, i32(p * LINE), i32(-1), i32(y - 1), n, ready)

    return send


def make_store(shape: RowBoxes) -> Any:
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


def make_row_boxes(channels: int, line: int, pitch: int, rows: int, tiles: int, stages: int) -> Any:
    """The kernel as a Python function; the arguments are those of `RowBoxes`."""
    shape = RowBoxes(channels, line, pitch, rows, tiles, stages)
    ST, STAGE, SOURCE, LINE, FILTERS = stages, shape.stage, shape.source, 2 * line, TILE * tiles
    NACC, APART, GAPS = tiles * (shape.parts * 3 * line // 2 + 4), pitch * 2 * line, shape.gaps
    HIGH_A, HIGH_B = high_word_of(FILTER_LINE), high_word_of(2 * line)
    wide, narrow = shape.products()
    products = make_products(3 * line, wide, (True, True), narrow=narrow)
    keep_one, finish = make_wait(NACC, 1), make_wait(NACC, 0)
    send, store, advance = make_sender(shape), make_store(shape), make_advance(ST)
    open_ring = make_opening(ST, WARPS)
    COUNTS, ONE = [(begin // 16, (end - begin) // 16) for begin, end in GAPS], ONES["bf16"]

    def make_clear(first: int, count: int, value: int) -> Any:
        @device_function
        def clear(ring, tid):
            for i in range(tid, ST * count, THREADS):
                slot = i32(i // count)
                at = u32(ring + u32(slot * STAGE + (first + i - slot * count) * 16))
                shared_store4(at, u32(value), u32(value), u32(value), u32(value))

        return clear

    clears = [make_clear(first, count, 0) for first, count in COUNTS[:-1] if count]
    clear = in_turn([*clears, make_clear(*COUNTS[-1], ONE)])

    def row_boxes(map_x, map_dy, partial, total, each, turns, t_mul, t_shift, filters, size):
        ring = u32((u32(shared_address(cuda.shared.array(0, types.uint8))) + u32(UNIT - 1)) & u32(-UNIT & 0xFFFFFFFF))
        full = u32(ring + u32(ST * STAGE))
        empty = u32(full + u32(8 * ST))
        tid, bf = i32(cuda.threadIdx.x), i32(i32(cuda.blockIdx.y) * FILTERS)
        lane, warp = i32(tid & 31), uniform(i32(tid >> 5))
        turn = i32(i32(cuda.blockIdx.x) * each)
        end = i32(min(turn + each, total))
        if tid == 0:
            open_ring(full, empty)
        clear(ring, tid)
        show_to_tensor_cores()
        cuda.syncthreads()  # the barriers stand, and what no box fills is there
        if tid == 0:
            prefetch_map(map_x)
            prefetch_map(map_dy)
            for ahead in range(ST - 1):
                if turn + ahead < end:
                    send(ring, full, u32(ahead), map_x, map_dy, bf, i32(turn + ahead), turns, t_mul, t_shift)
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
                    send(ring, full, before, map_x, map_dy, bf, later, turns, t_mul, t_shift)
            before = slot
            slot, parity = advance(slot, parity)
            turn = i32(turn + 1)
        finish(acc)
        mine = u64(partial + u64(i64(i32(cuda.blockIdx.x)) * i64(size) * 4))
        store(acc, mine, bf, group, warp, lane, filters)

    return row_boxes
