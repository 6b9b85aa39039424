"""3x3 convolution of stride 1 with few channels, by `wgmma` straight from the pixels in shared memory.

``out[p] = sum over taps and channels of x[p + tap] W[tap]``. Pixels are numbered with one column of zeros after each
row of an image, so a tap is a constant distance. A persistent block multiplies many tiles of pixels by the same
filters, which stay in shared memory.

              columns (filters)
            +-------------------+   each warpgroup has tiles of `64 m` pixel numbers of its own: while it multiplies
    64 m    | one tile of one   |   one, the next one is copied to its other buffer; while one warpgroup stores,
    pixels  | warpgroup         |   another multiplies
            +-------------------+

Shared memory: for each warpgroup two tiles of pixels with their halo, all channels | 9 taps of filters, all channels.
Pixels are in vectors of 16 bytes, one vector of all pixels after another: eight pixels are a core matrix of `wgmma`,
and a tap begins as many times 16 bytes further as it is pixels away. No copies of windows, no bank conflicts.
Epilogue: straight from the registers; four lanes exchange their results, so that each stores 16 bytes.
Bytes: x once and its halo, out once; filters once for each block. Floor: (x + out) / bandwidth.
Source: PTX ISA 8.x, section 9.7.15 (wgmma without swizzle); ADR 21.
"""

from __future__ import annotations

from itertools import product
from typing import Any, Final

from core.gpu.arguments import ACTIVATION, KernelSignature, divisions, ints, pitches, pointers
from core.gpu.compilation import ptx
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u8, u32, u64
from core.gpu.parts.epilogue import pixel_of_number
from core.gpu.parts.tile import Tile, exchange
from core.gpu.parts.vectors import activate, clear, in_turn
from core.gpu.sm90 import wgmma
from core.gpu.sm90.filters import make_filter_loader
from core.gpu.sm90.wgmma import TILE, fence_async_proxy, high_word, low_word

SIGNATURE: Final = KernelSignature((
    *pointers(x="input", weight="filters of `pack_vectors`", bias="float32, or 0", out="output"),
    *ints(limit="pixel numbers in all", tiles="tiles of them", columns="filters in all",
          vector_pitch="pixels from one vector to the next in shared memory"),
    *divisions(area="numbers of an image", across="width + 1"),
    *ints(height="rows of an image", width="pixels of a row"),
    *pitches(pitch="x", ldo="output"),
    ACTIVATION,
))  # fmt: skip

REMAINDERS: Final = {2: 4, 4: 2, 6: 5, 8: 1}
"""Vector pitch modulo 8 by vectors of a pixel: the copies of a pixel's vectors then use different banks."""


