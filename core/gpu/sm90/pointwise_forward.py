"""1x1 convolution ``out = activation(x W + bias)``: TMA copies the pixels in and out, `wgmma` multiplies them.

A persistent block has `columns` filters and a strided share of the tiles of 64 pixels, one warpgroup per tile.

              columns (filters)
            +-----------------+   depth: all channels, in TMA tiles of 64 pixels x 16, 32 or 64 channels;
    64      | warpgroup 0     |   one instruction multiplies 64 pixels x 16 channels by all columns
    pixels  +-----------------+
    64      | warpgroup 1     |   producer warp: one thread starts all copies, as far ahead as the rings have stages
            +-----------------+

Shared memory: a ring of TMA tiles for each warpgroup (swizzled) | a tile of results for each warpgroup (swizzled) | all
filters of the block, in vectors of 16 bytes | biases | barriers. Each warpgroup has a ring of its own, since a barrier
distinguishes only its last two phases: in a common ring a warpgroup could wait for the one after next.

The sums begin with the biases. Epilogue: TMA stores the results, also into a slice of channels; a store is waited for
only when its tile is needed again. Pixels beyond the last come as zeros and are not stored.
Bytes: x once for each block of filters, out once. Floor: (x + out) / bandwidth.
Source: NVIDIA CUTLASS, warp-specialised persistent kernels; PTX ISA 8.x, 9.7.9.27 and 9.7.15.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.arguments import KernelSignature, ints, pointers, tensor_maps
from core.gpu.compilation import ptx
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, u8, u32, u64
from core.gpu.parts.tile import Tile
from core.gpu.parts.vectors import activate, unrolled
from core.gpu.sm90 import tma, wgmma
from core.gpu.sm90.filters import make_filter_loader
from core.gpu.sm90.wgmma import TILE, row_bytes, swizzled_high_word, tile_bytes, tiles_of

SIGNATURE: Final = KernelSignature((
    *tensor_maps(map_x="input, pixels x channels", map_out="output, pixels x filters"),
    *pointers(weight="filters of `pack_vectors`, one tap", bias="float32, or 0"),
    *ints(tiles="tiles of 64 pixels", columns="filters in all"),
))  # fmt: skip


def vectors_of(tile: Tile) -> int:
    """Vectors of 8 channels that filters are packed in: whole TMA tiles."""
    return tiles_of(tile.depth // 2) * row_bytes(tile.depth // 2) // 16


def threads_of(tile: Tile) -> int:
    """The warpgroups and the producer warp."""
    return tile.threads + 32


def shared_bytes(tile: Tile) -> int:
    """Bytes of dynamic shared memory: the rings, results, filters, biases, barriers."""
    ring = tile.stages * (tile_bytes(tile.depth // 2) + 16)
    out = tiles_of(tile.columns) * tile_bytes(tile.columns)
    return 1024 + tile.warp_rows // 4 * (ring + out) + (vectors_of(tile) * 16 + 4) * tile.columns


@device_function
def begin_column(acc, biases, j):
    """The biases of a lane's columns in the j-th eight as first sums."""
    b = ptx.shared_load2(u32(biases + u32(j * 32)))
    acc[j * 4], acc[j * 4 + 1] = ptx.bits_to_float(b[0]), ptx.bits_to_float(b[1])
    acc[j * 4 + 2], acc[j * 4 + 3] = ptx.bits_to_float(b[0]), ptx.bits_to_float(b[1])


def make_producer(tile: Tile) -> Any:
    """Device function of one thread: the TMA tiles of all of a block's pixels, as far ahead as the rings have room."""
    ST, GROUPS, CHANNELS = tile.stages, tile.warp_rows // 4, tile.depth // 2
    STEPS, BYTES, WIDTH = tiles_of(CHANNELS), tile_bytes(CHANNELS), row_bytes(CHANNELS) // 2
    advance = tma.make_advance(ST)

    @device_function
    def produce(rings, full, empty, map_x, tiles):
        first_stage, first_parity, group, tile_index = u32(0), u32(1), i32(0), i32(cuda.blockIdx.x)
        stage, parity = first_stage, first_parity
        while tile_index < tiles:
            step, stage, parity = i32(0), first_stage, first_parity  # every ring is filled alike
            while step < STEPS:
                number = u32(u32(group * ST) + stage)
                tma.wait_for(u32(empty + number * u32(8)), parity)
                barrier = u32(full + number * u32(8))
                tma.expect_bytes(barrier, u32(BYTES))
                target = u32(rings + number * u32(BYTES))
                tma.copy_tile(target, map_x, i32(step * WIDTH), i32(tile_index * TILE), barrier)
                stage, parity = advance(stage, parity)
                step = i32(step + 1)
            group = i32(group + 1)
            if group == GROUPS:
                group, first_stage, first_parity = i32(0), stage, parity
            tile_index = i32(tile_index + i32(cuda.gridDim.x))

    return produce


