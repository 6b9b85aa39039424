"""1x1 convolution for Hopper: pixels come and go as boxes of the copy engine, `wgmma` multiplies them as they lie.

All filters stay in shared memory. Each warpgroup takes every so many-th tile of 64 pixels; one thread sends their boxes
into rings, one a warpgroup, as far ahead as there is room. (A barrier tells its last two phases apart: of a common ring
a warpgroup might wait for a phase after the next.) A warpgroup begins its sums with the biases, multiplies, activates,
lays the result down as boxes of its own and has the copy engine store them, into a slice of channels if need be. Pixels
beyond the last one come as zeros and are not stored. Nobody computes an address of a pixel, and a store is waited for
only when its room is needed.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import (
    WAIT_COPIES,
    bits_to_float,
    commit_copies,
    copy_async16,
    float_to_bits,
    load_float,
    pack_bf16,
    shared_address,
    shared_load2,
    shared_store1,
)
from core.gpu.kernels.parts.box_lines import PIXELS, box_bytes, boxes_of, high_word_of, line_bytes, make_twist
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
from core.gpu.kernels.parts.lanes import activate, in_turn
from core.gpu.kernels.parts.ring import make_advance, make_opening
from core.gpu.kernels.parts.tile import Tile
from core.gpu.kernels.parts.warpgroup import high_word, low_word, make_products, make_wait, meet, meet_many
from core.gpu.kernels.parts.wgmma import show_to_tensor_cores

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

KINDS: Final = ("tensor_map", "tensor_map", "uint64", "uint64", "int32", "int32")
"""Maps of x and out, packed filters, bias (0: none); tiles of 64 pixels, filters in all."""


def parts_of(tile: Tile) -> int:
    """Parts of 8 channels that filters are packed in: whole boxes."""
    return boxes_of(tile.depth // 2) * line_bytes(tile.depth // 2) // 16


def threads_of(tile: Tile) -> int:
    """The warpgroups, and a warp that sends."""
    return tile.threads + 32


def shared_bytes(tile: Tile) -> int:
    """Bytes of dynamic shared memory: the rings, results on their way out, filters, biases, barriers."""
    ring = tile.stages * (box_bytes(tile.depth // 2) + 16)
    out = boxes_of(tile.columns) * box_bytes(tile.columns)
    return 1024 + tile.warp_rows // 4 * (ring + out) + (parts_of(tile) * 16 + 4) * tile.columns


def make_begin(j: int) -> Any:
    """Device function of eight of a lane's columns: their biases as first sums."""

    @device_function
    def begin(acc, biases):
        b = shared_load2(u32(biases + u32(j * 32)))
        acc[j * 4], acc[j * 4 + 1] = bits_to_float(b[0]), bits_to_float(b[1])
        acc[j * 4 + 2], acc[j * 4 + 3] = bits_to_float(b[0]), bits_to_float(b[1])

    return begin


def make_store(j: int, line: int, activation: int) -> Any:
    """Device function of eight of a lane's columns: activated, into the box as the copy engine wants it."""
    BOX, CHUNK = j * 16 // line * PIXELS * line, j % (line // 16)

    @device_function
    def store(acc, lines, swap):
        place = u32(lines + u32(BOX) + u32((CHUNK ^ swap) << 4))
        v0, v1 = activate(acc[j * 4], activation), activate(acc[j * 4 + 1], activation)
        v2, v3 = activate(acc[j * 4 + 2], activation), activate(acc[j * 4 + 3], activation)
        shared_store1(place, pack_bf16(v0, v1))
        shared_store1(u32(place + u32(8 * line)), pack_bf16(v2, v3))

    return store


def make_sender(tile: Tile) -> Any:
    """Device function of one thread: the boxes of all tiles of this block, as far ahead as the rings have room."""
    ST, GROUPS, CHANNELS = tile.stages, tile.warp_rows // 4, tile.depth // 2
    STEPS, BOX, WIDE = boxes_of(CHANNELS), box_bytes(CHANNELS), line_bytes(CHANNELS) // 2
    advance = make_advance(ST)

    @device_function
    def send(ring, full, empty, map_x, tiles):
        first, before, group, at = u32(0), u32(1), i32(0), i32(cuda.blockIdx.x)
        slot, parity = first, before
        while at < tiles:
            step, slot, parity = i32(0), first, before  # every ring is filled alike
            while step < STEPS:
                place = u32(u32(group * ST) + slot)
                wait_for(u32(empty + place * u32(8)), parity)
                barrier = u32(full + place * u32(8))
                expect_bytes(barrier, u32(BOX))
                copy_box(u32(ring + place * u32(BOX)), map_x, i32(step * WIDE), i32(at * PIXELS), barrier)
                slot, parity = advance(slot, parity)
                step = i32(step + 1)
            group = i32(group + 1)
            if group == GROUPS:
                group, first, before = i32(0), slot, parity
            at = i32(at + i32(cuda.gridDim.x))

    return send