def vector_pitch_of(tile: Tile, width: int) -> int:
    """Pixels from one vector to the next: a warpgroup's tile with its halo, and some against bank conflicts."""
    pixels = tile.rows * 4 // tile.warp_rows + 2 * (width + 2)
    return pixels + (REMAINDERS[tile.depth // 16] - pixels) % 8


def shared_bytes(tile: Tile, width: int) -> int:
    """Bytes of dynamic shared memory: two tiles of pixels for each warpgroup, and the filters."""
    return (tile.warp_rows // 2 * vector_pitch_of(tile, width) + 9 * tile.columns) * tile.depth


def make_pixel_loader(vectors: int, threads: int) -> Any:
    """Device function: start the copies of `count` pixels, numbered from `above` the tile on; zeros outside images."""

    @device_function
    def load_pixels(to, x, above, count, vector_pitch, pitch, geometry, tid):
        for i in range(tid, count * vectors, threads):
            r, q = i32(i // vectors), i32(i % vectors)
            pixel = pixel_of_number(i32(above + r), geometry)
            source = u64(x + u64((i64(pixel) * pitch + q * 8) * 2))
            target = u32(to + u32((q * vector_pitch + r) * 16))
            ptx.copy_async16(target, source if pixel >= 0 else x, u32(16) if pixel >= 0 else u32(0))

    return load_pixels


def make_store(columns: int, tiles: int) -> Any:
    """Device function, the epilogue: bias and activation, 32 filters of a row at a time, exchanged and stored."""

    def store_32(m: int, half: int, part: int) -> Any:
        FIRST, ROW = (m * (columns // 8) + part * 4) * 4 + half * 2, m * 2 + half

        @device_function
        def store(acc, pixels, out, bias, bn, ldo, lane, activation):
            quad = cuda.local.array(4, u32)
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
            pixel = pixels[ROW]
            if pixel >= 0:
                target = u64(out + u64((i64(pixel) * i64(ldo) + i64(bn + (part * 4 + t) * 8)) * 2))
                ptx.store4(target, quad[0], quad[1], quad[2], quad[3])

        return store

    return in_turn([store_32(*one) for one in product(range(tiles), range(2), range(columns // 32))])


def make_resident_halo(tile_numbers: tuple[int, ...]) -> Any:
    """The kernel as a Python function; the depth of the tile is all channels."""
    tile = Tile(*tile_numbers)
    BN, KB, TH, GROUPS = tile.columns, tile.depth, tile.threads, tile.warp_rows // 4
    MT, VECTORS = tile.rows // (tile.warp_rows * 16), KB // 16
    BM = MT * TILE
    NACC, ROWS = MT * BN // 2, 2 * MT
    steps = [(tap, k) for tap in range(3) for k in range(VECTORS // 2)]
    multiply_row = wgmma.make_products(
        BN, [[(m * TILE + tap, k, (tap * VECTORS + 2 * k) * BN) for tap, k in steps] for m in range(MT)]
    )
    finish = wgmma.make_wait(NACC, 0)
    wait, wait_all, store = ptx.WAIT_COPIES[1], ptx.WAIT_COPIES[0], make_store(BN, MT)
    load_filters, load_pixels = make_filter_loader(9 * VECTORS, BN, TH), make_pixel_loader(VECTORS, 128)

    def convolution(
        x, weight, bias, out, limit, tiles, columns, vector_pitch, by_area, by_across, height, width, pitch, ldo,
        activation,
    ):
        base = ptx.shared_address(cuda.shared.array(0, u8))
        tid = i32(cuda.threadIdx.x)
        lane, warp = i32(tid & 31), i32(tid >> 5)
        group, bn = i32(warp >> 2), i32(i32(cuda.blockIdx.y) * BN)
        halo, buffer = i32(BM + 2 * (width + 2)), u32(vector_pitch * KB)
        filters = u32(base + u32(2 * GROUPS) * buffer)
        load_filters(filters, weight, bn, columns, tid)
        tile, stage, stride = i32(i32(cuda.blockIdx.x) * GROUPS + group), u32(0), i32(i32(cuda.gridDim.x) * GROUPS)
        base, tid = u32(base + u32(2 * group) * buffer), i32(tid & 127)  # from here on: of this warpgroup
        above = i32(-(width + 2))
        numbering = (limit, height, width, by_area, by_across)
        load_pixels(base, x, above, halo, vector_pitch, pitch, (i32(tile * BM), *numbering), tid)
        ptx.commit_copies()
        wait_all()
        fence_async_proxy()
        cuda.syncthreads()  # the filters are in shared memory
        acc = cuda.local.array(NACC, f32)
        pixels = cuda.local.array(ROWS, i32)
        b = low_word(filters, u32(BN * 16))
        while tile < tiles:
            following = i32(tile + stride)
            if following < tiles:  # the next tile is copied while this one is multiplied
                target = u32(base + (stage ^ u32(1)) * buffer)
                load_pixels(target, x, above, halo, vector_pitch, pitch, (i32(following * BM), *numbering), tid)
            ptx.commit_copies()
            clear(acc)
            wait()
            fence_async_proxy()
            wgmma.warpgroup_barrier(u32(group + 1))  # all copies of this tile are complete
            source = u32(base + stage * buffer)
            for s in range(3):  # the taps of one row of the window differ by one pixel, 16 bytes
                a = low_word(u32(source + u32(s * (width + 1) * 16)), u32(vector_pitch * 16))
                multiply_row(acc, a, high_word(u32(128)), u32(2 * vector_pitch), u32(b + u32(s * 3 * VECTORS * BN)),
                             high_word(u32(128)), u32(1))
            for j in range(ROWS):
                r = i32((j // 2) * TILE + (warp & 3) * 16 + (lane >> 2) + (j % 2) * 8)
                pixels[j] = pixel_of_number(r, (i32(tile * BM), *numbering))
            finish(acc)
            wgmma.warpgroup_barrier(u32(group + 1))  # no product reads this tile's pixels any more
            store(acc, pixels, out, bias, bn, ldo, lane, activation)
            tile, stage = following, u32(stage ^ u32(1))
        wait_all()

    return convolution