def make_epilogue(columns: int, activation: int) -> Any:
    """Device function: the sums of a warpgroup's tile to memory, once the tile before has left shared memory."""
    ROW, COUNT, BYTES = row_bytes(columns), tiles_of(columns), tile_bytes(columns)
    xor, wait_read = wgmma.make_xor(ROW), tma.WAIT_READ[0]

    @device_function
    def store_column(acc, rows, swizzle, j):
        at = u32(rows + u32(j * 16 // ROW * TILE * ROW) + u32((j % (ROW // 16) ^ swizzle) << 4))
        v0, v1 = activate(acc[j * 4], activation), activate(acc[j * 4 + 1], activation)
        v2, v3 = activate(acc[j * 4 + 2], activation), activate(acc[j * 4 + 3], activation)
        ptx.shared_store1(at, ptx.pack_bf16(v0, v1))
        ptx.shared_store1(u32(at + u32(8 * ROW)), ptx.pack_bf16(v2, v3))

    store = unrolled(store_column, columns // 8)

    @device_function
    def write_tile(acc, results, map_out, bn, tile_index, group, lane, warp):
        if warp == 0 and lane == 0:
            wait_read()
        wgmma.warpgroup_barrier(u32(group + 1))  # TMA has read the tile before
        rows = u32(results + u32((warp * 16 + (lane >> 2)) * ROW + (lane & 3) * 4))
        store(acc, rows, xor(lane))
        wgmma.fence_async_proxy()
        wgmma.warpgroup_barrier(u32(group + 1))  # the tile is complete
        if warp == 0 and lane == 0:
            for i in range(COUNT):
                source = u32(results + u32(i * BYTES))
                tma.store_tile(map_out, i32(bn + i * (ROW // 2)), i32(tile_index * TILE), source)
            tma.commit_stores()

    return write_tile


def make_pointwise_convolution(tile_numbers: tuple[int, ...], activation: int) -> Any:
    """The kernel as a Python function; the depth of the tile is all channels, its stages are TMA tiles of a ring.

    `activation` as in `core.gpu.launch.RELU`; a constant, so that no sum is followed by a branch.
    """
    tile = Tile(*tile_numbers)
    BN, ST, TH, GROUPS, CHANNELS = tile.columns, tile.stages, tile.threads, tile.warp_rows // 4, tile.depth // 2
    ROW, STEPS, BYTES = row_bytes(CHANNELS), tiles_of(CHANNELS), tile_bytes(CHANNELS)
    VECTORS, NACC, HIGH, OUT = vectors_of(tile), BN // 2, swizzled_high_word(ROW), tiles_of(BN) * tile_bytes(BN)
    assert BN % 8 == 0
    assert BN <= 256
    product = wgmma.make_products(BN, [[(2 * k, 0, 2 * k * BN) for k in range(ROW // 32)]])
    keep_one, finish, wait_all = wgmma.make_wait(NACC, 1), wgmma.make_wait(NACC, 0), ptx.WAIT_COPIES[0]
    produce, advance, write_tile = make_producer(tile), tma.make_advance(ST), make_epilogue(BN, activation)
    initialise_barriers, load_filters = tma.make_barriers(GROUPS * ST, 4), make_filter_loader(VECTORS, BN, TH)
    begin = unrolled(begin_column, BN // 8)

    def convolution(map_x, map_out, weight, bias, tiles, columns):
        ring = wgmma.aligned(ptx.shared_address(cuda.shared.array(0, u8)))
        results = u32(ring + u32(GROUPS * ST * BYTES))
        filters = u32(results + u32(GROUPS * OUT))
        biases = u32(filters + u32(VECTORS * BN * 16))
        full = u32(biases + u32(BN * 4))
        empty = u32(full + u32(8 * GROUPS * ST))
        thread, bn = i32(cuda.threadIdx.x), i32(i32(cuda.blockIdx.y) * BN)
        lane, warp = i32(thread & 31), i32(thread >> 5)
        if thread == 0:
            initialise_barriers(full, empty)
        cuda.syncthreads()  # the barriers are initialised
        if warp == 4 * GROUPS:  # the producer warp
            if lane == 0:
                tma.prefetch_map(map_x)
                produce(ring, full, empty, map_x, tiles)
        else:
            load_filters(filters, weight, bn, columns, thread)
            ptx.commit_copies()
            for i in range(thread, BN, TH):
                value = ptx.load_float(u64(bias + u64((bn + i) * 4))) if bias != u64(0) else f32(0.0)
                ptx.shared_store1(u32(biases + u32(i * 4)), ptx.float_to_bits(value))
            wait_all()
            wgmma.fence_async_proxy()
            wgmma.named_barrier(u32(GROUPS + 1), u32(TH))  # filters and biases are in shared memory
            group = i32(warp >> 2)
            results = u32(results + u32(group * OUT))  # from here on: of this warpgroup
            acc = cuda.local.array(NACC, f32)
            ring = u32(ring + u32(group * (ST * BYTES)))
            full, empty = u32(full + u32(group * (ST * 8))), u32(empty + u32(group * (ST * 8)))
            stage, parity, last = u32(0), u32(0), u32(0)
            tile_index = i32(i32(cuda.blockIdx.x) + group * i32(cuda.gridDim.x))
            stride = i32(GROUPS * i32(cuda.gridDim.x))
            while tile_index < tiles:
                begin(acc, u32(biases + u32((lane & 3) * 8)))
                step = i32(0)
                while step < STEPS:
                    tma.wait_for(u32(full + stage * u32(8)), parity)
                    b = wgmma.low_word(u32(filters + u32(step * (ROW // 16) * BN * 16)), u32(BN * 16))
                    a = wgmma.low_word(u32(ring + stage * u32(BYTES)), u32(16))
                    product(acc, a, u32(HIGH), u32(0), b, wgmma.high_word(u32(128)), u32(1))
                    keep_one(acc)
                    if step > 0 and lane == 0:  # the product before is complete: its stage is free
                        tma.arrive(u32(empty + last * u32(8)))
                    last = stage
                    stage, parity = advance(stage, parity)
                    step = i32(step + 1)
                finish(acc)
                if lane == 0:
                    tma.arrive(u32(empty + last * u32(8)))
                write_tile(acc, results, map_out, bn, tile_index, group, lane, i32(warp & 3))
                tile_index = i32(tile_index + stride)
            tma.wait_stored()

    return convolution
