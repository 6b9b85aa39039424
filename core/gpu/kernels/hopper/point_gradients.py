"""Both gradients of a 1x1 convolution for Hopper in one pass over its input: that of the input and that of the filters.

A block takes some channels and walks over tiles of 64 pixels, which come as boxes of the copy engine: the input x and
the gradient dy of the output. A warpgroup has 64 of the channels and multiplies twice, dy by the filters and, both read
across, x by dy, whose sums stay in its registers until the block ends. Where the input is a ReLU's output, x is the
mask too: the gradient takes its place in shared memory, and the copy engine stores the box from there. A warp beside
them adds up dy for the bias. So x is read once instead of twice, and only partial sums are written beside dx.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import (
    WAIT_COPIES,
    commit_copies,
    copy_async16,
    high_bf16,
    low_bf16,
    pack_bf16,
    shared_address,
    shared_load1,
    shared_load4,
    shared_store1,
    shuffle_xor,
    store_float,
)
from core.gpu.kernels.parts.box_lines import PIXELS, box_bytes, high_word_of, line_bytes, make_twist
from core.gpu.kernels.parts.bulk_copy import (
    WAIT_READ,
    arrive,
    commit_boxes,
    copy_box,
    expect_bytes,
    prefetch_map,
    store_box,
    wait_for,
    wait_stored,
)
from core.gpu.kernels.parts.lanes import UNPACK, in_turn, passes
from core.gpu.kernels.parts.ring import make_advance, make_opening
from core.gpu.kernels.parts.tile import Tile
from core.gpu.kernels.parts.warpgroup import high_word, low_word, make_products, make_wait, meet
from core.gpu.kernels.parts.wgmma import show_to_tensor_cores

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

KINDS: Final = ("tensor_map", "tensor_map", "uint64", "tensor_map", "uint64", *("int32",) * 4)
"""Maps of x and dy, partial sums, map of dx, packed filters; tiles of 64 pixels, channels with and without those that
fill up the last block, floats of a partial result."""

CHANNELS: Final = 64
"""Channels of a warpgroup."""
BOX: Final = box_bytes(CHANNELS)


def parts_of(tile: Tile) -> int:
    """Parts of 8 filters that the packed ones have: whole steps of 16."""
    return -(-tile.depth // 32) * 2


def threads_of(tile: Tile) -> int:
    """The warpgroups, a warp that sends, and one for the bias."""
    return tile.threads + 64


def shared_bytes(tile: Tile) -> int:
    """Bytes of dynamic shared memory: ring, filters, barriers."""
    slot = tile.columns // CHANNELS * BOX + box_bytes(tile.depth // 2)
    return 1024 + tile.stages * (slot + 16) + parts_of(tile) * tile.columns * 16


def make_mask(masking: int, first: int) -> tuple[Any, Any]:
    """Device functions of 32 of a lane's channels: read the input; put the gradient that passes in its place.

    The first ones are read while the products are under way, the others when theirs have left the registers.
    """
    places = [(j, half) for j in range(first, first + 4) for half in range(2)]

    def make_read(i: int, j: int, half: int) -> Any:
        @device_function
        def read(held, lines, swap):
            held[i] = shared_load1(u32(lines + u32(half * 1024) + u32((j ^ swap) << 4)))

        return read

    def make_write(i: int, j: int, half: int) -> Any:
        @device_function
        def write(acc, held, lines, swap):
            v0, v1 = acc[j * 4 + half * 2], acc[j * 4 + half * 2 + 1]
            if masking:
                v0 = v0 if passes(low_bf16(held[i]), masking) else f32(0.0)
                v1 = v1 if passes(high_bf16(held[i]), masking) else f32(0.0)
            shared_store1(u32(lines + u32(half * 1024) + u32((j ^ swap) << 4)), pack_bf16(v0, v1))

        return write

    numbered = [(i, *place) for i, place in enumerate(places)]
    return in_turn([make_read(*n) for n in numbered]), in_turn([make_write(*n) for n in numbered])


def make_bias_warp(tile: Tile) -> Any:
    """Device function of one warp: sums of dy over all pixels of the block, for the blocks of the first channels."""
    FILTERS, ST, SLOT = tile.depth // 2, tile.stages, tile.columns // CHANNELS * BOX + box_bytes(tile.depth // 2)
    LINE, DY = line_bytes(FILTERS), tile.columns // CHANNELS * BOX
    CHUNKS = LINE // 16  # of a line; a lane has the same one of every so many-th pixel
    ROWS, FIRST = 32 // CHUNKS, CHUNKS.bit_length() - 1
    unpack, advance = UNPACK[2], make_advance(ST)

    def of_turn(turn: int) -> Any:
        @device_function
        def add(sums, eight, box, lane):
            line = i32(turn * ROWS + lane // CHUNKS)
            swap = i32(line & 7) if LINE == 128 else i32((line >> 1) & 3) if LINE == 64 else i32((line >> 2) & 1)
            unpack(shared_load4(u32(box + u32(line * LINE) + u32(((lane % CHUNKS) ^ swap) << 4))), eight)
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
            wait_for(u32(full + slot * u32(8)), parity)
            if first:
                add(sums, eight, u32(ring + slot * u32(SLOT) + u32(DY)), lane)
            cuda.syncwarp()
            if lane == 0:
                arrive(u32(empty + slot * u32(8)))
            slot, parity = advance(slot, parity)
            at = i32(at + i32(cuda.gridDim.x))
        if first:
            for i in range(8):
                for step in range(FIRST, 5):
                    sums[i] = f32(sums[i] + shuffle_xor(sums[i], u32(1 << step)))
                if lane * 8 + i < FILTERS and lane < CHUNKS:
                    store_float(u64(out + u64((lane * 8 + i) * 4)), sums[i])

    return add_biases


def make_sender(tile: Tile) -> Any:
    """Device function of one thread: the boxes of all tiles of this block, as far ahead as the ring has room."""
    GROUPS, ST, FILTERS = tile.columns // CHANNELS, tile.stages, tile.depth // 2
    SLOT, advance = GROUPS * BOX + box_bytes(FILTERS), make_advance(ST)

    @device_function
    def send(ring, full, empty, map_x, map_dy, channel, tiles):
        slot, parity, at = u32(0), u32(1), i32(cuda.blockIdx.x)
        while at < tiles:
            wait_for(u32(empty + slot * u32(8)), parity)
            barrier, place = u32(full + slot * u32(8)), u32(ring + slot * u32(SLOT))
            expect_bytes(barrier, u32(SLOT))
            for group in range(GROUPS):
                first = i32(channel + group * CHANNELS)
                copy_box(u32(place + u32(group * BOX)), map_x, first, i32(at * PIXELS), barrier)
            copy_box(u32(place + u32(GROUPS * BOX)), map_dy, i32(0), i32(at * PIXELS), barrier)
            slot, parity = advance(slot, parity)
            at = i32(at + i32(cuda.gridDim.x))

    return send


def make_point_gradients(numbers: tuple[int, ...], masking: int) -> Any:
    """The kernel as a Python function; columns are a block's channels, the tile's depth all filters.

    masking: of which activation x is the output, 0 none, 1 ReLU, 2 ReLU6.
    """
    tile = Tile(*numbers)
    BN, ST, TH, GROUPS, FILTERS = tile.columns, tile.stages, tile.threads, tile.warp_rows // 4, tile.depth // 2
    LINE, PARTS, SLOT = line_bytes(FILTERS), parts_of(tile), GROUPS * BOX + box_bytes(FILTERS)
    NDX, NDW, HIGH, WIDE = CHANNELS // 2, FILTERS // 2, high_word_of(LINE), high_word_of(2 * CHANNELS)
    assert BN == GROUPS * CHANNELS
    assert FILTERS % 8 == 0
    assert FILTERS <= CHANNELS
    assert ST > 1
    inputs = make_products(CHANNELS, [[(2 * k, 0, 2 * k * BN) for k in range(PARTS // 2)]])
    filters_of = make_products(FILTERS, [[(k * 128, 0, k * LINE) for k in range(PIXELS // 16)]], (True, True))
    finish_inputs, finish_filters = make_wait(NDX, 0), make_wait(NDW, 0)
    send, add_biases, twist = make_sender(tile), make_bias_warp(tile), make_twist(128)
    wait_all, keep_reading, advance = WAIT_COPIES[0], WAIT_READ[1], make_advance(ST)
    open_ring = make_opening(ST, GROUPS + 1)
    (read_first, write_first), (read_rest, write_rest) = make_mask(masking, 0), make_mask(masking, 4)

    def make_write(j: int) -> Any:
        @device_function
        def write(acc, out, channel, channels, lane):
            for half in range(2):
                c, s = i32(channel + half * 8), i32(j * 8 + (lane & 3) * 2)
                if c < channels:
                    store_float(u64(out + u64((s * channels + c) * 4)), acc[j * 4 + half * 2])
                    store_float(u64(out + u64(((s + 1) * channels + c) * 4)), acc[j * 4 + half * 2 + 1])

        return write

    write = in_turn([make_write(j) for j in range(FILTERS // 8)])

    def gradients(map_x, map_dy, partial, map_dx, weight, tiles, columns, channels, size):
        ring = u32((u32(shared_address(cuda.shared.array(0, types.uint8))) + u32(1023)) & u32(0xFFFFFC00))
        filters = u32(ring + u32(ST * SLOT))
        full = u32(filters + u32(PARTS * BN * 16))
        empty = u32(full + u32(8 * ST))
        thread, bn = i32(cuda.threadIdx.x), i32(i32(cuda.blockIdx.y) * BN)
        lane, warp = i32(thread & 31), i32(thread >> 5)
        out = u64(partial + u64(i64(i32(cuda.blockIdx.x)) * i64(size) * 4))
        if thread == 0:
            open_ring(full, empty)
        for i in range(thread, PARTS * BN, TH + 64):
            part, c = i32(i // BN), i32(i % BN)
            copy_async16(u32(filters + u32(i * 16)), u64(weight + u64(i64(part * columns + bn + c) * 16)), u32(16))
        commit_copies()
        wait_all()
        show_to_tensor_cores()
        cuda.syncthreads()  # the barriers stand, the filters are here
        if warp == 4 * GROUPS:
            if lane == 0:
                prefetch_map(map_dx)
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
            b = low_word(u32(filters + u32(group * (CHANNELS * 16))), u32(BN * 16))
            slot, parity, last, at = u32(0), u32(0), u32(ST), i32(cuda.blockIdx.x)
            while at < tiles:
                for i in range(NDX):
                    acc[i] = f32(0.0)
                mine = u32(ring + slot * u32(SLOT) + u32(group * BOX))
                dy = low_word(u32(ring + slot * u32(SLOT) + u32(GROUPS * BOX)), u32(16))
                wait_for(u32(full + slot * u32(8)), parity)
                inputs(acc, dy, u32(HIGH), u32(0), b, high_word(u32(128)), u32(1))
                filters_of(sums, low_word(mine, u32(16)), u32(WIDE), u32(0), dy, u32(HIGH), u32(1))
                lines = u32(mine + u32(((warp & 3) * 16 + (lane >> 2)) * 128 + (lane & 3) * 4))
                if masking:
                    read_first(held, lines, twist(lane))
                finish_inputs(acc)
                finish_filters(sums)
                meet(u32(group + 1))  # no warp's product reads this box any more
                write_first(acc, held, lines, twist(lane))
                if masking:
                    read_rest(held, lines, twist(lane))
                write_rest(acc, held, lines, twist(lane))
                show_to_tensor_cores()
                meet(u32(group + 1))  # the box is the gradient's
                if head:
                    store_box(map_dx, bn, i32(at * PIXELS), mine)
                    commit_boxes()
                    keep_reading()
                    if last != u32(ST):
                        arrive(u32(empty + last * u32(8)))  # the box before has been read
                last = slot
                slot, parity = advance(slot, parity)
                at = i32(at + i32(cuda.gridDim.x))
            channel = i32(bn + (warp & 3) * 16 + (lane >> 2))
            write(sums, out, channel, channels, lane)
            wait_stored()

    return gradients
