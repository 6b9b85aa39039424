"""Both gradients of a 1x1 convolution in one pass over its input: ``dx = dy W`` (masked) and ``dW = dy^T x``.

A persistent block has `columns` channels of the input and a strided share of the tiles of 64 pixels.

              64 channels   64 channels
            +-------------+-------------+
    64      | warpgroup 0 | warpgroup 1 |   each multiplies twice: dy by the filters gives dx of the tile;
    pixels  +-------------+-------------+   x by dy, both transposed, adds to dW, which stays in registers

One producer warp copies the tiles of x and dy; another warp sums dy for the bias.

Shared memory: stages, each x in TMA tiles of 64 channels and dy in one (swizzled) | filters in vectors of 16 bytes |
barriers. Where x is a ReLU's output it is also the mask: dx replaces it in shared memory and TMA stores the tile from
there. Bytes: x and dy once, dx once, and the partial sums of dW; two separate kernels read x and dy twice.
Floor: (2 x + dy) / bandwidth. Source: NVIDIA CUTLASS, PipelineTmaAsync; PTX ISA 8.x, 9.7.15.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.arguments import KernelSignature, ints, pointers, tensor_maps
from core.gpu.compilation import ptx
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u8, u32, u64
from core.gpu.parts.tile import Tile
from core.gpu.parts.vectors import UNPACK, clear, in_turn, passes, unrolled
from core.gpu.sm90 import tma, wgmma
from core.gpu.sm90.filters import make_filter_loader
from core.gpu.sm90.wgmma import TILE, row_bytes, swizzled_high_word, tile_bytes

SIGNATURE: Final = KernelSignature((
    *tensor_maps(map_x="input and mask, pixels x channels",
               map_dy="gradient of the output, pixels x filters"),
    *pointers(partial="partial weight and bias gradients, one of each block"),
    *tensor_maps(map_dx="gradient of the input"),
    *pointers(weight="filters of `pack_vectors`, backward, one tap"),
    *ints(tiles="tiles of 64 pixels", columns="channels up to whole blocks", channels="channels",
          size="floats of a partial sum"),
))  # fmt: skip

CHANNELS: Final = 64
"""Channels of a warpgroup."""
X_BYTES: Final = tile_bytes(CHANNELS)
"""Bytes of the TMA tile of a warpgroup."""


def stage_bytes(tile: Tile) -> int:
    """Bytes of a stage: a TMA tile of x for each warpgroup, and one of dy."""
    return tile.columns // CHANNELS * X_BYTES + tile_bytes(tile.depth // 2)


def vectors_of(tile: Tile) -> int:
    """Vectors of 8 filters that the packed filters have: whole steps of 16."""
    return -(-tile.depth // 32) * 2


def threads_of(tile: Tile) -> int:
    """The warpgroups, the producer warp and the warp of the bias."""
    return tile.threads + 64


def shared_bytes(tile: Tile) -> int:
    """Bytes of dynamic shared memory: stages, filters, barriers."""
    return 1024 + tile.stages * (stage_bytes(tile) + 16) + vectors_of(tile) * tile.columns * 16


def make_mask(masking: int, first: int) -> tuple[Any, Any]:
    """Device functions of 32 of a lane's channels: read the input; replace it by the gradient that passes.

    The first 32 are read while the products are in flight, the others when those sums have left the registers.
    """

    @device_function
    def read(x, rows, swizzle, i):
        x[i] = ptx.shared_load1(u32(rows + u32(i % 2 * 1024) + u32((first + i // 2 ^ swizzle) << 4)))

    @device_function
    def write(acc, x, rows, swizzle, i):
        o = (first + i // 2) * 4 + i % 2 * 2
        v0, v1 = acc[o], acc[o + 1]
        if masking:
            v0 = v0 if passes(ptx.low_bf16(x[i]), masking) else f32(0.0)
            v1 = v1 if passes(ptx.high_bf16(x[i]), masking) else f32(0.0)
        at = u32(rows + u32(i % 2 * 1024) + u32((first + i // 2 ^ swizzle) << 4))
        ptx.shared_store1(at, ptx.pack_bf16(v0, v1))

    return unrolled(read, 8), unrolled(write, 8)


def make_bias_warp(tile: Tile) -> Any:
    """Device function of one warp: sums of dy over all pixels of the block, for the blocks of the first channels."""
    FILTERS, ST, STAGE = tile.depth // 2, tile.stages, stage_bytes(tile)
    ROW, DY = row_bytes(FILTERS), tile.columns // CHANNELS * X_BYTES
    CHUNKS = ROW // 16  # of a row; a lane has the same one in each of its pixels
    ROWS, FIRST = 32 // CHUNKS, CHUNKS.bit_length() - 1
    unpack, advance = UNPACK[2], tma.make_advance(ST)

    def make_add_rows(first: int) -> Any:
        @device_function
        def add_rows(sums, eight, dy, lane):
            row = i32(first + lane // CHUNKS)
            swizzle = i32(row & 7) if ROW == 128 else i32((row >> 1) & 3) if ROW == 64 else i32((row >> 2) & 1)
            unpack(ptx.shared_load4(u32(dy + u32(row * ROW) + u32(((lane % CHUNKS) ^ swizzle) << 4))), eight)
            for i in range(8):
                sums[i] = f32(sums[i] + eight[i])

        return add_rows

    add_tile = in_turn([make_add_rows(first) for first in range(0, TILE, ROWS)])

    @device_function
    def add_biases(stages, full, empty, out, tiles, first, lane):
        sums = cuda.local.array(8, f32)
        eight = cuda.local.array(8, f32)
        clear(sums)
        stage, parity, tile_index = u32(0), u32(0), i32(cuda.blockIdx.x)
        while tile_index < tiles:
            tma.wait_for(u32(full + stage * u32(8)), parity)
            if first:
                add_tile(sums, eight, u32(stages + stage * u32(STAGE) + u32(DY)), lane)
            cuda.syncwarp()
            if lane == 0:
                tma.arrive(u32(empty + stage * u32(8)))
            stage, parity = advance(stage, parity)
            tile_index = i32(tile_index + i32(cuda.gridDim.x))
        if first:
            for i in range(8):
                for step in range(FIRST, 5):
                    sums[i] = f32(sums[i] + ptx.shuffle_xor(sums[i], u32(1 << step)))
                if lane * 8 + i < FILTERS and lane < CHUNKS:
                    ptx.store_float(u64(out + u64((lane * 8 + i) * 4)), sums[i])

    return add_biases


def make_producer(tile: Tile) -> Any:
    """Device function of one thread: all TMA tiles of this block, as far ahead as there are free stages."""
    GROUPS, STAGE, advance = tile.columns // CHANNELS, stage_bytes(tile), tma.make_advance(tile.stages)

    @device_function
    def produce(stages, full, empty, map_x, map_dy, channel, tiles):
        stage, parity, tile_index = u32(0), u32(1), i32(cuda.blockIdx.x)
        while tile_index < tiles:
            tma.wait_for(u32(empty + stage * u32(8)), parity)
            barrier, to = u32(full + stage * u32(8)), u32(stages + stage * u32(STAGE))
            tma.expect_bytes(barrier, u32(STAGE))
            for group in range(GROUPS):
                first = i32(channel + group * CHANNELS)
                tma.copy_tile(u32(to + u32(group * X_BYTES)), map_x, first, i32(tile_index * TILE), barrier)
            tma.copy_tile(u32(to + u32(GROUPS * X_BYTES)), map_dy, i32(0), i32(tile_index * TILE), barrier)
            stage, parity = advance(stage, parity)
            tile_index = i32(tile_index + i32(cuda.gridDim.x))

    return produce


@device_function
def write_filters(acc, out, channel, channels, lane, j):
    """A warp's sums of dW for the j-th eight filters to the block's partial sum, rows of `channels`."""
    for half in range(2):
        c, f = i32(channel + half * 8), i32(j * 8 + (lane & 3) * 2)
        if c < channels:
            ptx.store_float(u64(out + u64((f * channels + c) * 4)), acc[j * 4 + half * 2])
            ptx.store_float(u64(out + u64(((f + 1) * channels + c) * 4)), acc[j * 4 + half * 2 + 1])


def make_tile_store(stages: int) -> Any:
    """Device function of one thread: store a tile of dx, then release the stage before, whose tile has been read."""
    keep_reading = tma.WAIT_READ[1]

    @device_function
    def store_tile(map_dx, channel, tile_index, source, empty, last):
        tma.store_tile(map_dx, channel, i32(tile_index * TILE), source)
        tma.commit_stores()
        keep_reading()
        if last != u32(stages):
            tma.arrive(u32(empty + last * u32(8)))

    return store_tile


def make_pointwise_gradients(tile_numbers: tuple[int, ...], masking: int) -> Any:
    """The kernel; columns: channels of a block; depth of the tile: all filters; `masking`: activation of x, or 0."""
    tile = Tile(*tile_numbers)
    BN, ST, TH, GROUPS, FILTERS = tile.columns, tile.stages, tile.threads, tile.warp_rows // 4, tile.depth // 2
    ROW, VECTORS, STAGE = row_bytes(FILTERS), vectors_of(tile), stage_bytes(tile)
    NDX, NDW, HIGH, HIGH_X = CHANNELS // 2, FILTERS // 2, swizzled_high_word(ROW), swizzled_high_word(2 * CHANNELS)
    assert BN == GROUPS * CHANNELS
    assert FILTERS % 8 == 0
    assert FILTERS <= CHANNELS
    assert ST > 1
    multiply_dx = wgmma.make_products(CHANNELS, [[(2 * k, 0, 2 * k * BN) for k in range(VECTORS // 2)]])
    multiply_dw = wgmma.make_products(FILTERS, [[(k * 128, 0, k * ROW) for k in range(TILE // 16)]], (True, True))
    finish_dx, finish_dw = wgmma.make_wait(NDX, 0), wgmma.make_wait(NDW, 0)
    produce, add_biases, xor = make_producer(tile), make_bias_warp(tile), wgmma.make_xor(128)
    write_partial, wait_all = unrolled(write_filters, FILTERS // 8), ptx.WAIT_COPIES[0]
    store_tile, advance = make_tile_store(ST), tma.make_advance(ST)
    initialise_barriers, load_filters = tma.make_barriers(ST, GROUPS + 1), make_filter_loader(VECTORS, BN, TH + 64)
    (read_first, write_first), (read_rest, write_rest) = make_mask(masking, 0), make_mask(masking, 4)

    def gradients(map_x, map_dy, partial, map_dx, weight, tiles, columns, channels, size):
        stages = wgmma.aligned(ptx.shared_address(cuda.shared.array(0, u8)))
        filters = u32(stages + u32(ST * STAGE))
        full = u32(filters + u32(VECTORS * BN * 16))
        empty = u32(full + u32(8 * ST))
        thread, bn = i32(cuda.threadIdx.x), i32(i32(cuda.blockIdx.y) * BN)
        lane, warp = i32(thread & 31), i32(thread >> 5)
        out = u64(partial + u64(i64(i32(cuda.blockIdx.x)) * i64(size) * 4))
        if thread == 0:
            initialise_barriers(full, empty)
        load_filters(filters, weight, bn, columns, thread)
        ptx.commit_copies()
        wait_all()
        wgmma.fence_async_proxy()
        cuda.syncthreads()  # the barriers are initialised, the filters are in shared memory
        if warp == 4 * GROUPS:  # the producer warp
            if lane == 0:
                tma.prefetch_map(map_dx)
                produce(stages, full, empty, map_x, map_dy, bn, tiles)
        elif warp > 4 * GROUPS:
            add_biases(stages, full, empty, u64(out + u64(FILTERS * channels * 4)), tiles, bn == 0, lane)
        else:
            group = i32(warp >> 2)
            bn = i32(bn + group * CHANNELS)
            elected = i32(warp & 3) == 0 and lane == 0
            sums = cuda.local.array(NDW, f32)
            acc = cuda.local.array(NDX, f32)
            mask = cuda.local.array(8, u32)
            clear(sums)
            b = wgmma.low_word(u32(filters + u32(group * (CHANNELS * 16))), u32(BN * 16))
            stage, parity, last, tile_index = u32(0), u32(0), u32(ST), i32(cuda.blockIdx.x)
            while tile_index < tiles:
                clear(acc)
                x = u32(stages + stage * u32(STAGE) + u32(group * X_BYTES))
                dy = wgmma.low_word(u32(stages + stage * u32(STAGE) + u32(GROUPS * X_BYTES)), u32(16))
                tma.wait_for(u32(full + stage * u32(8)), parity)
                multiply_dx(acc, dy, u32(HIGH), u32(0), b, wgmma.high_word(u32(128)), u32(1))
                multiply_dw(sums, wgmma.low_word(x, u32(16)), u32(HIGH_X), u32(0), dy, u32(HIGH), u32(1))
                rows = u32(x + u32(((warp & 3) * 16 + (lane >> 2)) * 128 + (lane & 3) * 4))
                if masking:
                    read_first(mask, rows, xor(lane))
                finish_dx(acc)
                finish_dw(sums)
                wgmma.warpgroup_barrier(u32(group + 1))  # no product reads this tile of x any more
                write_first(acc, mask, rows, xor(lane))
                if masking:
                    read_rest(mask, rows, xor(lane))
                write_rest(acc, mask, rows, xor(lane))
                wgmma.fence_async_proxy()
                wgmma.warpgroup_barrier(u32(group + 1))  # the tile holds dx
                if elected:
                    store_tile(map_dx, bn, tile_index, x, empty, last)
                last = stage
                stage, parity = advance(stage, parity)
                tile_index = i32(tile_index + i32(cuda.gridDim.x))
            write_partial(sums, out, i32(bn + (warp & 3) * 16 + (lane >> 2)), channels, lane)
            tma.wait_stored()

    return gradients
