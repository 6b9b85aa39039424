"""Weight gradient of a 3x3 convolution of stride 1 by TMA and `wgmma`, rows of pixels read as they are.

``dweight[f, ky, kx, c] = sum over pixels of dy[y, x, f] x[y + ky - 1, x + kx - 1, c]``. Pixels are numbered along rows
of `pitch`, at least one more than an image is wide, so a tap is a constant distance. TMA tiles of rows have this
layout, zero beyond the edges.

                     kx = 0           kx = 1           kx = 2
                3 ky x channels  3 ky x channels  3 ky x channels   ones
               +----------------+----------------+----------------+ +---+
    64 filters |  warpgroup 0   |  warpgroup 1   |  warpgroup 2   | | 8 |   a k block is `rows` rows of pixels;
               +----------------+----------------+----------------+ +---+   both factors are read transposed

Sums stay in registers until the block's share of all k blocks is done; `reduction` adds the blocks' in order. The
bias gradient is one more product, with ones. The columns of three ky are `pitch` tile rows apart.

Shared memory: stages, each dy (swizzled rows of 64 filters) | x with a row above and below (swizzled rows of 16, 32 or
64 channels) | ones; then barriers. One thread starts the copies of a k block when all warps have released its stage.
Bytes: dy once, x once and two rows per k block for each 64 filters, and the partial sums.
Floor: 18 x pixels x channels x filters operations at the tensor cores' peak, or dy and x / bandwidth.
Source: NVIDIA CUTLASS, split-K and PipelineTmaAsync; PTX ISA 8.x, 9.7.15; ADR 23.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from core.gpu.arguments import KernelSignature, divisions, ints, pointers, tensor_maps
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u8, u32, u64
from core.gpu.compilation.ptx import float_to_bits, shared_address, shared_store4, store2, store_float
from core.gpu.parts.tile import ONES
from core.gpu.parts.vectors import clear, divide, in_turn
from core.gpu.sm90 import tma, wgmma
from core.gpu.sm90.wgmma import PERIOD, TILE, Offsets, low_word, swizzled_high_word

WARPS: Final = 12
"""A warpgroup for each kx. A producer warp in addition would leave each thread 128 registers instead of 168."""
THREADS: Final = 32 * WARPS

FILTER_ROW: Final = 128
"""Bytes of 64 filters of a pixel's gradient."""

SIGNATURE: Final = KernelSignature((
    *tensor_maps(map_x="input, the rows of a k block and one above and below",
               map_dy="gradient of the output, the rows of a k block"),
    *pointers(partial="partial weight and bias gradients, one of each block"),
    *ints(total="k blocks in all", per_block="k blocks of a block", image_blocks="k blocks of an image"),
    *divisions(image_blocks="`image_blocks`"),
    *ints(filters="filters in all", size="floats of a partial sum"),
))  # fmt: skip


