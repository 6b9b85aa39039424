"""`halo_warpgroup` with its pixels and filters brought by the copy engine: a fire's input gradient.

A block computes a few rows of a photo, its pixels numbered along rows of `pitch`, one more than a photo is wide or two.
Boxes of rows lie so by themselves, zero beyond the photo's edges, a pixel's channels a swizzled line; `wgmma` swizzles
by the address it reads, so a tap begins as many lines further as it is pixels away. Filters come as they are packed,
three taps at a time. One thread sends for a stage when all warps have done with its slot.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from typing import Any, Final, final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import shared_address, shared_store4
from core.gpu.kernels.parts.box_lines import FILLED, LONGEST, SHARED, UNIT, high_word_of
from core.gpu.kernels.parts.bulk_copy import (
    arrive,
    copy_bytes,
    copy_photo_box,
    expect_bytes,
    prefetch_map,
    wait_for,
)
from core.gpu.kernels.parts.epilogue import make_staging, make_writing
from core.gpu.kernels.parts.fragments import divide
from core.gpu.kernels.parts.ring import make_advance, make_opening
from core.gpu.kernels.parts.warpgroup import TILE, high_word, low_word, make_products, make_wait, uniform
from core.gpu.kernels.parts.wgmma import show_to_tensor_cores

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

STEPS: Final = 4
"""Stages of a block of channels: three rows of taps, and the tenth tap."""

KINDS: Final = (
    *("tensor_map",) * 2,  # x around a block's rows; the second segment's rows
    *("uint64",) * 3,  # packed filters, out, mask (0: none)
    *("int32",) * 3,  # tiles a photo, height, width
    *("uint32",) * 4,  # fast division by tiles a photo and by pitch
    *("int32",) * 4,  # pitch of out and of the mask, masking, accumulate
)


@final
@dataclass(frozen=True, slots=True)
class HaloBoxes:
    """A block's work: `rows` of a photo, `pitch` pixels from one to the next, by all `columns` of the filters.

    `blocks` of `line` channels (32 or 64); `groups` of four warps with `tiles` x 64 pixels each; stages.
    """

    columns: int
    line: int
    blocks: int
    pitch: int
    rows: int
    groups: int
    tiles: int
    stages: int

    @property
    def numbers(self) -> tuple[int, ...]:
        """The fields, for a recipe."""
        return astuple(self)

    def fitted(self, height: int, width: int) -> HaloBoxes:
        """The same for photos of a size: blocks of nearly as many rows each; none where a row has too many pixels."""
        pitch = width + 1
        tiles = -(-height // max(1, self.pixels // pitch))
        return replace(self, pitch=pitch, rows=min(-(-height // tiles), self.pixels // pitch))

    def suits(self, height: int, width: int) -> bool:
        """Whether a block's pixels fit, and not much is computed that is filled up."""
        if not self.rows or max(self.pitch, self.rows + 2) > LONGEST or self.shared > SHARED:
            return False
        return -(-height // self.rows) * self.pixels <= FILLED * height * width

    @property
    def threads(self) -> int:
        return 128 * self.groups

    @property
    def pixels(self) -> int:
        """Pixels computed."""
        return TILE * self.groups * self.tiles

    @property
    def halo(self) -> int:
        """Bytes from a block of channels' pixels to the second segment's; a line of zeros at least follows the box."""
        lines = max((self.rows + 2) * self.pitch + 1, self.pixels + 2 * self.pitch + 2)
        return -(-lines * 2 * self.line // UNIT) * UNIT

    @property
    def span(self) -> int:
        """Bytes of a block of channels' pixels."""
        return self.halo + -(-self.pixels * 2 * self.line // UNIT) * UNIT

    @property
    def buffers(self) -> int:
        """Blocks of channels in shared memory."""
        return min(2, self.blocks)

    @property
    def stage(self) -> int:
        """Bytes of three taps' filters."""
        return 3 * self.columns * 2 * self.line

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory; results lie where pixels were."""
        work = self.buffers * self.span + self.stages * self.stage
        return UNIT + max(work, self.pixels * (self.columns * 2 + 16)) + 16 * self.stages


@device_function
def _pixel_of(i, about):
    """Pixel ``(n height + y) width + x`` of a block's i-th number, or -1.

    `about`: the first row of all, rows left in the photo, width, pitch and fast division by it.
    """
    row = i32(divide(u32(i), about[4], about[5]))
    x = i32(i - row * about[3])
    return i32((about[0] + row) * about[2] + x) if row < about[1] and x < about[2] else i32(-1)


def make_sender(shape: HaloBoxes) -> Any:
    """Device function of one thread that sends for step `step`: filters, with a block of channels' first its pixels."""
    R, LINE, TAP = shape.rows, shape.line, shape.columns * 2 * shape.line
    PIXELS, HALO, SPAN, FILTERS = shape.pitch * LINE * 2, shape.halo, shape.span, shape.buffers * shape.span

    @device_function
    def send(ring, full, slot, map_x, map_second, weight, step, n, y):
        cb = i32(step // STEPS)
        s, ready = i32(step - cb * STEPS), u32(full + slot * u32(8))
        size = u32(TAP if s == 3 else 3 * TAP)
        expect_bytes(ready, u32(size + u32((2 * R + 2) * PIXELS)) if s == 0 else size)
        if s == 0:
            to = u32(ring + u32(cb & 1) * u32(SPAN))
            copy_photo_box(to, map_x, i32(cb * LINE), i32(-1), i32(y - 1), n, ready)
            copy_photo_box(u32(to + u32(HALO)), map_second, i32(cb * LINE), i32(0), y, n, ready)
        source = u64(weight + u64(i64(cb * 10 + s * 3) * i64(TAP)))
        copy_bytes(u32(ring + u32(FILTERS) + slot * u32(3 * TAP)), source, size, ready)

    return send


def make_halo_boxes(
    columns: int, line: int, blocks: int, pitch: int, rows: int, groups: int, tiles: int, stages: int
) -> Any:
    """The kernel as a Python function; the arguments are those of `HaloBoxes`."""
    shape = HaloBoxes(columns, line, blocks, pitch, rows, groups, tiles, stages)
    BN, L, MT, ST, TH, SPAN, HALO = columns, 2 * line, tiles, stages, shape.threads, shape.span, shape.halo
    NACC, TOTAL, FILTERS, STAGE = MT * BN // 2, blocks * STEPS, shape.buffers * SPAN, shape.stage
    BARRIERS, CH, HIGH, EDGE = shape.shared - UNIT - 16 * ST, line // 8, high_word_of(L), (rows + 2) * pitch * L
    UNITS, BUFFERS, BM, PITCH, R = L // 16, shape.buffers, shape.pixels, pitch, rows
    assert 2 <= ST <= min(STEPS + 1, TOTAL)
    assert rows * pitch <= BM
    turns = [(tap, k) for tap in range(3) for k in range(CH // 2)]  # of a stage; B's parts are BN x 16 bytes
    products = make_products(
        BN, [[((m * TILE + tap) * UNITS + 2 * k, 0, (tap * CH + 2 * k) * BN) for tap, k in turns] for m in range(MT)],
        first_only=CH // 2,
    )  # fmt: skip
    keep_one, finish, send = make_wait(NACC, 1), make_wait(NACC, 0), make_sender(shape)
    advance, open_ring = make_advance(ST), make_opening(ST, TH // 32)
    stage_out = make_staging(2, (MT, BN // 8), BN * 2 + 16, TILE)
    write_out = make_writing(2, BM, BN, TH, _pixel_of)

    def convolution(
        map_x, map_second, weight, out, mask, turns, height, width, t_mul, t_shift, p_mul, p_shift, ldc, ldm, masking,
        accumulate,
    ):
        ring = u32((u32(shared_address(cuda.shared.array(0, types.uint8))) + u32(UNIT - 1)) & u32(-UNIT & 0xFFFFFFFF))
        full = u32(ring + u32(BARRIERS))
        empty = u32(full + u32(8 * ST))
        tid = i32(cuda.threadIdx.x)
        lane, warp = i32(tid & 31), uniform(i32(tid >> 5))
        n = i32(divide(u32(cuda.blockIdx.x), t_mul, t_shift))
        y = i32((i32(cuda.blockIdx.x) - n * turns) * R)
        if tid == 0:
            open_ring(full, empty)
        if tid < BUFFERS * UNITS:  # the right edge of the last row
            at = u32(ring + u32(tid // UNITS * SPAN + EDGE + tid % UNITS * 16))
            shared_store4(at, u32(0), u32(0), u32(0), u32(0))
        show_to_tensor_cores()
        cuda.syncthreads()  # the barriers stand
        if tid == 0:
            prefetch_map(map_x)
            prefetch_map(map_second)
            for step in range(ST - 1):
                send(ring, full, u32(step), map_x, map_second, weight, i32(step), n, y)
        wm = i32((warp >> 2) * MT * TILE)
        acc = cuda.local.array(NACC, dtype=types.float32)
        for i in range(NACC):
            acc[i] = f32(0.0)
        slot, parity, before = u32(0), u32(0), u32(ST - 1)
        for step in range(TOTAL):
            wait_for(u32(full + slot * u32(8)), parity)
            cb = i32(step // STEPS)
            s = i32(step - cb * STEPS)
            begin = i32(HALO) if s == 3 else i32(s * PITCH * L)
            a = low_word(u32(ring + u32(cb & 1) * u32(SPAN) + u32(begin + wm * L)), u32(16))
            b = low_word(u32(ring + u32(FILTERS) + slot * u32(STAGE)), u32(BN * 16))
            products(acc, a, u32(HIGH), u32(0), b, high_word(u32(128)), u32(uniform(i32(0 if s == 3 else 1))))
            keep_one(acc)
            if lane == 0:  # the products of the step before read no more
                free, later = u32(empty + before * u32(8)), i32(step + ST - 1)
                arrive(free)
                if warp == 0 and later < TOTAL:
                    wait_for(free, parity)
                    send(ring, full, before, map_x, map_second, weight, later, n, y)
            before = slot
            slot, parity = advance(slot, parity)
        finish(acc)
        cuda.syncthreads()
        stage_out(acc, ring, i32(wm + (warp & 3) * 16), i32(0), lane, u64(0), i32(0), i32(BN), i32(0))
        cuda.syncthreads()
        about = (i32(n * height + y), i32(min(R, height - y)), width, i32(PITCH), p_mul, p_shift)
        write_out(ring, tid, i32(0), i32(BN), out, ldc, mask, ldm, masking, accumulate, about)

    return convolution
