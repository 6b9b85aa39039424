"""`ops.conv.halo` for Hopper: 3x3 convolution of stride 1 by `wgmma`, the tensor cores reading the pixels as they lie.

Numbering, halo and tenth tap as there. In shared memory a channel block lies in parts of 16 bytes, a part of all pixels
after another, so that 8 pixels are one of `wgmma`'s blocks, and a tap begins as many times 16 bytes further as it is
pixels away: no unfolding, no `ldmatrix`, no bank conflicts. Filters are packed as they lie in shared memory. A
product is begun before the one before it is complete, so a slot is filled two turns after its own.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import WAIT_COPIES, commit_copies, copy_async16, shared_address
from core.gpu.kernels.parts.epilogue import make_staging, make_writing
from core.gpu.kernels.parts.pixels import pixel_of_number
from core.gpu.kernels.parts.tile import Tile
from core.gpu.kernels.parts.warpgroup import TILE, high_word, low_word, make_products, make_wait
from core.gpu.kernels.parts.wgmma import show_to_tensor_cores

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

SPREAD: Final = {2: 4, 4: 2, 6: 5, 8: 1}
"""Pixels from one part to the next, modulo 8, by parts: so that the copies of a pixel's parts fall into other banks."""


def part_pixels(tile: Tile, width: int, second: bool) -> int:
    """Pixels' room of one part of a channel block."""
    pixels = tile.rows + 2 * (width + 2) + (tile.rows if second else 0)
    return pixels + (SPREAD[tile.depth // 16] - pixels) % 8


def shared_bytes(tile: Tile, width: int, blocks: int, second: bool) -> int:
    """Bytes of dynamic shared memory for photos of a width, with so many channel blocks."""
    work = min(2, blocks) * part_pixels(tile, width, second) * tile.depth + tile.stages * tile.columns * 3 * tile.depth
    return max(work, tile.rows * (tile.columns * 2 + 16))


ARGUMENTS: Final = (
    *(types.uint64,) * 5,  # x, packed filters, bias (0: none), out, mask (0: none)
    *(types.int32,) * 3,  # pixel numbers in all, filters, pixels' room of a part
    *(types.uint32,) * 4,  # fast division by numbers a photo and by width + 1
    *(types.int32,) * 4,  # height, width, pixel pitch of x, blocks of channels
    *(types.int32,) * 2,  # elements from x to the second segment's channels; pitch of out
    *(types.int32,) * 4,  # pitch of the mask, activation, masking, accumulate
)


def make_halo_products(numbers: tuple[int, ...], second: bool) -> Any:
    """The kernel as a Python function; `second` adds the tenth tap."""
    tile = Tile(*numbers)
    BM, BN, KB, ST, TH = tile.rows, tile.columns, tile.depth, tile.stages, tile.threads
    MT, CH, CB, STG = tile.rows // (tile.warp_rows * 16), KB // 16, KB // 2, BN * 3 * KB
    STEPS, TAPS, SECOND, NACC = 4 if second else 3, 10 if second else 9, second, MT * BN // 2
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

    @device_function
    def load_pixels(to, x, first, count, room, pitch, offset, about, tid):
        """Copy `count` numbered pixels of one channel block; what lies outside the photos becomes zero."""
        for i in range(tid, count * CH, TH):
            r, q = i32(i // CH), i32(i % CH)
            pixel = pixel_of_number(i32(first + r), about)
            source = u64(x + u64((i64(pixel) * pitch + offset + q * 8) * 2))
            place = u32(to + u32((q * room + r) * 16))
            copy_async16(place, source if pixel >= 0 else x, u32(16) if pixel >= 0 else u32(0))

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
        """Start the copies of a stage: three taps' filters, and with the first of a channel block its pixels."""
        cb = i32(ahead // STEPS)
        s = i32(ahead - cb * STEPS)
        if s == 0:
            to = u32(base + u32(cb & 1) * span)
            load_pixels(to, x, i32(-(about[3] + 2)), halo, room, pitch, i32(cb * CB), about, tid)
            if SECOND:
                load_pixels(u32(to + u32(halo * 16)), x, i32(0), BM, room, pitch, i32(cb * CB + segment), about, tid)
        load_taps(slot, weight, bn, columns, i32((cb * TAPS + s * 3) * CH), CH if s == 3 else 3 * CH, tid)

    def convolution(
        x, weight, bias, out, mask, limit, columns, room, hw_mul, hw_shift, w_mul, w_shift,
        height, width, pitch, blocks, segment, ldc, ldm, activation, masking, accumulate,
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
        about = (bm, limit, height, width, hw_mul, hw_shift, w_mul, w_shift)
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
            show_to_tensor_cores()
            cuda.syncthreads()  # this turn's stage is here; no product reads the slot that is filled next
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
        write_out(base, tid, bn, columns, out, ldc, mask, ldm, masking, accumulate, about)

    return convolution
