"""Input gradient of a fire on the tensor cores, pixels in shared memory: each is loaded once, not nine times.

Both halves in one launch: the 3x3 half with rotated filters, and the 1x1 half as a tenth tap that reads the channels
before dy's.

Pixels are numbered along rows of width + 1 and images of height + 1 rows: every border is a zero pixel of the numbering
and the nine taps are constant offsets.

```
 numbers:  . . . [ halo | BM numbers of the block | halo ] . . .     halo: width + 2 numbers on either side
                    tap (dy, dx) of number p is number p + dy (width + 1) + dx

 shared memory: ring of ST stages, each the filters of three taps: BN rows x (3 KB + 16) bytes
                two channel blocks of pixels: (2 BM + 2 width + 4) rows x (KB + 16) bytes
```

A block has BM x BN sums, WM x WN warps. While it multiplies one block of KB bytes of channels, three taps at a time,
the pixels of the next arrive. Bytes: x about once (1 + 2 (width + 2) / BM times), filters and out once each.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import WAIT_COPIES, commit_copies, copy_async16, shared_address
from core.gpu.kernels.parts.epilogue import make_staging, make_writing
from core.gpu.kernels.parts.fragments import ELEMENT
from core.gpu.kernels.parts.pixels import pixel_of_number
from core.gpu.kernels.parts.tile import Tile, make_multiplier
from core.gpu.launch import DIVISOR, INTEGER, Argument, KernelSignature
from core.gpu.ops.conv.arguments import ENDING, OPERANDS

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32


def shared_bytes(tile: Tile, element: int, width: int) -> int:
    """Bytes of dynamic shared memory for images of a width."""
    pixels = 2 * tile.rows + 2 * width + 4
    work = 2 * pixels * (tile.depth + 16) + tile.stages * tile.columns * (3 * tile.depth + 16)
    return max(work, tile.rows * (tile.columns * element + 16))


SIGNATURE: Final = KernelSignature((
    *OPERANDS,
    Argument("limit", INTEGER, "numbers in all: images x (height + 1) x (width + 1)"),
    Argument("columns", INTEGER, "filters, up to 16 bytes"),
    Argument("depth", INTEGER, "elements of a packed filter: (channel blocks, taps, KB bytes)"),
    Argument("by_area", DIVISOR, "division by (height + 1) x (width + 1)"),
    Argument("by_across", DIVISOR, "division by width + 1"),
    Argument("height", INTEGER, "rows of x and out"),
    Argument("width", INTEGER, "columns of x and out"),
    Argument("pitch", INTEGER, "elements from a pixel of x to the next"),
    Argument("blocks", INTEGER, "blocks of channels"),
    Argument("segment", INTEGER, "elements from x to the tenth tap's channels"),
    *ENDING,
))  # fmt: skip


def make_pixel_sender(tile: Tile, element: int) -> Any:
    """Device function that starts the copies of `count` numbered pixels of a channel block; zeros outside the images.

    `about` as `pixel_of_number` reads it; the pixels' numbers count from the block's first.
    """
    TH, ROW, CH, VEC, E = tile.threads, tile.depth + 16, tile.depth // 16, 16 // element, element

    @device_function
    def send_pixels(to, x, first, count, pitch, offset, about, tid):
        for i in range(tid, count * CH, TH):
            r, q = i32(i // CH), i32(i % CH)
            pixel = pixel_of_number(i32(first + r), about)
            source = u64(x + u64((i64(pixel) * pitch + offset + q * VEC) * E))
            copy_async16(
                u32(to + u32(r * ROW + q * 16)), source if pixel >= 0 else x, u32(16) if pixel >= 0 else u32(0)
            )

    return send_pixels


def make_tap_sender(tile: Tile, element: int) -> Any:
    """Device function that starts the copies of a stage's filters: rows of `chunks` x 16 bytes from element `first`."""
    TH, BN, WROW, VEC, E = tile.threads, tile.columns, 3 * tile.depth + 16, 16 // element, element

    @device_function
    def send_taps(to, weight, bn, columns, depth, first, chunks, tid):
        for i in range(tid, BN * chunks, TH):
            r, q = i32(i // chunks), i32(i % chunks)
            ok = bn + r < columns
            source = u64(weight + u64((i64(bn + r) * i64(depth) + i64(first + q * VEC)) * E))
            copy_async16(u32(to + u32(r * WROW + q * 16)), source if ok else weight, u32(16) if ok else u32(0))

    return send_taps


STEPS: Final = 4
"""Stages of a channel block: three rows of taps, and the tenth tap."""
TAPS: Final = 10


def make_halo_convolution(arithmetic: str, numbers: tuple[int, ...]) -> Any:
    """The kernel as a Python function."""
    tile = Tile(*numbers)
    BM, BN, KB, ST, WM, WN = tile.rows, tile.columns, tile.depth, tile.stages, tile.warp_rows, tile.warp_columns
    E = ELEMENT[arithmetic]
    TH, ROW, CH, CB = tile.threads, KB + 16, KB // 16, KB // E
    WROW, WCH, STG = 3 * KB + 16, 3 * KB // 16, BN * (3 * KB + 16)
    TM, TN = tile.fragments
    NACC, NB = TM * TN * 4, TN * 2
    FILTERS, LAST = ST * STG, (ST - 1) * STG
    assert TM > 0
    assert TN % 2 == 0
    assert ST - 1 <= STEPS
    send_pixels, send_taps = make_pixel_sender(tile, E), make_tap_sender(tile, E)
    multiply, wait, wait_all = make_multiplier(arithmetic, tile, ROW, WROW), WAIT_COPIES[ST - 2], WAIT_COPIES[0]
    stage_out, write_out = make_staging(E, (TM, TN), BN * E + 16), make_writing(E, BM, BN, TH, pixel_of_number)

    def convolution(
        x, weight, bias, out, mask, limit, columns, depth, by_area_mul, by_area_shift, by_across_mul, by_across_shift,
        height, width, pitch, blocks, segment, ldo, ldm, activation, masking, accumulate,
    ):
        shared = cuda.shared.array(0, dtype=types.uint8)
        base = shared_address(shared)
        tid = i32(cuda.threadIdx.x)
        lane, warp = i32(tid & 31), i32(tid >> 5)
        wm, wn = i32((warp % WM) * (BM // WM)), i32((warp // WM) * (BN // WN))
        bm, bn = i32(i32(cuda.blockIdx.x) * BM), i32(i32(cuda.blockIdx.y) * BN)
        around = i32(width + 2)
        halo = i32(BM + 2 * around)
        span = u32((halo + BM) * ROW)
        steps = i32(blocks * STEPS)
        about = (bm, limit, height, width, by_area_mul, by_area_shift, by_across_mul, by_across_shift)
        acc = cuda.local.array(NACC, dtype=types.float32)
        bf = cuda.local.array(NB, dtype=types.uint32)
        for i in range(NACC):
            acc[i] = f32(0.0)
        filled, used = u32(0), u32(0)
        for k in range(1 - ST, steps):  # the first ST - 1 turns only fill the ring
            if k >= 0:
                wait()
                cuda.syncthreads()  # the stage has arrived; nobody reads the one that is filled next
            ahead = i32(k + ST - 1)
            if ahead < steps:
                cb = i32(ahead // STEPS)
                s = i32(ahead - cb * STEPS)
                if s == 0:  # a new block of channels: its pixels too
                    to = u32(base + u32(FILTERS) + u32(cb & 1) * span)
                    send_pixels(to, x, i32(-around), halo, pitch, i32(cb * CB), about, tid)
                    send_pixels(u32(to + u32(halo * ROW)), x, i32(0), BM, pitch, i32(cb * CB + segment), about, tid)
                slot = u32(base + filled)
                filled = u32(filled + u32(STG)) if filled != u32(LAST) else u32(0)
                send_taps(slot, weight, bn, columns, depth, i32((cb * TAPS + s * 3) * CB), CH if s == 3 else WCH, tid)
            commit_copies()
            if k >= 0:
                cb = i32(k // STEPS)
                s = i32(k - cb * STEPS)
                stage = u32(base + used)
                used = u32(used + u32(STG)) if used != u32(LAST) else u32(0)
                pixels = u32(base + u32(FILTERS) + u32(cb & 1) * span)
                begin = i32(halo) if s == 3 else i32(s * (width + 1))
                for tap in range(3):  # the next row of pixels for each tap; the tenth is a stage of its own
                    if s < 3 or tap == 0:
                        mine = u32(pixels + u32((begin + tap + wm) * ROW))
                        multiply(mine, u32(stage + u32(wn * WROW + tap * KB)), lane, acc, bf)
        wait_all()
        cuda.syncthreads()  # the ring is free for the sums
        stage_out(acc, base, wm, wn, lane, bias, bn, columns, activation)
        cuda.syncthreads()  # all sums are in shared memory
        write_out(base, tid, bn, columns, out, ldo, mask, ldm, masking, accumulate, about)

    return convolution
