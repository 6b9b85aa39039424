"""3x3 convolution of stride 1 with few channels, by `wgmma` straight from the pixels in shared memory.

``out[p] = sum over taps and channels of x[p + tap] W[tap]``. Pixels are numbered with one
column of zeros after each row of an image, so a tap is a constant distance. A block multiplies many tiles of pixels by
the same filters, which stay in shared memory.

              columns (filters)
            +-------------------+   warpgroup g takes every so many-th tile of `64 m` pixel numbers by itself: while
    64 m    | one tile of one   |   it multiplies one, the next one is copied to its other buffer; while one
    pixels  | warpgroup         |   warpgroup stores, another multiplies
            +-------------------+

Shared memory: for each warpgroup two tiles of pixels with their halo, all channels | 9 taps of filters, all channels.
Pixels are in parts of 16 bytes, a part of all pixels after another: eight pixels are a core matrix of `wgmma`, and a
tap begins as many times 16 bytes further as it is pixels away. No copies of windows, no bank conflicts.
Results leave straight from the registers: four lanes exchange theirs, so that each stores 16 bytes.
Bytes: x once and its halo, out once; filters once for each block.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation import ptx
from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.launch import INTEGER, POINTER, Argument, KernelSignature, divisions, pitches
from core.gpu.parts.epilogue import pixel_of_number
from core.gpu.parts.tile import Tile, exchange
from core.gpu.parts.vectors import activate, in_turn
from core.gpu.sm90.filters import make_filter_loader
from core.gpu.sm90.wgmma import (
    TILE,
    fence_async_proxy,
    high_word,
    low_word,
    make_products,
    make_wait,
    warpgroup_barrier,
)

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

SIGNATURE: Final = KernelSignature((
    Argument("x", POINTER, "input"),
    Argument("weight", POINTER, "filters of `pack_parts`"),
    Argument("bias", POINTER, "float32, 0: none"),
    Argument("out", POINTER, "output"),
    Argument("limit", INTEGER, "pixel numbers in all"),
    Argument("tiles", INTEGER, "tiles of them"),
    Argument("columns", INTEGER, "filters in all"),
    Argument("room", INTEGER, "pixels' room of a part"),
    *divisions(area="numbers of an image", across="width + 1"),
    Argument("height", INTEGER, "rows of an image"),
    Argument("width", INTEGER, "pixels of a row"),
    *pitches(pitch="x", ldo="output"),
    Argument("activation", INTEGER, "0 none, 1 ReLU, 2 ReLU6"),
))  # fmt: skip


SPREAD: Final = {2: 4, 4: 2, 6: 5, 8: 1}
"""Pixels from one part to the next, modulo 8, by parts: the copies of a pixel's parts meet different banks."""


