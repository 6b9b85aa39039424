"""Both gradients of a 1x1 convolution in one pass over its input: ``dx = dy W`` (masked) and ``dW = dy^T x``.

Tiling: a block has `columns` channels of the input and takes every so many-th tile of 64 pixels.

              64 channels   64 channels
            +-------------+-------------+
    64      | warpgroup 0 | warpgroup 1 |   each multiplies twice: dy by the filters gives dx of the tile;
    pixels  +-------------+-------------+   x by dy, both transposed, adds to dW, which stays in registers

One more warp sends for the tiles of x and dy; another adds up dy for the bias.

Shared memory: stages, each x in TMA tiles of 64 channels and dy in one (swizzled) | filters in parts of 16 bytes |
barriers. Where x is a ReLU's output it is the mask, too: dx replaces it in shared memory and TMA stores the tile from
there. Bytes: x and dy once, dx once, and the partial sums of dW; two separate kernels read x and dy twice.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation import ptx
from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.launch import INTEGER, POINTER, Argument, KernelSignature
from core.gpu.parts.tile import Tile
from core.gpu.parts.vectors import UNPACK, in_turn, passes
from core.gpu.sm90 import tma, wgmma
from core.gpu.sm90.filters import make_filter_loader
from core.gpu.sm90.pipeline import make_advance, make_barriers
from core.gpu.sm90.swizzle import PIXELS, aligned, line_bytes, make_xor, swizzled_high_word, tile_bytes

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

SIGNATURE: Final = KernelSignature((
    Argument("map_x", tma.TENSOR_MAP, "input and mask, pixels x channels"),
    Argument("map_dy", tma.TENSOR_MAP, "gradient of the output, pixels x filters"),
    Argument("partial", POINTER, "partial weight and bias gradients, one of each block"),
    Argument("map_dx", tma.TENSOR_MAP, "gradient of the input"),
    Argument("weight", POINTER, "filters of `pack_parts`, backward, one tap"),
    Argument("tiles", INTEGER, "tiles of 64 pixels"),
    Argument("columns", INTEGER, "channels up to whole blocks"),
    Argument("channels", INTEGER, "channels"),
    Argument("size", INTEGER, "floats of a partial result"),
))  # fmt: skip

CHANNELS: Final = 64
"""Channels of a warpgroup."""
WIDE: Final = tile_bytes(CHANNELS)
"""Bytes of the TMA tile of a warpgroup."""


def slot_bytes(tile: Tile) -> int:
    """Bytes of a stage: the wide side, a TMA tile for each warpgroup, and the narrow one."""
    return tile.columns // CHANNELS * WIDE + tile_bytes(tile.depth // 2)


def parts_of(tile: Tile) -> int:
    """Parts of 8 filters that the packed ones have: whole steps of 16."""
    return -(-tile.depth // 32) * 2


def threads_of(tile: Tile) -> int:
    """The warpgroups, a warp that sends, and one for the bias."""
    return tile.threads + 64


def shared_bytes(tile: Tile) -> int:
    """Bytes of dynamic shared memory: stages, filters, barriers."""
    return 1024 + tile.stages * (slot_bytes(tile) + 16) + parts_of(tile) * tile.columns * 16


def make_mask(masking: int, first: int) -> tuple[Any, Any]:
    """Device functions of 32 of a lane's channels: read the input; put the gradient that passes in its place.

    The first ones are read while the products are under way, the others when theirs have left the registers.
    """
    places = [(j, half) for j in range(first, first + 4) for half in range(2)]

    def make_read(i: int, j: int, half: int) -> Any:
        @device_function
        def read(held, lines, swap):
            held[i] = ptx.shared_load1(u32(lines + u32(half * 1024) + u32((j ^ swap) << 4)))

        return read

    def make_write(i: int, j: int, half: int) -> Any:
        @device_function
        def write(acc, held, lines, swap):
            v0, v1 = acc[j * 4 + half * 2], acc[j * 4 + half * 2 + 1]
            if masking:
                v0 = v0 if passes(ptx.low_bf16(held[i]), masking) else f32(0.0)
                v1 = v1 if passes(ptx.high_bf16(held[i]), masking) else f32(0.0)
            ptx.shared_store1(u32(lines + u32(half * 1024) + u32((j ^ swap) << 4)), ptx.pack_bf16(v0, v1))

        return write

    numbered = [(i, *place) for i, place in enumerate(places)]
    return in_turn([make_read(*n) for n in numbered]), in_turn([make_write(*n) for n in numbered])


def make_bias_warp(tile: Tile) -> Any:
    """Device function of one warp: sums of dy over all pixels of the block, for the blocks of the first channels."""
    FILTERS, ST, SLOT = tile.depth // 2, tile.stages, slot_bytes(tile)
    LINE, DY = line_bytes(FILTERS), tile.columns // CHANNELS * WIDE
    CHUNKS = LINE // 16  # of a line; a lane has the same one of every so many-th pixel
    ROWS, FIRST = 32 // CHUNKS, CHUNKS.bit_length() - 1
    unpack, advance = UNPACK[2], make_advance(ST)

    def of_turn(turn: int) -> Any:
        @device_function
        def add(sums, eight, dy, lane):
            line = i32(turn * ROWS + lane // CHUNKS)
            swap = i32(line & 7) if LINE == 128 else i32((line >> 1) & 3) if LINE == 64 else i32((line >> 2) & 1)
            unpack(ptx.shared_load4(u32(dy + u32(line * LINE) + u32(((lane % CHUNKS) ^ swap) << 4))), eight)
            for i in range(8):
                sums[i] = f32(sums[i] + eight[i])

        return add

    add = in_turn([of_turn(turn) for turn in range(PIXELS // ROWS)])

    @device_function
    def add_biases(ring, full, empty, out, tiles, first, lane):
        sums = cuda.local.array(8, dtype=types.float32)
        eight = cuda.local.array(8, dtype=types.float32)
        for i in range(8):
            sums[i] = f32(0.0)
        slot, parity, at = u32(0), u32(0), i32(cuda.blockIdx.x)
        while at < tiles:
            tma.wait_for(u32(full + slot * u32(8)), parity)
            if first:
                add(sums, eight, u32(ring + slot * u32(SLOT) + u32(DY)), lane)
            cuda.syncwarp()
            if lane == 0:
                tma.arrive(u32(empty + slot * u32(8)))
            slot, parity = advance(slot, parity)
            at = i32(at + i32(cuda.gridDim.x))
        if first:
            for i in range(8):
                for step in range(FIRST, 5):
                    sums[i] = f32(sums[i] + ptx.shuffle_xor(sums[i], u32(1 << step)))
                if lane * 8 + i < FILTERS and lane < CHUNKS:
                    ptx.store_float(u64(out + u64((lane * 8 + i) * 4)), sums[i])

    return add_biases


def make_sender(tile: Tile) -> Any:
    """Device function of one thread: all TMA tiles of this block, as far ahead as there are free stages."""
    GROUPS, SLOT, advance = tile.columns // CHANNELS, slot_bytes(tile), make_advance(tile.stages)

    @device_function
    def send(ring, full, empty, map_wide, map_narrow, channel, tiles):
        slot, parity, at = u32(0), u32(1), i32(cuda.blockIdx.x)
        while at < tiles:
            tma.wait_for(u32(empty + slot * u32(8)), parity)
            barrier, place = u32(full + slot * u32(8)), u32(ring + slot * u32(SLOT))
            tma.expect_bytes(barrier, u32(SLOT))
            for group in range(GROUPS):
                first = i32(channel + group * CHANNELS)
                tma.copy_tile(u32(place + u32(group * WIDE)), map_wide, first, i32(at * PIXELS), barrier)
            tma.copy_tile(u32(place + u32(GROUPS * WIDE)), map_narrow, i32(0), i32(at * PIXELS), barrier)
            slot, parity = advance(slot, parity)
            at = i32(at + i32(cuda.gridDim.x))

    return send


def make_write(filters: int) -> Any:
    """Device function: a warp's sums of dW to the block's partial result, rows of `channels` for each filter."""

    def of_eight(j: int) -> Any:
        @device_function
        def write(acc, out, channel, channels, lane):
            for half in range(2):
                c, s = i32(channel + half * 8), i32(j * 8 + (lane & 3) * 2)
                if c < channels:
                    ptx.store_float(u64(out + u64((s * channels + c) * 4)), acc[j * 4 + half * 2])
                    ptx.store_float(u64(out + u64(((s + 1) * channels + c) * 4)), acc[j * 4 + half * 2 + 1])

        return write

    return in_turn([of_eight(j) for j in range(filters // 8)])


def make_deliver(stages: int) -> Any:
    """Device function of one thread: store a tile of dx, then release the stage before, whose tile has been read."""
    keep_reading = tma.WAIT_READ[1]

    @device_function
    def deliver(map_dx, channel, at, mine, empty, last):
        tma.store_tile(map_dx, channel, i32(at * PIXELS), mine)
        tma.commit_stores()
        keep_reading()
        if last != u32(stages):
            tma.arrive(u32(empty + last * u32(8)))

    return deliver


def make_point_gradients(numbers: tuple[int, ...], masking: int) -> Any:
    """The kernel; columns are a block's channels, the tile's depth all filters; `masking`: x's activation, 0 none."""
    tile = Tile(*numbers)
    BN, ST, TH, GROUPS, FILTERS = tile.columns, tile.stages, tile.threads, tile.warp_rows // 4, tile.depth // 2
    LINE, PARTS, SLOT = line_bytes(FILTERS), parts_of(tile), slot_bytes(tile)
    NDX, NDW, HIGH, HIGH_X = CHANNELS // 2, FILTERS // 2, swizzled_high_word(LINE), swizzled_high_word(2 * CHANNELS)
    assert BN == GROUPS * CHANNELS
    assert FILTERS % 8 == 0
    assert FILTERS <= CHANNELS
    assert ST > 1
    inputs = wgmma.make_products(CHANNELS, [[(2 * k, 0, 2 * k * BN) for k in range(PARTS // 2)]])
    filters_of = wgmma.make_products(FILTERS, [[(k * 128, 0, k * LINE) for k in range(PIXELS // 16)]], (True, True))
    finish_inputs, finish_filters = wgmma.make_wait(NDX, 0), wgmma.make_wait(NDW, 0)
    send, add_biases, xor, write = make_sender(tile), make_bias_warp(tile), make_xor(128), make_write(FILTERS)
    wait_all, deliver, advance = ptx.WAIT_COPIES[0], make_deliver(ST), make_advance(ST)
    open_barriers, load_filters = make_barriers(ST, GROUPS + 1), make_filter_loader(PARTS, BN, TH + 64)
    (read_first, write_first), (read_rest, write_rest) = make_mask(masking, 0), make_mask(masking, 4)

    def gradients(map_x, map_dy, partial, map_dx, weight, tiles, columns, channels, size):
        ring = aligned(ptx.shared_address(cuda.shared.array(0, types.uint8)))
        filters = u32(ring + u32(ST * SLOT))
        full = u32(filters + u32(PARTS * BN * 16))
        empty = u32(full + u32(8 * ST))
        thread, bn = i32(cuda.threadIdx.x), i32(i32(cuda.blockIdx.y) * BN)
        lane, warp = i32(thread & 31), i32(thread >> 5)
        out = u64(partial + u64(i64(i32(cuda.blockIdx.x)) * i64(size) * 4))
        if thread == 0:
            open_barriers(full, empty)
        load_filters(filters, weight, bn, columns, thread)
        ptx.commit_copies()
        wait_all()
        wgmma.fence_async_proxy()
        cuda.syncthreads()  # the barriers are initialised, the filters are in shared memory
        if warp == 4 * GROUPS:
            if lane == 0:
                tma.prefetch_map(map_dx)
                send(ring, full, empty, map_x, map_dy, bn, tiles)
        elif warp > 4 * GROUPS:
            add_biases(ring, full, empty, u64(out + u64(FILTERS * channels * 4)), tiles, bn == 0, lane)
        else:
            group = i32(warp >> 2)
            bn = i32(bn + group * CHANNELS)
            head = i32(warp & 3) == 0 and lane == 0
            sums = cuda.local.array(NDW, dtype=types.float32)
            acc = cuda.local.array(NDX, dtype=types.float32)
            held = cuda.local.array(8, dtype=types.uint32)
            for i in range(NDW):
                sums[i] = f32(0.0)
            b = wgmma.low_word(u32(filters + u32(group * (CHANNELS * 16))), u32(BN * 16))
            slot, parity, last, at = u32(0), u32(0), u32(ST), i32(cuda.blockIdx.x)
            while at < tiles:
                for i in range(NDX):
                    acc[i] = f32(0.0)
                mine = u32(ring + slot * u32(SLOT) + u32(group * WIDE))
                dy = wgmma.low_word(u32(ring + slot * u32(SLOT) + u32(GROUPS * WIDE)), u32(16))
                tma.wait_for(u32(full + slot * u32(8)), parity)
                inputs(acc, dy, u32(HIGH), u32(0), b, wgmma.high_word(u32(128)), u32(1))
                filters_of(sums, wgmma.low_word(mine, u32(16)), u32(HIGH_X), u32(0), dy, u32(HIGH), u32(1))
                lines = u32(mine + u32(((warp & 3) * 16 + (lane >> 2)) * 128 + (lane & 3) * 4))
                if masking:
                    read_first(held, lines, xor(lane))
                finish_inputs(acc)
                finish_filters(sums)
                wgmma.warpgroup_barrier(u32(group + 1))  # no warp's product reads this tile of x any more
                write_first(acc, held, lines, xor(lane))
                if masking:
                    read_rest(held, lines, xor(lane))
                write_rest(acc, held, lines, xor(lane))
                wgmma.fence_async_proxy()
                wgmma.warpgroup_barrier(u32(group + 1))  # the tile holds dx
                if head:
                    deliver(map_dx, bn, at, mine, empty, last)
                last = slot
                slot, parity = advance(slot, parity)
                at = i32(at + i32(cuda.gridDim.x))
            write(sums, out, i32(bn + (warp & 3) * 16 + (lane >> 2)), channels, lane)
            tma.wait_stored()

    return gradients
