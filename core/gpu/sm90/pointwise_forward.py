"""1x1 convolution ``out = activation(x W + bias)``: TMA copies the pixels in and out, `wgmma` multiplies them.

Tiling: a block has `columns` filters and takes every so many-th tile of 64 pixels, a warpgroup a tile.

              columns (filters)
            +-----------------+   depth: all channels, in TMA tiles of 64 pixels x 16, 32 or 64 channels;
    64      | warpgroup 0     |   one instruction multiplies 64 pixels x 16 channels by all columns
    pixels  +-----------------+
    64      | warpgroup 1     |   one more warp: one thread sends for the tiles, as far ahead as a ring has stages
            +-----------------+

Shared memory: a ring of TMA tiles for each warpgroup (swizzled) | results on their way out, a tile for each warpgroup
(swizzled) | all filters of the block, in parts of 16 bytes | biases | barriers. Each warpgroup has a ring of its own,
since a barrier distinguishes only its last two phases: in a common ring a warpgroup could wait for the one after next.

Sums begin with the biases. Results leave by TMA too, into a slice of channels if need be; a store is waited for only
when its tile is needed again. Pixels beyond the last come as zeros and are not stored.
Bytes: x once for each block of filters, out once; the floor is (x + out) / bandwidth.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation import ptx
from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.launch import INTEGER, POINTER, Argument, KernelSignature
from core.gpu.parts.tile import Tile
from core.gpu.parts.vectors import activate, in_turn
from core.gpu.sm90 import tma, wgmma
from core.gpu.sm90.filters import make_filter_loader
from core.gpu.sm90.pipeline import make_advance, make_barriers
from core.gpu.sm90.swizzle import PIXELS, aligned, line_bytes, make_xor, swizzled_high_word, tile_bytes, tiles_of

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

SIGNATURE: Final = KernelSignature((
    Argument("map_x", tma.TENSOR_MAP, "input, pixels x channels"),
    Argument("map_out", tma.TENSOR_MAP, "output, pixels x filters"),
    Argument("weight", POINTER, "filters of `pack_parts`, one tap"),
    Argument("bias", POINTER, "float32, 0: none"),
    Argument("tiles", INTEGER, "tiles of 64 pixels"),
    Argument("columns", INTEGER, "filters in all"),
))  # fmt: skip


def parts_of(tile: Tile) -> int:
    """Parts of 8 channels that filters are packed in: whole TMA tiles."""
    return tiles_of(tile.depth // 2) * line_bytes(tile.depth // 2) // 16


def threads_of(tile: Tile) -> int:
    """The warpgroups, and a warp that sends."""
    return tile.threads + 32


def shared_bytes(tile: Tile) -> int:
    """Bytes of dynamic shared memory: the rings, results on their way out, filters, biases, barriers."""
    ring = tile.stages * (tile_bytes(tile.depth // 2) + 16)
    out = tiles_of(tile.columns) * tile_bytes(tile.columns)
    return 1024 + tile.warp_rows // 4 * (ring + out) + (parts_of(tile) * 16 + 4) * tile.columns


def make_begin(j: int) -> Any:
    """Device function of eight of a lane's columns: their biases as first sums."""

    @device_function
    def begin(acc, biases):
        b = ptx.shared_load2(u32(biases + u32(j * 32)))
        acc[j * 4], acc[j * 4 + 1] = ptx.bits_to_float(b[0]), ptx.bits_to_float(b[1])
        acc[j * 4 + 2], acc[j * 4 + 3] = ptx.bits_to_float(b[0]), ptx.bits_to_float(b[1])

    return begin


def make_store(j: int, line: int, activation: int) -> Any:
    """Device function of eight of a lane's columns: activated, into the TMA tile."""
    FIRST, CHUNK = j * 16 // line * PIXELS * line, j % (line // 16)

    @device_function
    def store(acc, lines, swap):
        place = u32(lines + u32(FIRST) + u32((CHUNK ^ swap) << 4))
        v0, v1 = activate(acc[j * 4], activation), activate(acc[j * 4 + 1], activation)
        v2, v3 = activate(acc[j * 4 + 2], activation), activate(acc[j * 4 + 3], activation)
        ptx.shared_store1(place, ptx.pack_bf16(v0, v1))
        ptx.shared_store1(u32(place + u32(8 * line)), ptx.pack_bf16(v2, v3))

    return store


def make_sender(tile: Tile) -> Any:
    """Device function of one thread: the TMA tiles of all of a block's pixels, as far ahead as the rings have room."""
    ST, GROUPS, CHANNELS = tile.stages, tile.warp_rows // 4, tile.depth // 2
    STEPS, BYTES, WIDE = tiles_of(CHANNELS), tile_bytes(CHANNELS), line_bytes(CHANNELS) // 2
    advance = make_advance(ST)

    @device_function
    def send(ring, full, empty, map_x, tiles):
        first, before, group, at = u32(0), u32(1), i32(0), i32(cuda.blockIdx.x)
        slot, parity = first, before
        while at < tiles:
            step, slot, parity = i32(0), first, before  # every ring is filled alike
            while step < STEPS:
                place = u32(u32(group * ST) + slot)
                tma.wait_for(u32(empty + place * u32(8)), parity)
                barrier = u32(full + place * u32(8))
                tma.expect_bytes(barrier, u32(BYTES))
                tma.copy_tile(u32(ring + place * u32(BYTES)), map_x, i32(step * WIDE), i32(at * PIXELS), barrier)
                slot, parity = advance(slot, parity)
                step = i32(step + 1)
            group = i32(group + 1)
            if group == GROUPS:
                group, first, before = i32(0), slot, parity
            at = i32(at + i32(cuda.gridDim.x))

    return send