def make_point_convolution(numbers: tuple[int, ...], activation: int) -> Any:
    """The kernel as a Python function; the tile's depth are all channels, its stages boxes of a ring.

    activation: 0 none, 1 ReLU, 2 ReLU6; known here, so that no sum is followed by a branch.
    """
    tile = Tile(*numbers)
    BN, ST, TH, GROUPS, CHANNELS = tile.columns, tile.stages, tile.threads, tile.warp_rows // 4, tile.depth // 2
    LINE, STEPS, BOX = line_bytes(CHANNELS), boxes_of(CHANNELS), box_bytes(CHANNELS)
    OLINE, OBOXES, OBOX = line_bytes(BN), boxes_of(BN), box_bytes(BN)
    PARTS, NACC, HIGH = parts_of(tile), BN // 2, high_word_of(LINE)
    assert BN % 8 == 0
    assert BN <= 256
    product = make_products(BN, [[(2 * k, 0, 2 * k * BN) for k in range(LINE // 32)]])
    keep_one, finish = make_wait(NACC, 1), make_wait(NACC, 0)
    send, advance, twist = make_sender(tile), make_advance(ST), make_twist(OLINE)
    open_ring = make_opening(GROUPS * ST, 4)
    wait_all, wait_read = WAIT_COPIES[0], WAIT_READ[0]
    begin = in_turn([make_begin(j) for j in range(BN // 8)])
    store = in_turn([make_store(j, OLINE, activation) for j in range(BN // 8)])

    @device_function
    def deliver(acc, mine, map_out, bn, at, group, lane, warp):
        """The sums of this warpgroup's tile, once the boxes of the tile before have been read."""
        if warp == 0 and lane == 0:
            wait_read()
        meet(u32(group + 1))
        lines = u32(mine + u32((warp * 16 + (lane >> 2)) * OLINE + (lane & 3) * 4))
        store(acc, lines, twist(lane))
        show_to_tensor_cores()
        meet(u32(group + 1))  # the boxes are complete
        if warp == 0 and lane == 0:
            for box in range(OBOXES):
                store_box(map_out, i32(bn + box * (OLINE // 2)), i32(at * PIXELS), u32(mine + u32(box * OBOX)))
            commit_boxes()

    def convolution(map_x, map_out, weight, bias, tiles, columns):
        ring = u32((u32(shared_address(cuda.shared.array(0, types.uint8))) + u32(1023)) & u32(0xFFFFFC00))
        boxes = u32(ring + u32(GROUPS * ST * BOX))
        filters = u32(boxes + u32(GROUPS * OBOXES * OBOX))
        biases = u32(filters + u32(PARTS * BN * 16))
        full = u32(biases + u32(BN * 4))
        empty = u32(full + u32(8 * GROUPS * ST))
        thread, bn = i32(cuda.threadIdx.x), i32(i32(cuda.blockIdx.y) * BN)
        lane, warp = i32(thread & 31), i32(thread >> 5)
        if thread == 0:
            open_ring(full, empty)
        cuda.syncthreads()  # the barriers stand
        if warp == 4 * GROUPS:
            if lane == 0:
                prefetch_map(map_x)
                send(ring, full, empty, map_x, tiles)
        else:
            for i in range(thread, PARTS * BN, TH):
                part, f = i32(i // BN), i32(i % BN)
                copy_async16(u32(filters + u32(i * 16)), u64(weight + u64(i64(part * columns + bn + f) * 16)), u32(16))
            commit_copies()
            for i in range(thread, BN, TH):
                value = load_float(u64(bias + u64((bn + i) * 4))) if bias != u64(0) else f32(0.0)
                shared_store1(u32(biases + u32(i * 4)), float_to_bits(value))
            wait_all()
            show_to_tensor_cores()
            meet_many(u32(GROUPS + 1), u32(TH))  # filters and biases are here
            group = i32(warp >> 2)
            mine = u32(boxes + u32(group * (OBOXES * OBOX)))
            acc = cuda.local.array(NACC, dtype=types.float32)
            ring = u32(ring + u32(group * (ST * BOX)))
            full, empty = u32(full + u32(group * (ST * 8))), u32(empty + u32(group * (ST * 8)))
            slot, parity, last = u32(0), u32(0), u32(0)
            at, ahead = i32(i32(cuda.blockIdx.x) + group * i32(cuda.gridDim.x)), i32(GROUPS * i32(cuda.gridDim.x))
            while at < tiles:
                begin(acc, u32(biases + u32((lane & 3) * 8)))
                step = i32(0)
                while step < STEPS:
                    wait_for(u32(full + slot * u32(8)), parity)
                    b = low_word(u32(filters + u32(step * (LINE // 16) * BN * 16)), u32(BN * 16))
                    product(acc, low_word(u32(ring + slot * u32(BOX)), u32(16)), u32(HIGH), u32(0), b,
                            high_word(u32(128)), u32(1))
                    keep_one(acc)
                    if step > 0 and lane == 0:
                        arrive(u32(empty + last * u32(8)))
                    last = slot
                    slot, parity = advance(slot, parity)
                    step = i32(step + 1)
                finish(acc)
                if lane == 0:
                    arrive(u32(empty + last * u32(8)))
                deliver(acc, mine, map_out, bn, at, group, lane, i32(warp & 3))
                at = i32(at + ahead)
            wait_stored()

    return convolution
