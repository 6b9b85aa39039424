"""3x3 convolution of stride 1 by `wgmma` straight from the pixels in shared memory: the input gradient of a fire.

``out[p] = sum over taps and channels of x[p + tap] W[tap]``. Pixels are numbered as in `ops.conv.halo`, with one
column of zeros after each row of an image, so a tap is a constant distance. Optionally a tenth tap reads other channels
of the same pixels: in a fire's input gradient the 1x1 half.

              columns (all filters)
            +----------------------+
    rows of | warpgroup 0: 64 m    |   a stage: three taps of a block of channels (depth bytes), or the tenth tap
    pixels  +----------------------+
            | warpgroup 1: 64 m    |
            +----------------------+

Shared memory: two blocks of channels of the pixels and of the halo around them | a ring of stages of filters. A block
of channels is in parts of 16 bytes, a part of all pixels after another: eight pixels are a core matrix of `wgmma`, and
a tap begins as many times 16 bytes further as it is pixels away. No copies of windows, no bank conflicts. Filters are
packed as they are in shared memory (`filters.pack_parts`). A product begins before the one before it is complete, so
a stage is filled two steps after its use. Results leave through shared memory, masked and added where asked.
Bytes: x once and its halo for each block of pixels, filters for each block of pixels (from L2), out once.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import WAIT_COPIES, commit_copies, copy_async16, shared_address
from core.gpu.kernels.parts.epilogue import make_staging, make_writing
from core.gpu.kernels.parts.pixels import pixel_of_number
from core.gpu.kernels.parts.tile import Tile
from core.gpu.launch import DIVISOR, INTEGER, POINTER, Argument, KernelSignature
from core.gpu.sm90.wgmma import TILE, fence_async_proxy, high_word, low_word, make_products, make_wait

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

SPREAD: Final = {2: 4, 4: 2, 6: 5, 8: 1}
"""Pixels from one part to the next, modulo 8, by parts: the copies of a pixel's parts meet different banks."""

SIGNATURE: Final = KernelSignature((
    Argument("x", POINTER, "input"),
    Argument("weight", POINTER, "filters of `pack_parts`"),
    Argument("bias", POINTER, "float32, 0: none"),
    Argument("out", POINTER, "output"),
    Argument("mask", POINTER, "activations that mask the output, 0: none"),
    Argument("limit", INTEGER, "pixel numbers in all"),
    Argument("columns", INTEGER, "filters in all"),
    Argument("room", INTEGER, "pixels' room of a part"),
    Argument("by_area", DIVISOR, "division by the numbers of an image"),
    Argument("by_across", DIVISOR, "division by width + 1"),
    Argument("height", INTEGER, "rows of an image"),
    Argument("width", INTEGER, "pixels of a row"),
    Argument("pitch", INTEGER, "elements from one pixel of x to the next"),
    Argument("blocks", INTEGER, "blocks of channels"),
    Argument("segment", INTEGER, "elements from x to the tenth tap's channels"),
    Argument("ldo", INTEGER, "elements from one pixel of the output to the next"),
    Argument("ldm", INTEGER, "the same of the mask"),
    Argument("activation", INTEGER, "0 none, 1 ReLU, 2 ReLU6"),
    Argument("masking", INTEGER, "activation of the mask"),
    Argument("accumulate", INTEGER, "whether to add to the output"),
))  # fmt: skip

