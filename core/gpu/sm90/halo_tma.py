"""The input gradient of a fire by TMA and `wgmma`, straight from the pixels in shared memory.

``dx[p] = sum over taps of dy[p + tap] W[tap]`` with rotated filters; the fire's 1x1 half is a tenth tap, which reads
other channels of the same pixels.

A block computes `rows` rows of one image by all filters; pixels are numbered along rows of `pitch`, at least one more
than the image is wide. TMA tiles of rows have this layout, zero beyond the edges. `wgmma` swizzles by the address that
it reads, so a tap begins as many tile rows further as it is pixels away.

              columns (all)
            +----------------+   a stage: three taps of a block of `channels`, or the tenth tap (the fire's 1x1 half)
    rows of | 64 x tiles of  |
    pixels  | warpgroup 0    |   the producer is thread 0 of warpgroup 0: it starts the copies of a later step
            +----------------+   when all warps have released the stage
            | warpgroup 1    |
            +----------------+

Shared memory: two buffers of a block of channels, each the rows and one above and below, then the rows of the tenth
tap's channels, a swizzled row per pixel | stages of three taps' filters | barriers. Results replace the pixels.
Bytes: dy once (and a row above and below each block), filters from L2 for each block, mask and dx once.
Floor: (2 dy + mask + dx) / bandwidth. Source: NVIDIA CUTLASS, PipelineTmaAsync; PTX ISA 8.x, 9.7.15; ADR 21.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from core.gpu.arguments import MASKING, KernelSignature, divisions, ints, pitches, pointers, tensor_maps
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u8, u32, u64
from core.gpu.compilation.ptx import shared_address, shared_store4
from core.gpu.parts.epilogue import make_staging, make_writing
from core.gpu.parts.vectors import clear, divide
from core.gpu.sm90 import tma, wgmma
from core.gpu.sm90.wgmma import PERIOD, TILE, high_word, low_word

STEPS: Final = 4
"""Stages of a block of channels: three rows of taps, and the tenth tap."""

SIGNATURE: Final = KernelSignature((
    *tensor_maps(map_x="gradient of the 3x3 half, a block's rows and one above and below",
               map_second="gradient of the 1x1 half, a block's rows"),
    *pointers(weight="filters of `pack_vectors`, backward", out="gradient of the input",
              mask="the input's activations, or 0"),
    *ints(blocks="blocks of an image", height="rows of an image", width="pixels of a row"),
    *divisions(blocks="blocks of an image", pitch="pixels from one row to the next"),
    *pitches(ldo="output", ldm="`mask`"),
    *MASKING,
))  # fmt: skip


class HaloShape(NamedTuple):
    """A block's work: `rows` of an image, `pitch` pixels from one to the next, by all `columns` of the filters.

    `blocks` of `channels` (32 or 64); `groups` of four warps with `tiles` x 64 pixels each; stages.
    """

    columns: int
    channels: int
    blocks: int
    pitch: int
    rows: int
    groups: int
    tiles: int
    stages: int

    def fitted(self, height: int, width: int) -> HaloShape:
        """The shape for feature maps of a size, blocks of nearly equal rows; 0 rows where a row has too many pixels."""
        pitch = width + 1
        tiles = -(-height // max(1, self.pixels // pitch))
        return self._replace(pitch=pitch, rows=min(-(-height // tiles), self.pixels // pitch))

    def suits(self, height: int, width: int) -> bool:
        """Whether a block's pixels fit, and little is computed that is padding."""
        if not self.rows or max(self.pitch, self.rows + 2) > wgmma.MAX_TILE:
            return False
        return -(-height // self.rows) * self.pixels <= wgmma.MAX_PADDING * height * width

    @property
    def threads(self) -> int:
        return 128 * self.groups

    @property
    def pixels(self) -> int:
        return TILE * self.groups * self.tiles

    @property
    def halo(self) -> int:
        """Bytes from a block of channels' pixels to the tenth tap's; at least one row of zeros follows the TMA tile."""
        tile_rows = max((self.rows + 2) * self.pitch + 1, self.pixels + 2 * self.pitch + 2)
        return -(-tile_rows * 2 * self.channels // PERIOD) * PERIOD

    @property
    def span(self) -> int:
        """Bytes of a block of channels' pixels."""
        return self.halo + -(-self.pixels * 2 * self.channels // PERIOD) * PERIOD

    @property
    def buffers(self) -> int:
        """Blocks of channels in shared memory."""
        return min(2, self.blocks)

    @property
    def stage(self) -> int:
        """Bytes of three taps' filters."""
        return 3 * self.columns * 2 * self.channels

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory; the results replace the pixels."""
        work = self.buffers * self.span + self.stages * self.stage
        return PERIOD + max(work, self.pixels * (self.columns * 2 + 16)) + 16 * self.stages


@device_function
def _pixel_of(i, geometry):
    """Pixel ``(n height + y) width + x`` of a block's i-th number, or -1.

    `geometry`: the first row of all, rows left in the image, width, pitch and fast division by it.
    """
    row = i32(divide(u32(i), geometry[4]))
    x = i32(i - row * geometry[3])
    return i32((geometry[0] + row) * geometry[2] + x) if row < geometry[1] and x < geometry[2] else i32(-1)


def make_producer(shape: HaloShape) -> Any:
    """Device function of one thread: start the copies of a step, with the first of a channel block its pixels."""
    R, CHANNELS, TAP = shape.rows, shape.channels, shape.columns * 2 * shape.channels
    PIXELS, HALO, SPAN, FILTERS = shape.pitch * CHANNELS * 2, shape.halo, shape.span, shape.buffers * shape.span

    @device_function
    def produce(base, full, stage, map_x, map_second, weight, step, n, y):
        cb = i32(step // STEPS)
        s, barrier = i32(step - cb * STEPS), u32(full + stage * u32(8))
        size = u32(TAP if s == 3 else 3 * TAP)
        tma.expect_bytes(barrier, u32(size + u32((2 * R + 2) * PIXELS)) if s == 0 else size)
        if s == 0:
            to = u32(base + u32(cb & 1) * u32(SPAN))
            tma.copy_activation_tile(to, map_x, i32(cb * CHANNELS), i32(-1), i32(y - 1), n, barrier)
            tma.copy_activation_tile(u32(to + u32(HALO)), map_second, i32(cb * CHANNELS), i32(0), y, n, barrier)
        source = u64(weight + u64(i64(cb * 10 + s * 3) * i64(TAP)))
        tma.copy_bytes(u32(base + u32(FILTERS) + stage * u32(3 * TAP)), source, size, barrier)

    return produce


def make_halo_tma(*shape_numbers: int) -> Any:
    """The kernel as a Python function; the arguments are those of `HaloShape`."""
    shape = HaloShape(*shape_numbers)
    BN, ROW, MT, ST, TH = shape.columns, 2 * shape.channels, shape.tiles, shape.stages, shape.threads
    SPAN, HALO, STAGE, BUFFERS, BM, PITCH, R = (
        shape.span, shape.halo, shape.stage, shape.buffers, shape.pixels, shape.pitch, shape.rows
    )  # fmt: skip
    NACC, TOTAL, FILTERS, VECTORS = MT * BN // 2, shape.blocks * STEPS, BUFFERS * SPAN, shape.channels // 8
    BARRIERS, HIGH, EDGE = shape.shared - PERIOD - 16 * ST, wgmma.swizzled_high_word(ROW), (R + 2) * PITCH * ROW
    CHUNKS = ROW // 16
    assert 2 <= ST <= min(STEPS + 1, TOTAL)
    assert R * PITCH <= BM
    taps = [(tap, k) for tap in range(3) for k in range(VECTORS // 2)]  # of a stage
    offsets = [[((m * TILE + tap) * CHUNKS + 2 * k, 0, (tap * VECTORS + 2 * k) * BN) for tap, k in taps]
               for m in range(MT)]  # fmt: skip
    products = wgmma.make_products(BN, offsets, first_only=VECTORS // 2)
    keep_one, finish, produce = wgmma.make_wait(NACC, 1), wgmma.make_wait(NACC, 0), make_producer(shape)
    advance, initialise_barriers = tma.make_advance(ST), tma.make_barriers(ST, TH // 32)
    stage_out = make_staging(2, (MT, BN // 8), BN * 2 + 16, TILE)
    write_out = make_writing(2, BM, BN, TH, _pixel_of)

    def convolution(
        map_x, map_second, weight, out, mask, blocks, height, width, by_blocks, by_pitch, ldo, ldm, masking, accumulate
    ):
        base = wgmma.aligned(shared_address(cuda.shared.array(0, u8)))
        full = u32(base + u32(BARRIERS))
        empty = u32(full + u32(8 * ST))
        tid = i32(cuda.threadIdx.x)
        lane, warp = i32(tid & 31), wgmma.uniform(i32(tid >> 5))
        n = i32(divide(u32(cuda.blockIdx.x), by_blocks))
        y = i32((i32(cuda.blockIdx.x) - n * blocks) * R)
        if tid == 0:
            initialise_barriers(full, empty)
        if tid < BUFFERS * CHUNKS:  # zeros right of the last row, where TMA does not write
            at = u32(base + u32(tid // CHUNKS * SPAN + EDGE + tid % CHUNKS * 16))
            shared_store4(at, u32(0), u32(0), u32(0), u32(0))
        wgmma.fence_async_proxy()
        cuda.syncthreads()  # the barriers are initialised
        if tid == 0:
            tma.prefetch_map(map_x)
            tma.prefetch_map(map_second)
            for step in range(ST - 1):
                produce(base, full, u32(step), map_x, map_second, weight, i32(step), n, y)
        wm = i32((warp >> 2) * MT * TILE)
        acc = cuda.local.array(NACC, f32)
        clear(acc)
        stage, parity, before = u32(0), u32(0), u32(ST - 1)
        for step in range(TOTAL):
            tma.wait_for(u32(full + stage * u32(8)), parity)
            cb = i32(step // STEPS)
            s = i32(step - cb * STEPS)
            begin = i32(HALO) if s == 3 else i32(s * PITCH * ROW)
            a = low_word(u32(base + u32(cb & 1) * u32(SPAN) + u32(begin + wm * ROW)), u32(16))
            b = low_word(u32(base + u32(FILTERS) + stage * u32(STAGE)), u32(BN * 16))
            products(acc, a, u32(HIGH), u32(0), b, high_word(u32(128)), u32(wgmma.uniform(i32(0 if s == 3 else 1))))
            keep_one(acc)
            if lane == 0:  # the products of the step before are complete: its stage is free
                free, later = u32(empty + before * u32(8)), i32(step + ST - 1)
                tma.arrive(free)
                if warp == 0 and later < TOTAL:
                    tma.wait_for(free, parity)
                    produce(base, full, before, map_x, map_second, weight, later, n, y)
            before = stage
            stage, parity = advance(stage, parity)
        finish(acc)
        cuda.syncthreads()  # all products are complete: the results replace the pixels
        stage_out(acc, base, i32(wm + (warp & 3) * 16), i32(0), lane, u64(0), i32(0), i32(BN), i32(0))
        cuda.syncthreads()  # the results are in shared memory
        geometry = (i32(n * height + y), i32(min(R, height - y)), width, i32(PITCH), by_pitch)
        write_out(base, tid, i32(0), i32(BN), out, ldo, mask, ldm, masking, accumulate, geometry)

    return convolution