def make_deliver(columns: int, activation: int) -> Any:
    """Device function: the sums of a warpgroup's tile to memory, once the tile before has left shared memory."""
    LINE, COUNT, BYTES = line_bytes(columns), tiles_of(columns), tile_bytes(columns)
    store = in_turn([make_store(j, LINE, activation) for j in range(columns // 8)])
    xor, wait_read = make_xor(LINE), tma.WAIT_READ[0]

    @device_function
    def deliver(acc, mine, map_out, bn, at, group, lane, warp):
        if warp == 0 and lane == 0:
            wait_read()
        wgmma.warpgroup_barrier(u32(group + 1))
        lines = u32(mine + u32((warp * 16 + (lane >> 2)) * LINE + (lane & 3) * 4))
        store(acc, lines, xor(lane))
        wgmma.fence_async_proxy()
        wgmma.warpgroup_barrier(u32(group + 1))  # the tile is complete
        if warp == 0 and lane == 0:
            for i in range(COUNT):
                tma.store_tile(map_out, i32(bn + i * (LINE // 2)), i32(at * PIXELS), u32(mine + u32(i * BYTES)))
            tma.commit_stores()

    return deliver


def make_point_convolution(numbers: tuple[int, ...], activation: int) -> Any:
    """The kernel as a Python function; the tile's depth are all channels, its stages TMA tiles of a ring.

    activation: 0 none, 1 ReLU, 2 ReLU6; known here, so that no sum is followed by a branch.
    """
    tile = Tile(*numbers)
    BN, ST, TH, GROUPS, CHANNELS = tile.columns, tile.stages, tile.threads, tile.warp_rows // 4, tile.depth // 2
    LINE, STEPS, BYTES = line_bytes(CHANNELS), tiles_of(CHANNELS), tile_bytes(CHANNELS)
    PARTS, NACC, HIGH, OUT = parts_of(tile), BN // 2, swizzled_high_word(LINE), tiles_of(BN) * tile_bytes(BN)
    assert BN % 8 == 0
    assert BN <= 256
    product = wgmma.make_products(BN, [[(2 * k, 0, 2 * k * BN) for k in range(LINE // 32)]])
    keep_one, finish, wait_all = wgmma.make_wait(NACC, 1), wgmma.make_wait(NACC, 0), ptx.WAIT_COPIES[0]
    send, advance, deliver = make_sender(tile), make_advance(ST), make_deliver(BN, activation)
    open_barriers, load_filters = make_barriers(GROUPS * ST, 4), make_filter_loader(PARTS, BN, TH)
    begin = in_turn([make_begin(j) for j in range(BN // 8)])

    def convolution(map_x, map_out, weight, bias, tiles, columns):
        ring = aligned(ptx.shared_address(cuda.shared.array(0, types.uint8)))
        results = u32(ring + u32(GROUPS * ST * BYTES))
        filters = u32(results + u32(GROUPS * OUT))
        biases = u32(filters + u32(PARTS * BN * 16))
        full = u32(biases + u32(BN * 4))
        empty = u32(full + u32(8 * GROUPS * ST))
        thread, bn = i32(cuda.threadIdx.x), i32(i32(cuda.blockIdx.y) * BN)
        lane, warp = i32(thread & 31), i32(thread >> 5)
        if thread == 0:
            open_barriers(full, empty)
        cuda.syncthreads()  # the barriers are initialised
        if warp == 4 * GROUPS:
            if lane == 0:
                tma.prefetch_map(map_x)
                send(ring, full, empty, map_x, tiles)
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
            mine = u32(results + u32(group * OUT))
            acc = cuda.local.array(NACC, dtype=types.float32)
            ring = u32(ring + u32(group * (ST * BYTES)))
            full, empty = u32(full + u32(group * (ST * 8))), u32(empty + u32(group * (ST * 8)))
            slot, parity, last = u32(0), u32(0), u32(0)
            at, ahead = i32(i32(cuda.blockIdx.x) + group * i32(cuda.gridDim.x)), i32(GROUPS * i32(cuda.gridDim.x))
            while at < tiles:
                begin(acc, u32(biases + u32((lane & 3) * 8)))
                step = i32(0)
                while step < STEPS:
                    tma.wait_for(u32(full + slot * u32(8)), parity)
                    b = wgmma.low_word(u32(filters + u32(step * (LINE // 16) * BN * 16)), u32(BN * 16))
                    product(acc, wgmma.low_word(u32(ring + slot * u32(BYTES)), u32(16)), u32(HIGH), u32(0), b,
                            wgmma.high_word(u32(128)), u32(1))
                    keep_one(acc)
                    if step > 0 and lane == 0:
                        tma.arrive(u32(empty + last * u32(8)))
                    last = slot
                    slot, parity = advance(slot, parity)
                    step = i32(step + 1)
                finish(acc)
                if lane == 0:
                    tma.arrive(u32(empty + last * u32(8)))
                deliver(acc, mine, map_out, bn, at, group, lane, i32(warp & 3))
                at = i32(at + ahead)
            tma.wait_stored()

    return convolution