def part_pixels(tile: Tile, width: int, second: bool) -> int:
    """Pixels' room of one part of a channel block."""
    pixels = tile.rows + 2 * (width + 2) + (tile.rows if second else 0)
    return pixels + (SPREAD[tile.depth // 16] - pixels) % 8


def shared_bytes(tile: Tile, width: int, blocks: int, second: bool) -> int:
    """Bytes of dynamic shared memory for photos of a width, with so many channel blocks."""
    work = min(2, blocks) * part_pixels(tile, width, second) * tile.depth + tile.stages * tile.columns * 3 * tile.depth
    return max(work, tile.rows * (tile.columns * 2 + 16))


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
            copy_async16(place, source if pixel >= 0 else x, u32(16) if pixel >= 0 else u32(0))

    return load_pixels


def make_sender(tile: Tile, second: bool) -> Any:
    """Device function: start the copies of a stage: three taps' filters, with a block of channels' first its pixels."""
    BM, BN, KB, TH, SECOND = tile.rows, tile.columns, tile.depth, tile.threads, second
    CH, CB, STEPS, TAPS = KB // 16, KB // 2, 4 if second else 3, 10 if second else 9
    load_pixels = make_pixel_loader(CH, TH)

    @device_function
    def load_taps(to, weight, bn, columns, first, count, tid):
        """Copy the filters of one stage: `count` parts from part `first` on."""
        for i in range(tid, count * BN, TH):
            part, f = i32(i // BN), i32(i % BN)
            ok = bn + f < columns
            source = u64(weight + u64(i64((first + part) * columns + bn + f) * 16))
            copy_async16(u32(to + u32(i * 16)), source if ok else weight, u32(16) if ok else u32(0))

    @device_function
    def send(ahead, slot, base, x, weight, bn, columns, halo, room, span, pitch, segment, about, tid):
        cb = i32(ahead // STEPS)
        s = i32(ahead - cb * STEPS)
        if s == 0:
            to = u32(base + u32(cb & 1) * span)
            load_pixels(to, x, i32(-(about[3] + 2)), halo, room, pitch, i32(cb * CB), about, tid)
            if SECOND:
                load_pixels(u32(to + u32(halo * 16)), x, i32(0), BM, room, pitch, i32(cb * CB + segment), about, tid)
        load_taps(slot, weight, bn, columns, i32((cb * TAPS + s * 3) * CH), CH if s == 3 else 3 * CH, tid)

    return send


def make_halo_products(numbers: tuple[int, ...], second: bool) -> Any:
    """The kernel as a Python function; `second` adds the tenth tap."""
    tile = Tile(*numbers)
    BM, BN, KB, ST, TH = tile.rows, tile.columns, tile.depth, tile.stages, tile.threads
    MT, CH, STG = tile.rows // (tile.warp_rows * 16), KB // 16, BN * 3 * KB
    STEPS, SECOND, NACC, send = 4 if second else 3, second, MT * BN // 2, make_sender(tile, second)
    LAST, SHARE = (ST - 1) * STG, MT * TILE
    assert tile.warp_columns == 1
    assert 3 <= ST <= STEPS + 1

    turns = [(tap, k) for tap in range(3) for k in range(CH // 2)]  # of a stage; B's parts are BN x 16 bytes
    products = make_products(
        BN, [[(m * TILE + tap, k, (tap * CH + 2 * k) * BN) for tap, k in turns] for m in range(MT)],
        first_only=CH // 2 if second else 0,
    )  # fmt: skip
    keep_one, finish = make_wait(NACC, 1), make_wait(NACC, 0)
    wait, wait_all = WAIT_COPIES[ST - 3], WAIT_COPIES[0]
    stage_out = make_staging(2, (MT, BN // 8), BN * 2 + 16, TILE)
    write_out = make_writing(2, BM, BN, TH, pixel_of_number)

    def convolution(
        x, weight, bias, out, mask, limit, columns, room, by_area_mul, by_area_shift, by_across_mul, by_across_shift,
        height, width, pitch, blocks, segment, ldo, ldm, activation, masking, accumulate,
    ):
        shared = cuda.shared.array(0, dtype=types.uint8)
        base = shared_address(shared)
        tid = i32(cuda.threadIdx.x)
        lane, warp = i32(tid & 31), i32(tid >> 5)
        wm = i32((warp >> 2) * SHARE)
        bm, bn = i32(i32(cuda.blockIdx.x) * BM), i32(i32(cuda.blockIdx.y) * BN)
        halo, span = i32(BM + 2 * (width + 2)), u32(room * KB)
        filters = u32(base + u32(min(blocks, 2)) * span)
        steps = i32(blocks * STEPS)
        about = (bm, limit, height, width, by_area_mul, by_area_shift, by_across_mul, by_across_shift)
        acc = cuda.local.array(NACC, dtype=types.float32)
        for i in range(NACC):
            acc[i] = f32(0.0)
        filled, used = u32(0), u32(0)
        for ahead in range(ST - 2):  # fewer than the steps
            slot = u32(filters + filled)
            send(ahead, slot, base, x, weight, bn, columns, halo, room, span, pitch, segment, about, tid)
            filled = u32(filled + u32(STG))
            commit_copies()
        for k in range(steps):
            wait()
            fence_async_proxy()
            cuda.syncthreads()  # this step's stage is here; no product reads the one that is filled next
            cb = i32(k // STEPS)
            s = i32(k - cb * STEPS)
            begin = i32(halo) if SECOND and s == 3 else i32(s * (width + 1))
            pixels = u32(base + u32(cb & 1) * span + u32((begin + wm) * 16))
            a, b = low_word(pixels, u32(room * 16)), low_word(u32(filters + used), u32(BN * 16))
            used = u32(used + u32(STG)) if used != u32(LAST) else u32(0)
            products(acc, a, high_word(u32(128)), u32(2 * room), b, high_word(u32(128)), u32(0 if s == 3 else 1))
            later = i32(k + ST - 2)
            if later < steps:
                slot = u32(filters + filled)
                send(later, slot, base, x, weight, bn, columns, halo, room, span, pitch, segment, about, tid)
                filled = u32(filled + u32(STG)) if filled != u32(LAST) else u32(0)
            commit_copies()
            keep_one(acc)
        finish(acc)
        wait_all()
        cuda.syncthreads()
        stage_out(acc, base, i32(wm + (warp & 3) * 16), i32(0), lane, bias, bn, columns, activation)
        cuda.syncthreads()
        write_out(base, tid, bn, columns, out, ldo, mask, ldm, masking, accumulate, about)

    return convolution