def room_of(tile: Tile, width: int) -> int:
    """Pixels' room of one part of a warpgroup's tile."""
    pixels = tile.rows * 4 // tile.warp_rows + 2 * (width + 2)
    return pixels + (SPREAD[tile.depth // 16] - pixels) % 8


def shared_bytes(tile: Tile, width: int) -> int:
    """Bytes of dynamic shared memory: two tiles of pixels a warpgroup, and the filters."""
    return (tile.warp_rows // 2 * room_of(tile, width) + 9 * tile.columns) * tile.depth


def make_pixel_loader(parts: int, threads: int) -> Any:
    """Device function: start the copies of `count` numbered pixels of a block of channels of so many parts.

    What is outside the images becomes zero.
    """

    @device_function
    def load_pixels(to, x, first, count, room, pitch, offset, about, tid):
        for i in range(tid, count * parts, threads):
            r, q = i32(i // parts), i32(i % parts)
            pixel = pixel_of_number(i32(first + r), about)
            source = u64(x + u64((i64(pixel) * pitch + offset + q * 8) * 2))
            place = u32(to + u32((q * room + r) * 16))
            ptx.copy_async16(place, source if pixel >= 0 else x, u32(16) if pixel >= 0 else u32(0))

    return load_pixels


def make_store(columns: int, tiles: int) -> Any:
    """Device function: a warp's sums, 32 filters of a row at a time: bias and activation, exchanged, stored."""

    def of_32(m: int, half: int, part: int) -> Any:
        FIRST, MINE = (m * (columns // 8) + part * 4) * 4 + half * 2, m * 2 + half

        @device_function
        def store(acc, pixels, out, bias, bn, ldo, lane, activation):
            quad = cuda.local.array(4, dtype=types.uint32)
            t = i32(lane & 3)
            for j in range(4):
                b0, b1 = f32(0.0), f32(0.0)
                if bias != u64(0):
                    at = u64(bias + u64((bn + (part * 4 + j) * 8 + t * 2) * 4))
                    b0, b1 = ptx.load_float(at), ptx.load_float(u64(at + u64(4)))
                o = FIRST + j * 4
                v0, v1 = activate(f32(acc[o] + b0), activation), activate(f32(acc[o + 1] + b1), activation)
                quad[j] = ptx.pack_bf16(v0, v1)
            exchange(quad, lane)
            pixel = pixels[MINE]
            if pixel >= 0:
                target = u64(out + u64((i64(pixel) * i64(ldo) + i64(bn + (part * 4 + t) * 8)) * 2))
                ptx.store4(target, quad[0], quad[1], quad[2], quad[3])

        return store

    return in_turn([of_32(m, half, part) for m in range(tiles) for half in range(2) for part in range(columns // 32)])


def make_resident_halo(numbers: tuple[int, ...]) -> Any:
    """The kernel as a Python function; the tile's depth are all channels."""
    tile = Tile(*numbers)
    BN, KB, TH, GROUPS = tile.columns, tile.depth, tile.threads, tile.warp_rows // 4
    MT, CH = tile.rows // (tile.warp_rows * 16), KB // 16
    BM = MT * TILE
    NACC, PARTS, ROWS = MT * BN // 2, 9 * CH, 2 * MT
    assert tile.warp_columns == 1
    assert BN % 32 == 0

    turns = [(tap, k) for tap in range(3) for k in range(CH // 2)]
    three = make_products(BN, [[(m * TILE + tap, k, (tap * CH + 2 * k) * BN) for tap, k in turns] for m in range(MT)])
    finish = make_wait(NACC, 0)
    wait, wait_all, store = ptx.WAIT_COPIES[1], ptx.WAIT_COPIES[0], make_store(BN, MT)
    load_filters, load_pixels = make_filter_loader(PARTS, BN, TH), make_pixel_loader(CH, 128)

    def convolution(
        x, weight, bias, out, limit, tiles, columns, room, by_area_mul, by_area_shift, by_across_mul, by_across_shift,
        height, width, pitch, ldo, activation,
    ):
        shared = cuda.shared.array(0, dtype=types.uint8)
        base = ptx.shared_address(shared)
        tid = i32(cuda.threadIdx.x)
        lane, warp = i32(tid & 31), i32(tid >> 5)
        group, bn = i32(warp >> 2), i32(i32(cuda.blockIdx.y) * BN)
        halo, span = i32(BM + 2 * (width + 2)), u32(room * KB)
        filters = u32(base + u32(2 * GROUPS) * span)
        load_filters(filters, weight, bn, columns, tid)
        at, slot, ahead = i32(i32(cuda.blockIdx.x) * GROUPS + group), u32(0), i32(i32(cuda.gridDim.x) * GROUPS)
        base, tid = u32(base + u32(2 * group) * span), i32(tid & 127)
        above = i32(-(width + 2))
        about = (i32(at * BM), limit, height, width, by_area_mul, by_area_shift, by_across_mul, by_across_shift)
        load_pixels(base, x, above, halo, room, pitch, i32(0), about, tid)
        ptx.commit_copies()
        wait_all()
        fence_async_proxy()
        cuda.syncthreads()  # the filters are in shared memory
        acc = cuda.local.array(NACC, dtype=types.float32)
        pixels = cuda.local.array(ROWS, dtype=types.int32)
        b = low_word(filters, u32(BN * 16))
        while at < tiles:
            following = i32(at + ahead)
            if following < tiles:
                begin = i32(following * BM)
                later = (begin, limit, height, width, by_area_mul, by_area_shift, by_across_mul, by_across_shift)
                load_pixels(u32(base + (slot ^ u32(1)) * span), x, above, halo, room, pitch, i32(0), later, tid)
            ptx.commit_copies()
            for i in range(NACC):
                acc[i] = f32(0.0)
            wait()
            fence_async_proxy()
            warpgroup_barrier(u32(group + 1))  # this tile is here
            mine = u32(base + slot * span)
            for s in range(3):
                a = low_word(u32(mine + u32(s * (width + 1) * 16)), u32(room * 16))
                three(acc, a, high_word(u32(128)), u32(2 * room), u32(b + u32(s * 3 * CH * BN)), high_word(u32(128)),
                      u32(1))
            here = (i32(at * BM), limit, height, width, by_area_mul, by_area_shift, by_across_mul, by_across_shift)
            for j in range(ROWS):
                r = i32((j // 2) * TILE + (warp & 3) * 16 + (lane >> 2) + (j % 2) * 8)
                pixels[j] = pixel_of_number(r, here)
            finish(acc)
            warpgroup_barrier(u32(group + 1))  # no warp's product reads this tile's pixels any more
            store(acc, pixels, out, bias, bn, ldo, lane, activation)
            at, slot = following, u32(slot ^ u32(1))
        wait_all()

    return convolution
