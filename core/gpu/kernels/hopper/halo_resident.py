"""`halo_warpgroup` for sums that are not deep: all filters of a block stay in shared memory while it walks over pixels.

Each warpgroup walks by itself: while the tensor cores multiply one of its tiles of pixel numbers the next one arrives,
and while one warpgroup stores another's products run. Sums leave straight from the registers: four lanes exchange
theirs, so that each stores 16 bytes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import (
    WAIT_COPIES,
    commit_copies,
    copy_async16,
    load_float,
    pack_bf16,
    shared_address,
    store4,
)
from core.gpu.kernels.hopper.halo_warpgroup import part_pixels
from core.gpu.kernels.parts.fragments import exchange
from core.gpu.kernels.parts.lanes import activate, in_turn
from core.gpu.kernels.parts.pixels import pixel_of_number
from core.gpu.kernels.parts.tile import Tile
from core.gpu.kernels.parts.warpgroup import TILE, high_word, low_word, make_products, make_wait, meet
from core.gpu.kernels.parts.wgmma import show_to_tensor_cores

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32


def room_of(tile: Tile, width: int) -> int:
    """Pixels' room of one part of a warpgroup's tile."""
    return part_pixels(replace(tile, rows=tile.rows * 4 // tile.warp_rows), width, False)


def shared_bytes(tile: Tile, width: int) -> int:
    """Bytes of dynamic shared memory: two tiles of pixels a warpgroup, and the filters."""
    return (tile.warp_rows // 2 * room_of(tile, width) + 9 * tile.columns) * tile.depth


ARGUMENTS: Final = (
    *(types.uint64,) * 4,  # x, packed filters, bias (0: none), out
    *(types.int32,) * 4,  # pixel numbers in all, tiles of them, filters, pixels' room of a part
    *(types.uint32,) * 4,  # fast division by numbers a photo and by width + 1
    *(types.int32,) * 3,  # height, width, pixel pitch of x
    *(types.int32,) * 2,  # pitch of out, activation
)


def make_resident_halo(numbers: tuple[int, ...]) -> Any:
    """The kernel as a Python function; the tile's depth are all channels."""
    tile = Tile(*numbers)
    BN, KB, TH, GROUPS = tile.columns, tile.depth, tile.threads, tile.warp_rows // 4
    MT, CH = tile.rows // (tile.warp_rows * 16), KB // 16
    BM = MT * TILE
    NACC, PARTS, FOURS, MARGINS = MT * BN // 2, 9 * CH, BN // 32, 2 * MT
    assert tile.warp_columns == 1
    assert BN % 32 == 0

    turns = [(tap, k) for tap in range(3) for k in range(CH // 2)]
    three = make_products(BN, [[(m * TILE + tap, k, (tap * CH + 2 * k) * BN) for tap, k in turns] for m in range(MT)])
    finish = make_wait(NACC, 0)
    wait, wait_all = WAIT_COPIES[1], WAIT_COPIES[0]

    @device_function
    def load_tile(to, x, halo, room, pitch, width, about, tid):
        """Copy the numbered pixels of a tile and around it; what lies outside the photos becomes zero."""
        for i in range(tid, halo * CH, 128):
            r, q = i32(i // CH), i32(i % CH)
            pixel = pixel_of_number(i32(r - width - 2), about)
            source = u64(x + u64((i64(pixel) * pitch + q * 8) * 2))
            place = u32(to + u32((q * room + r) * 16))
            copy_async16(place, source if pixel >= 0 else x, u32(16) if pixel >= 0 else u32(0))

    def make_store(m: int, half: int, part: int) -> Any:
        """Of 32 filters of a row: bias and activation, exchanged, stored."""
        FIRST, MINE = (m * (BN // 8) + part * 4) * 4 + half * 2, m * 2 + half

        @device_function
        def store(acc, pixels, out, bias, bn, ldc, lane, activation):
            quad = cuda.local.array(4, dtype=types.uint32)
            t = i32(lane & 3)
            for j in range(4):
                b0, b1 = f32(0.0), f32(0.0)
                if bias != u64(0):
                    at = u64(bias + u64((bn + (part * 4 + j) * 8 + t * 2) * 4))
                    b0, b1 = load_float(at), load_float(u64(at + u64(4)))
                o = FIRST + j * 4
                quad[j] = pack_bf16(activate(f32(acc[o] + b0), activation), activate(f32(acc[o + 1] + b1), activation))
            exchange(quad, lane)
            pixel = pixels[MINE]
            if pixel >= 0:
                target = u64(out + u64((i64(pixel) * i64(ldc) + i64(bn + (part * 4 + t) * 8)) * 2))
                store4(target, quad[0], quad[1], quad[2], quad[3])

        return store

    store = in_turn([make_store(m, half, part) for m in range(MT) for half in range(2) for part in range(FOURS)])

    def convolution(
        x, weight, bias, out, limit, tiles, columns, room, hw_mul, hw_shift, w_mul, w_shift,
        height, width, pitch, ldc, activation,
    ):
        shared = cuda.shared.array(0, dtype=types.uint8)
        base = shared_address(shared)
        tid = i32(cuda.threadIdx.x)
        lane, warp = i32(tid & 31), i32(tid >> 5)
        group, bn = i32(warp >> 2), i32(i32(cuda.blockIdx.y) * BN)
        halo, span = i32(BM + 2 * (width + 2)), u32(room * KB)
        filters = u32(base + u32(2 * GROUPS) * span)
        for i in range(tid, PARTS * BN, TH):
            part, f = i32(i // BN), i32(i % BN)
            copy_async16(u32(filters + u32(i * 16)), u64(weight + u64(i64(part * columns + bn + f) * 16)), u32(16))
        at, slot, ahead = i32(i32(cuda.blockIdx.x) * GROUPS + group), u32(0), i32(i32(cuda.gridDim.x) * GROUPS)
        base, tid = u32(base + u32(2 * group) * span), i32(tid & 127)
        about = (i32(at * BM), limit, height, width, hw_mul, hw_shift, w_mul, w_shift)
        load_tile(base, x, halo, room, pitch, width, about, tid)
        commit_copies()
        wait_all()
        show_to_tensor_cores()
        cuda.syncthreads()  # the filters are here
        acc = cuda.local.array(NACC, dtype=types.float32)
        pixels = cuda.local.array(MARGINS, dtype=types.int32)
        b = low_word(filters, u32(BN * 16))
        while at < tiles:
            following = i32(at + ahead)
            if following < tiles:
                later = (i32(following * BM), limit, height, width, hw_mul, hw_shift, w_mul, w_shift)
                load_tile(u32(base + (slot ^ u32(1)) * span), x, halo, room, pitch, width, later, tid)
            commit_copies()
            for i in range(NACC):
                acc[i] = f32(0.0)
            wait()
            show_to_tensor_cores()
            meet(u32(group + 1))  # this tile is here
            mine = u32(base + slot * span)
            for s in range(3):
                a = low_word(u32(mine + u32(s * (width + 1) * 16)), u32(room * 16))
                three(acc, a, high_word(u32(128)), u32(2 * room), u32(b + u32(s * 3 * CH * BN)), high_word(u32(128)),
                      u32(1))
            here = (i32(at * BM), limit, height, width, hw_mul, hw_shift, w_mul, w_shift)
            for j in range(MARGINS):
                r = i32((j // 2) * TILE + (warp & 3) * 16 + (lane >> 2) + (j % 2) * 8)
                pixels[j] = pixel_of_number(r, here)
            finish(acc)
            meet(u32(group + 1))  # no warp's product reads this tile's pixels any more
            store(acc, pixels, out, bias, bn, ldc, lane, activation)
            at, slot = following, u32(slot ^ u32(1))
        wait_all()

    return convolution