class RowShape(NamedTuple):
    """A block's work: k blocks of `rows` image rows, `pitch` pixels from one to the next, by 64 filters.

    TMA tiles of x have `tile_channels` of its `channels`: 16, 32 or 64.
    """

    channels: int
    tile_channels: int
    pitch: int
    rows: int
    stages: int

    def suits(self, height: int, width: int) -> bool:
        """Whether TMA tiles and stages have a possible size, and little padding is computed."""
        fits = self.stages >= 2 and max(self.pitch, self.rows + 2) <= wgmma.MAX_TILE
        return fits and -(-height // self.rows) * self.pixels <= wgmma.MAX_PADDING * height * width

    @property
    def x_tiles(self) -> int:
        """TMA tiles of x side by side."""
        return -(-self.channels // self.tile_channels)

    @property
    def pixels(self) -> int:
        """Pixels of a k block, up to whole instructions."""
        return -(-self.rows * self.pitch // 16) * 16

    @property
    def x_offset(self) -> int:
        """Where x begins in a stage, in bytes; the gradient is before it."""
        return self.pixels * FILTER_ROW

    @property
    def x_tile_bytes(self) -> int:
        """Bytes from one TMA tile of x to the next: all that a tap of a padded k block reads."""
        return -(-(self.pixels + 2 * self.pitch + 2) * 2 * self.tile_channels // PERIOD) * PERIOD

    @property
    def ones(self) -> int:
        """Where the ones for the bias gradient begin, a factor 16 deep."""
        return self.x_offset + self.x_tiles * self.x_tile_bytes

    @property
    def stage(self) -> int:
        """Bytes of a stage."""
        return self.ones + max(PERIOD, 32 * self.tile_channels)

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory: stages and their barriers."""
        return PERIOD + self.stages * (self.stage + 16)

    @property
    def copied(self) -> int:
        """Bytes that TMA copies for a k block."""
        return self.pitch * (self.rows * FILTER_ROW + self.x_tiles * (self.rows + 2) * 2 * self.tile_channels)

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Where what TMA does not fill begins and ends in a stage: zeros, but for the ones, which come last."""
        filled = self.rows * self.pitch
        gaps = [(filled * FILTER_ROW, self.x_offset)]
        for p in range(self.x_tiles):
            begin = self.x_offset + p * self.x_tile_bytes
            gaps.append((begin + (filled + 2 * self.pitch) * 2 * self.tile_channels, begin + self.x_tile_bytes))
        return [*gaps, (self.ones, self.stage)]

    def products(self) -> tuple[list[list[Offsets]], list[Offsets]]:
        """The products of a k block: of every TMA tile of x, and that with ones."""
        steps, ones = range(self.pixels // 16), (self.ones - self.x_offset) // 16
        wide = [[(k * FILTER_ROW, 0, p * self.x_tile_bytes // 16 + k * 2 * self.tile_channels) for k in steps]
                for p in range(self.x_tiles)]  # fmt: skip
        return wide, [(k * FILTER_ROW, 0, ones) for k in steps]


def make_producer(shape: RowShape) -> Any:
    """Device function of one thread: start the copies of a k block into a stage."""
    STAGE, R, P, C = shape.stage, shape.rows, shape.x_tiles, shape.tile_channels
    X, X_TILE, BYTES = shape.x_offset, shape.x_tile_bytes, shape.copied

    @device_function
    def produce(base, full, stage, map_x, map_dy, bf, k_block, image_blocks, by_image_blocks):
        n = i32(divide(u32(k_block), by_image_blocks))
        y, to = i32((k_block - n * image_blocks) * R), u32(base + stage * u32(STAGE))
        barrier = u32(full + stage * u32(8))
        tma.expect_bytes(barrier, u32(BYTES))
        tma.copy_activation_tile(to, map_dy, bf, i32(0), y, n, barrier)
        for p in range(P):
            at = u32(to + u32(X + p * X_TILE))
            tma.copy_activation_tile(at, map_x, i32(p * C), i32(-1), i32(y - 1), n, barrier)

    return produce


def make_store(shape: RowShape) -> Any:
    """Device function: a warpgroup's sums to the block's partial sum; the first one's have the bias gradient."""
    C, WIDTH, EIGHTS = shape.channels, shape.tile_channels, shape.tile_channels // 8
    BLOCKS = 3 * EIGHTS * shape.x_tiles

    @device_function
    def store(acc, partial, bf, group, warp, lane, filters):
        g, t, depth = i32(lane >> 2), i32(lane & 3), i32(9 * C)
        for half in range(2):
            f = i32(bf + (warp & 3) * 16 + g + half * 8)
            row = u64(partial + u64((i64(f) * depth + group * C + t * 2) * 4))
            for i in range(BLOCKS):
                ky, c = i // EIGHTS % 3, i // EIGHTS // 3 * WIDTH + i % EIGHTS * 8
                o = i * 4 + half * 2
                if c < C:
                    store2(u64(row + u64((ky * 3 * C + c) * 4)), float_to_bits(acc[o]), float_to_bits(acc[o + 1]))
            if group == 0 and t == 0:
                at = u64(partial + u64((i64(filters) * depth + f) * 4))
                store_float(at, acc[BLOCKS * 4 + half * 2])

    return store


def make_gap_filler(shape: RowShape) -> Any:
    """Device function: zeros and ones into every stage where TMA does not write."""
    ST, STAGE = shape.stages, shape.stage

    def fill_gap(first: int, count: int, value: int) -> Any:
        @device_function
        def fill(base, tid):
            for i in range(tid, ST * count, THREADS):
                stage = i32(i // count)
                at = u32(base + u32(stage * STAGE + (first + i - stage * count) * 16))
                shared_store4(at, u32(value), u32(value), u32(value), u32(value))

        return fill

    gaps = [(begin // 16, (end - begin) // 16) for begin, end in shape.gaps]
    return in_turn([*[fill_gap(*gap, 0) for gap in gaps[:-1] if gap[1]], fill_gap(*gaps[-1], ONES["bf16"])])


def make_row_weight_gradient(*shape_numbers: int) -> Any:
    """The kernel as a Python function; the arguments are those of `RowShape`."""
    shape = RowShape(*shape_numbers)
    ST, STAGE, X, ROW = shape.stages, shape.stage, shape.x_offset, 2 * shape.tile_channels
    NACC, APART = shape.x_tiles * 3 * shape.tile_channels // 2 + 4, shape.pitch * ROW
    HIGH_A, HIGH_B = swizzled_high_word(FILTER_ROW), swizzled_high_word(ROW)
    wide, narrow = shape.products()
    products = wgmma.make_products(3 * shape.tile_channels, wide, (True, True), narrow=[narrow])
    keep_one, finish = wgmma.make_wait(NACC, 1), wgmma.make_wait(NACC, 0)
    produce, store, fill_gaps = make_producer(shape), make_store(shape), make_gap_filler(shape)
    advance, initialise_barriers = tma.make_advance(ST), tma.make_barriers(ST, WARPS)

    def weight_gradient(map_x, map_dy, partial, total, per_block, image_blocks, by_image_blocks, filters, size):
        base = wgmma.aligned(shared_address(cuda.shared.array(0, u8)))
        full = u32(base + u32(ST * STAGE))
        empty = u32(full + u32(8 * ST))
        tid, bf = i32(cuda.threadIdx.x), i32(i32(cuda.blockIdx.y) * TILE)
        lane, warp = i32(tid & 31), wgmma.uniform(i32(tid >> 5))
        k_block = i32(i32(cuda.blockIdx.x) * per_block)
        end = i32(min(k_block + per_block, total))
        if tid == 0:
            initialise_barriers(full, empty)
        fill_gaps(base, tid)
        wgmma.fence_async_proxy()
        cuda.syncthreads()  # the barriers are initialised, and zeros and ones are where TMA does not write
        if tid == 0:
            tma.prefetch_map(map_x)
            tma.prefetch_map(map_dy)
            for ahead in range(ST - 1):
                if k_block + ahead < end:
                    coming = i32(k_block + ahead)
                    produce(base, full, u32(ahead), map_x, map_dy, bf, coming, image_blocks, by_image_blocks)
        group = i32(warp >> 2)
        first_group = u32(1) if group == 0 else u32(0)  # the only one that multiplies with the ones
        acc = cuda.local.array(NACC, f32)
        clear(acc)
        stage, parity, before = u32(0), u32(0), u32(ST - 1)
        while k_block < end:
            tma.wait_for(u32(full + stage * u32(8)), parity)
            a = u32(base + stage * u32(STAGE))
            b = low_word(u32(a + u32(X) + u32(group * ROW)), u32(APART))  # kx: one pixel further for each warpgroup
            products(acc, low_word(a, u32(16)), u32(HIGH_A), u32(0), b, u32(HIGH_B), first_group)
            keep_one(acc)
            if lane == 0:  # the products of the k block before are complete: its stage is free
                free, later = u32(empty + before * u32(8)), i32(k_block + ST - 1)
                tma.arrive(free)
                if warp == 0 and later < end:
                    tma.wait_for(free, parity)
                    produce(base, full, before, map_x, map_dy, bf, later, image_blocks, by_image_blocks)
            before = stage
            stage, parity = advance(stage, parity)
            k_block = i32(k_block + 1)
        finish(acc)
        store(acc, u64(partial + u64(i64(i32(cuda.blockIdx.x)) * i64(size) * 4)), bf, group, warp, lane, filters)

    return weight_gradient
