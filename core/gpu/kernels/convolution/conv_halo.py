"""3x3 convolution of stride 1 on the tensor cores, pixels in shared memory: each is loaded once, not nine times.

Pixels are numbered along rows of width + 1 and photos of height + 1, so that every border is a zero pixel of the
numbering and the nine taps are nine constant offsets. A block computes `rows` consecutive numbers; for each block of
channels it loads those and the numbers around them (the halo), then multiplies with the filters of three taps at
a time. The input gradient is the same with rotated filters; a fire's 1x1 gradient rides along as a tenth tap that
reads the channels before. Serves every arithmetic, as `conv_tensor_core` does.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import WAIT_COPIES, commit_copies, copy_async16, shared_address
from core.gpu.kernels.parts.epilogue import make_staging, make_writing
from core.gpu.kernels.parts.fragments import ELEMENT, divide
from core.gpu.kernels.parts.tile import Tile, make_multiplier

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32


def shared_bytes(tile: Tile, element: int, width: int, second: bool) -> int:
    """Bytes of dynamic shared memory for photos of a width."""
    pixels = tile.rows + 2 * width + 4 + (tile.rows if second else 0)
    work = 2 * pixels * (tile.depth + 16) + tile.stages * tile.columns * (3 * tile.depth + 16)
    return max(work, tile.rows * (tile.columns * element + 16))


ARGUMENTS: Final = (
    *(types.uint64,) * 5,  # x, packed filters, bias (0: none), out, mask (0: none)
    *(types.int32,) * 3,  # pixel numbers in all, filters, packed row length in elements
    *(types.uint32,) * 4,  # fast division by numbers a photo and by width + 1
    *(types.int32,) * 4,  # height, width, pixel pitch of x, blocks of channels
    *(types.int32,) * 2,  # elements from x to the second segment's channels; pitch of out
    *(types.int32,) * 4,  # pitch of the mask, activation, masking, accumulate
)


@device_function
def pixel_of_number(r, about):
    """Pixel ``(n height + y) width + x`` of a block's r-th number; -1 on a border or outside.

    `about`: first number, numbers in all, height, width, fast division by numbers a photo and by width + 1.
    """
    p = i32(about[0] + r)
    n = divide(max(p, 0), about[4], about[5])
    rest = u32(u32(max(p, 0)) - n * u32((about[2] + 1) * (about[3] + 1)))
    y = i32(divide(rest, about[6], about[7]))
    x = i32(rest - u32(y * (about[3] + 1)))
    ok = p >= 0 and p < about[1] and y < about[2] and x < about[3]
    return i32((i32(n) * about[2] + y) * about[3] + x) if ok else i32(-1)


def make_halo_convolution(arithmetic: str, numbers: tuple[int, ...], second: bool) -> Any:
    """The kernel as a Python function; `second` adds the tenth tap."""
    tile = Tile(*numbers)
    BM, BN, KB, ST, WM, WN = tile.rows, tile.columns, tile.depth, tile.stages, tile.warp_rows, tile.warp_columns
    E = ELEMENT[arithmetic]
    VEC, TH, ROW, CH, CB = 16 // E, tile.threads, KB + 16, KB // 16, KB // E
    WROW, WCH, STG = 3 * KB + 16, 3 * KB // 16, BN * (3 * KB + 16)
    (TM, TN), STEPS, TAPS = tile.fragments, 4 if second else 3, 10 if second else 9
    NACC, NB, SECOND = TM * TN * 4, TN * 2, second
    FILTERS, LAST = ST * STG, (ST - 1) * STG
    assert TM > 0
    assert TN % 2 == 0
    assert ST - 1 <= STEPS
    multiply, wait, wait_all = make_multiplier(arithmetic, tile, ROW, WROW), WAIT_COPIES[ST - 2], WAIT_COPIES[0]
    stage_out, write_out = make_staging(E, (TM, TN), BN * E + 16), make_writing(E, BM, BN, TH, pixel_of_number)

    @device_function
    def load_pixels(to, x, first, count, pitch, offset, about, tid):
        """Copy `count` numbered pixels of one channel block; what lies outside the photos becomes zero."""
        for i in range(tid, count * CH, TH):
            r, q = i32(i // CH), i32(i % CH)
            pixel = pixel_of_number(i32(first + r), about)
            source = u64(x + u64((i64(pixel) * pitch + offset + q * VEC) * E))
            copy_async16(
                u32(to + u32(r * ROW + q * 16)), source if pixel >= 0 else x, u32(16) if pixel >= 0 else u32(0)
            )

    @device_function
    def load_taps(to, weight, bn, columns, depth, first, chunks, tid):
        """Copy the filters of one stage: rows of `chunks` x 16 bytes from element `first` on."""
        for i in range(tid, BN * chunks, TH):
            r, q = i32(i // chunks), i32(i % chunks)
            ok = bn + r < columns
            source = u64(weight + u64((i64(bn + r) * i64(depth) + i64(first + q * VEC)) * E))
            copy_async16(u32(to + u32(r * WROW + q * 16)), source if ok else weight, u32(16) if ok else u32(0))

    def convolution(
        x, weight, bias, out, mask, limit, columns, depth, hw_mul, hw_shift, w_mul, w_shift,
        height, width, pitch, blocks, segment, ldc, ldm, activation, masking, accumulate,
    ):
        shared = cuda.shared.array(0, dtype=types.uint8)
        base = shared_address(shared)
        tid = i32(cuda.threadIdx.x)
        lane, warp = i32(tid & 31), i32(tid >> 5)
        wm, wn = i32((warp % WM) * (BM // WM)), i32((warp // WM) * (BN // WN))
        bm, bn = i32(i32(cuda.blockIdx.x) * BM), i32(i32(cuda.blockIdx.y) * BN)
        around = i32(width + 2)
        halo = i32(BM + 2 * around)
        span = u32((halo + (BM if SECOND else 0)) * ROW)
        steps = i32(blocks * STEPS)
        about = (bm, limit, height, width, hw_mul, hw_shift, w_mul, w_shift)
        acc = cuda.local.array(NACC, dtype=types.float32)
        bf = cuda.local.array(NB, dtype=types.uint32)
        for i in range(NACC):
            acc[i] = f32(0.0)
        filled, used = u32(0), u32(0)
        for k in range(1 - ST, steps):
            if k >= 0:
                wait()
                cuda.syncthreads()
            ahead = i32(k + ST - 1)
            if ahead < steps:
                cb = i32(ahead // STEPS)
                s = i32(ahead - cb * STEPS)
                if s == 0:
                    to = u32(base + u32(FILTERS) + u32(cb & 1) * span)
                    load_pixels(to, x, i32(-around), halo, pitch, i32(cb * CB), about, tid)
                    if SECOND:
                        load_pixels(u32(to + u32(halo * ROW)), x, i32(0), BM, pitch, i32(cb * CB + segment), about, tid)
                slot = u32(base + filled)
                filled = u32(filled + u32(STG)) if filled != u32(LAST) else u32(0)
                load_taps(slot, weight, bn, columns, depth, i32((cb * TAPS + s * 3) * CB), CH if s == 3 else WCH, tid)
            commit_copies()
            if k >= 0:
                cb = i32(k // STEPS)
                s = i32(k - cb * STEPS)
                stage = u32(base + used)
                used = u32(used + u32(STG)) if used != u32(LAST) else u32(0)
                pixels = u32(base + u32(FILTERS) + u32(cb & 1) * span)
                begin = i32(halo) if SECOND and s == 3 else i32(s * (width + 1))
                for tap in range(3):
                    if not SECOND or s < 3 or tap == 0:
                        mine = u32(pixels + u32((begin + tap + wm) * ROW))
                        multiply(mine, u32(stage + u32(wn * WROW + tap * KB)), lane, acc, bf)
        wait_all()
        cuda.syncthreads()
        stage_out(acc, base, wm, wn, lane, bias, bn, columns, activation)
        cuda.syncthreads()
        write_out(base, tid, bn, columns, out, ldc, mask, ldm, masking, accumulate, about)

    return convolution
