"""The input gradient of a fire by TMA and `wgmma`, straight from the pixels in shared memory.

``dx[p] = sum over taps of dy[p + tap] W[tap]`` with rotated filters; the fire's 1x1 half is a tenth tap, which reads
other channels of the same pixels.

A block computes `rows` rows of one image by all filters; pixels are numbered along rows of `pitch`, at least one more
than the image is wide. TMA tiles of rows are so by themselves, zero beyond the edges. `wgmma` swizzles by the address
that it reads, so a tap begins as many lines further as it is pixels away.

              columns (all)
            +----------------+   a step: three taps of a block of `line` channels, or the tenth tap (the fire's 1x1
    rows of | 64 x tiles of  |   half). One thread sends for a step when all warps have used its stage before.
    pixels  | warpgroup 0    |
            +----------------+
            | warpgroup 1    |
            +----------------+

Shared memory: two buffers of a block of channels, each the rows and one above and below, then the rows of the tenth
tap's channels, a pixel a swizzled line | stages of three taps' filters, as packed | barriers. Results take their place.
Bytes: dy once (and a row above and below each block), filters from L2 for each block, mask and dx once.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from typing import Any, Final, final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import shared_address, shared_store4
from core.gpu.launch import INTEGER, POINTER, Argument, KernelSignature, divisions, pitches
from core.gpu.parts.epilogue import make_staging, make_writing
from core.gpu.parts.vectors import divide
from core.gpu.sm90 import tma
from core.gpu.sm90.pipeline import make_advance, make_barriers
from core.gpu.sm90.swizzle import LONGEST, PADDING, PERIOD, SHARED, aligned, swizzled_high_word
from core.gpu.sm90.wgmma import (
    TILE,
    fence_async_proxy,
    high_word,
    low_word,
    make_products,
    make_wait,
    uniform,
)

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

STEPS: Final = 4
"""Stages of a block of channels: three rows of taps, and the tenth tap."""

SIGNATURE: Final = KernelSignature((
    Argument("map_x", tma.TENSOR_MAP, "gradient of the 3x3 half, a block's rows and one above and below"),
    Argument("map_second", tma.TENSOR_MAP, "gradient of the 1x1 half, a block's rows"),
    Argument("weight", POINTER, "filters of `pack_parts`, backward"),
    Argument("out", POINTER, "gradient of the input"),
    Argument("mask", POINTER, "the input's activations, 0: none"),
    Argument("turns", INTEGER, "blocks of an image"),
    Argument("height", INTEGER, "rows of an image"),
    Argument("width", INTEGER, "pixels of a row"),
    *divisions(turns="blocks of an image", pitch="pixels from one row to the next"),
    *pitches(ldo="output"),
    Argument("ldm", INTEGER, "the same of the mask"),
    Argument("masking", INTEGER, "activation of the mask: 0 none, 1 ReLU, 2 ReLU6"),
    Argument("accumulate", INTEGER, "whether to add to the output"),
))  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class HaloShape:
    """A block's work: `rows` of an image, `pitch` pixels from one to the next, by all `columns` of the filters.

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

    def fitted(self, height: int, width: int) -> HaloShape:
        """The same for maps of a size: blocks of nearly as many rows each; none where a row has too many pixels."""
        pitch = width + 1
        tiles = -(-height // max(1, self.pixels // pitch))
        return replace(self, pitch=pitch, rows=min(-(-height // tiles), self.pixels // pitch))

    def suits(self, height: int, width: int) -> bool:
        """Whether a block's pixels fit, and little is computed that is padding."""
        if not self.rows or max(self.pitch, self.rows + 2) > LONGEST or self.shared > SHARED:
            return False
        return -(-height // self.rows) * self.pixels <= PADDING * height * width

    @property
    def threads(self) -> int:
        return 128 * self.groups

    @property
    def pixels(self) -> int:
        """Pixels computed."""
        return TILE * self.groups * self.tiles

    @property
    def halo(self) -> int:
        """Bytes from a block of channels' pixels to the tenth tap's; a line of zeros at least follows the TMA tile."""
        lines = max((self.rows + 2) * self.pitch + 1, self.pixels + 2 * self.pitch + 2)
        return -(-lines * 2 * self.line // PERIOD) * PERIOD

    @property
    def span(self) -> int:
        """Bytes of a block of channels' pixels."""
        return self.halo + -(-self.pixels * 2 * self.line // PERIOD) * PERIOD

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
        """Bytes of dynamic shared memory; results take the place of pixels."""
        work = self.buffers * self.span + self.stages * self.stage
        return PERIOD + max(work, self.pixels * (self.columns * 2 + 16)) + 16 * self.stages


@device_function
def _pixel_of(i, about):
    """Pixel ``(n height + y) width + x`` of a block's i-th number, or -1.

    `about`: the first row of all, rows left in the image, width, pitch and fast division by it.
    """
    row = i32(divide(u32(i), about[4], about[5]))
    x = i32(i - row * about[3])
    return i32((about[0] + row) * about[2] + x) if row < about[1] and x < about[2] else i32(-1)


def make_sender(shape: HaloShape) -> Any:
    """Device function of one thread: the copies of a step, filters and with a block of channels' first its pixels."""
    R, LINE, TAP = shape.rows, shape.line, shape.columns * 2 * shape.line
    PIXELS, HALO, SPAN, FILTERS = shape.pitch * LINE * 2, shape.halo, shape.span, shape.buffers * shape.span

    @device_function
    def send(ring, full, slot, map_x, map_second, weight, step, n, y):
        cb = i32(step // STEPS)
        s, ready = i32(step - cb * STEPS), u32(full + slot * u32(8))
        size = u32(TAP if s == 3 else 3 * TAP)
        tma.expect_bytes(ready, u32(size + u32((2 * R + 2) * PIXELS)) if s == 0 else size)
        if s == 0:
            to = u32(ring + u32(cb & 1) * u32(SPAN))
            tma.copy_activation_tile(to, map_x, i32(cb * LINE), i32(-1), i32(y - 1), n, ready)
            tma.copy_activation_tile(u32(to + u32(HALO)), map_second, i32(cb * LINE), i32(0), y, n, ready)
        source = u64(weight + u64(i64(cb * 10 + s * 3) * i64(TAP)))
        tma.copy_bytes(u32(ring + u32(FILTERS) + slot * u32(3 * TAP)), source, size, ready)

    return send


def make_halo_tma(
    columns: int, line: int, blocks: int, pitch: int, rows: int, groups: int, tiles: int, stages: int
) -> Any:
    """The kernel as a Python function; the arguments are those of `HaloShape`."""
    shape = HaloShape(columns, line, blocks, pitch, rows, groups, tiles, stages)
    BN, L, MT, ST, TH, SPAN, HALO = columns, 2 * line, tiles, stages, shape.threads, shape.span, shape.halo
    NACC, TOTAL, FILTERS, STAGE = MT * BN // 2, blocks * STEPS, shape.buffers * SPAN, shape.stage
    BARRIERS, CH, HIGH, EDGE = shape.shared - PERIOD - 16 * ST, line // 8, swizzled_high_word(L), (rows + 2) * pitch * L
    PERIODS, BUFFERS, BM, PITCH, R = L // 16, shape.buffers, shape.pixels, pitch, rows
    assert 2 <= ST <= min(STEPS + 1, TOTAL)
    assert rows * pitch <= BM
    taps = [(tap, k) for tap in range(3) for k in range(CH // 2)]  # of a stage; B's parts are BN x 16 bytes
    products = make_products(
        BN, [[((m * TILE + tap) * PERIODS + 2 * k, 0, (tap * CH + 2 * k) * BN) for tap, k in taps] for m in range(MT)],
        first_only=CH // 2,
    )  # fmt: skip
    keep_one, finish, send = make_wait(NACC, 1), make_wait(NACC, 0), make_sender(shape)
    advance, open_barriers = make_advance(ST), make_barriers(ST, TH // 32)
    stage_out = make_staging(2, (MT, BN // 8), BN * 2 + 16, TILE)
    write_out = make_writing(2, BM, BN, TH, _pixel_of)

    def convolution(
        map_x, map_second, weight, out, mask, turns, height, width, by_turns_mul, by_turns_shift, by_pitch_mul,
        by_pitch_shift, ldo, ldm, masking, accumulate,
    ):
        ring = aligned(shared_address(cuda.shared.array(0, types.uint8)))
        full = u32(ring + u32(BARRIERS))
        empty = u32(full + u32(8 * ST))
        tid = i32(cuda.threadIdx.x)
        lane, warp = i32(tid & 31), uniform(i32(tid >> 5))
        n = i32(divide(u32(cuda.blockIdx.x), by_turns_mul, by_turns_shift))
        y = i32((i32(cuda.blockIdx.x) - n * turns) * R)
        if tid == 0:
            open_barriers(full, empty)
        if tid < BUFFERS * PERIODS:  # the right edge of the last row
            at = u32(ring + u32(tid // PERIODS * SPAN + EDGE + tid % PERIODS * 16))
            shared_store4(at, u32(0), u32(0), u32(0), u32(0))
        fence_async_proxy()
        cuda.syncthreads()  # the barriers are initialised
        if tid == 0:
            tma.prefetch_map(map_x)
            tma.prefetch_map(map_second)
            for step in range(ST - 1):
                send(ring, full, u32(step), map_x, map_second, weight, i32(step), n, y)
        wm = i32((warp >> 2) * MT * TILE)
        acc = cuda.local.array(NACC, dtype=types.float32)
        for i in range(NACC):
            acc[i] = f32(0.0)
        slot, parity, before = u32(0), u32(0), u32(ST - 1)
        for step in range(TOTAL):
            tma.wait_for(u32(full + slot * u32(8)), parity)
            cb = i32(step // STEPS)
            s = i32(step - cb * STEPS)
            begin = i32(HALO) if s == 3 else i32(s * PITCH * L)
            a = low_word(u32(ring + u32(cb & 1) * u32(SPAN) + u32(begin + wm * L)), u32(16))
            b = low_word(u32(ring + u32(FILTERS) + slot * u32(STAGE)), u32(BN * 16))
            products(acc, a, u32(HIGH), u32(0), b, high_word(u32(128)), u32(uniform(i32(0 if s == 3 else 1))))
            keep_one(acc)
            if lane == 0:  # the products of the step before read no more
                free, later = u32(empty + before * u32(8)), i32(step + ST - 1)
                tma.arrive(free)
                if warp == 0 and later < TOTAL:
                    tma.wait_for(free, parity)
                    send(ring, full, before, map_x, map_second, weight, later, n, y)
            before = slot
            slot, parity = advance(slot, parity)
        finish(acc)
        cuda.syncthreads()
        stage_out(acc, ring, i32(wm + (warp & 3) * 16), i32(0), lane, u64(0), i32(0), i32(BN), i32(0))
        cuda.syncthreads()
        about = (i32(n * height + y), i32(min(R, height - y)), width, i32(PITCH), by_pitch_mul, by_pitch_shift)
        write_out(ring, tid, i32(0), i32(BN), out, ldo, mask, ldm, masking, accumulate, about)

    return convolution
