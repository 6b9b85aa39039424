"""Convolution on the tensor cores: an implicit matrix product, forward and input gradient in one kernel.

Rows of the product are output pixels (N, H, W flattened), columns are filters, the sum runs over taps and
channels. Pixels and filters travel by `cp.async` through a ring of shared-memory stages, zero-filled at the
border; the epilogue adds the bias, applies ReLU or the producer's ReLU mask, and stores 16 bytes a lane into
a channel slice. The input gradient is the same product with rotated filters. Source of the scheme: NVIDIA's
CUTLASS, "implicit GEMM convolution".

Three arithmetics share the code, because a stage's rows are bytes: bf16 (pairs, k16), tf32 (k8), and float32
as three tf32 products of high and low parts (CUTLASS's "3xTF32"; relative error about 1e-6).
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import (
    WAIT_COPIES,
    bits_to_float,
    commit_copies,
    copy_async16_cached,
    float_to_bits,
    hold32,
    hold64,
    load1,
    shared_address,
    shared_load1,
    shared_store2,
    shuffle_xor,
    store_float,
)
from core.gpu.kernels.parts.epilogue import make_staging, make_writing
from core.gpu.kernels.parts.fragments import ELEMENT, divide
from core.gpu.kernels.parts.tile import Tile, make_multiplier

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32


def shared_bytes(tile: Tile, element: int) -> int:
    """Bytes of dynamic shared memory."""
    stage = (tile.rows + tile.columns) * (tile.depth + 16)
    return max(tile.stages * stage, tile.rows * (tile.columns * element + 16), 2048 * tile.warp_rows)


ARGUMENTS: Final = (
    *(types.uint64,) * 7,  # x, packed filters, bias (0: none), out, mask (0: none), statistics, control block
    *(types.uint64,) * 2,  # packed filters and bias of a fire's 1x1 half, the first columns
    *(types.int32,) * 2,  # its columns (0: none), its packed row length
    *(types.int32,) * 4,  # rows, columns, depth (packed row length), depth of the sum
    *(types.uint32,) * 4,  # fast division by pixels of a photo and by the width
    *(types.int32,) * 2,  # pixels of a photo, width (of the output)
    *(types.int32,) * 5,  # height, width, pixel pitch, row pitch, photo pitch of the input, in elements
    *(types.int32,) * 4,  # stride y, x; padding top, left
    *(types.int32,) * 5,  # channels, channel block, kernel height, width; offset of the second segment
    *(types.int32,) * 2,  # pixel pitch of out and of mask
    *(types.int32,) * 3,  # activation, mask (0 none, 1 relu, 2 relu6), accumulate
)


def make_column_sums(tile: Tile) -> Any:
    """Device function: sums and sums of squares of a block's columns, over its real rows, for batch norm."""
    WM, WN, BN, TH = tile.warp_rows, tile.warp_columns, tile.columns, tile.threads
    (TM, TN), BM = tile.fragments, tile.rows

    @device_function
    def column_sums(acc, stats, rows, columns, bn, base):
        tid = i32(cuda.threadIdx.x)
        lane, warp = i32(tid & 31), i32(tid >> 5)
        wm, wn, g, t = i32(warp % WM), i32((warp // WM) * (BN // WN)), i32(lane >> 2), i32(lane & 3)
        for n in range(TN):
            for half in range(2):
                total, squares = f32(0.0), f32(0.0)
                for m in range(TM):
                    o, r = (m * TN + n) * 4 + half, i32(wm * (BM // WM) + m * 16 + g)
                    v = acc[o] if r < rows else f32(0.0)
                    w = acc[o + 2] if r + 8 < rows else f32(0.0)
                    total, squares = f32(total + f32(v + w)), f32(squares + f32(v * v + w * w))
                for step in range(2, 5):
                    total = f32(total + shuffle_xor(total, u32(1 << step)))
                    squares = f32(squares + shuffle_xor(squares, u32(1 << step)))
                if g == 0:
                    at = u32(base + u32((wm * BN + wn + n * 8 + t * 2 + half) * 8))
                    shared_store2(at, float_to_bits(total), float_to_bits(squares))
        cuda.syncthreads()
        for i in range(tid, BN * 2, TH):
            column, kind = i32(i // 2), i32(i % 2)
            total = f32(0.0)
            for w in range(WM):
                total = f32(total + bits_to_float(shared_load1(u32(base + u32((w * BN + column) * 8 + kind * 4)))))
            if bn + column < columns:
                row = i64(i32(cuda.blockIdx.x)) * 2 + kind
                store_float(u64(stats + u64((row * i64(columns) + i64(bn + column)) * 4)), total)
        cuda.syncthreads()

    return column_sums


@device_function
def pixel_of_row(r, about):
    """Pixel of a block's row: `about` is (first pixel, pixels)."""
    return i32(about[0] + r) if about[0] + r < about[1] else i32(-1)


def make_window_finder(tile: Tile, element: int, spread: bool) -> Any:
    """Device function: where the windows of this thread's pixels begin, as row, column and address.

    `about`: fast division by pixels of a photo and by the width, both numbers; `window`: stride and padding.
    """
    AR, RS = tile.rows * (tile.depth // 16) // tile.threads, tile.threads // (tile.depth // 16)

    @device_function
    def find_windows(x, first, rows, about, window, pitch, row, photo, py, px, pa):
        for j in range(AR):
            m = u32(first + j * RS)
            n = divide(m, about[0], about[1])
            oy = divide(u32(m - n * u32(about[4])), about[2], about[3])
            ox = u32(m - n * u32(about[4]) - oy * u32(about[5]))
            py[j] = hold32(i32(i32(oy) * window[0] - window[2] if i32(m) < rows else i32(-(1 << 20))))
            px[j] = hold32(i32(i32(ox) * window[1] - window[3]))
            start = i64(0) if spread else i64(i32(py[j]) * row) + i64(px[j] * pitch)
            pa[j] = hold64(u64(x + u64((i64(n) * i64(photo) + start) * element)))

    return find_windows


def make_pixel_sender(tile: Tile, element: int, window: str) -> Any:
    """Device function that starts the copies of one tap of this thread's pixels, zeros beyond the photo's border."""
    AR, RS, ROW = tile.rows * (tile.depth // 16) // tile.threads, tile.threads // (tile.depth // 16), tile.depth + 16
    POINT, SPREAD = window == "point", window == "spread"

    @device_function
    def send_pixels(slot, x, py, px, pa, ky, kx, channel, deep, height, width, row, pitch):
        offset = i32(ky * row + kx * pitch + channel)
        for j in range(AR):
            if POINT:
                ok = py[j] >= 0 and deep
                source = u64(pa[j] + u64(i64(offset) * element))
            elif SPREAD:
                y, xx = i32(py[j] + ky), i32(px[j] + kx)
                ok = y >= 0 and xx >= 0 and deep
                iy, ix = i32(y // i32(height >> 16)), i32(xx // i32(width >> 16))
                ok = ok and iy * (height >> 16) == y and ix * (width >> 16) == xx
                ok = ok and iy < (height & 65535) and ix < (width & 65535)
                source = u64(pa[j] + u64(i64(iy * row + ix * pitch + channel) * element))
            else:
                ok = u32(py[j] + ky) < u32(height) and u32(px[j] + kx) < u32(width) and deep
                source = u64(pa[j] + u64(i64(offset) * element))
            copy_async16_cached(u32(slot + u32(j * RS * ROW)), source if ok else x, u32(16) if ok else u32(0))

    return send_pixels


def make_filter_sender(tile: Tile, element: int) -> Any:
    """Device function that starts the copies of a stage's filters, zeros beyond the last one."""
    CH, ROW = tile.depth // 16, tile.depth + 16
    BR, RS = (tile.columns * CH + tile.threads - 1) // tile.threads, tile.threads // CH
    RAGGED, BN = tile.columns * CH % tile.threads != 0, tile.columns

    @device_function
    def send_filters(slot, weight, at, mine, first, limit, depth):
        for j in range(BR):
            if not RAGGED or mine + j * RS < BN:
                ok = first + mine + j * RS < limit
                source = u64(at + u64(i64(j * RS) * i64(depth) * element))
                copy_async16_cached(
                    u32(slot + u32(j * RS * ROW)), source if ok else weight, u32(16) if ok else u32(0)
                )

    return send_filters


def make_convolution(arithmetic: str, numbers: tuple[int, ...], window: str, statistics: bool = False) -> Any:
    """The kernel as a Python function. `window`: "point" (1x1, no border), "window", or "spread" (a strided
    convolution's input gradient, which reads every stride-th place)."""
    tile = Tile(*numbers)
    BM, BN, KB, ST, WM, WN = tile.rows, tile.columns, tile.depth, tile.stages, tile.warp_rows, tile.warp_columns
    E = ELEMENT[arithmetic]
    VEC, TH, ROW, CH, BK = 16 // E, tile.threads, KB + 16, KB // 16, KB // E
    (TM, TN), STG, AR, OROW = tile.fragments, (BM + BN) * ROW, BM * CH // TH, BN * E + 16
    NACC, NB, LAST, STATS = TM * TN * 4, TN * 2, (ST - 1) * STG, statistics
    assert BM * CH % TH == 0
    assert TM > 0
    assert TN % 2 == 0 or TN == 1
    find_windows, send_pixels = make_window_finder(tile, E, window == "spread"), make_pixel_sender(tile, E, window)
    send_filters, multiply = make_filter_sender(tile, E), make_multiplier(arithmetic, tile, ROW, ROW)
    column_sums = make_column_sums(tile)
    stage_out, write_out = make_staging(E, (TM, TN), OROW), make_writing(E, BM, BN, TH, pixel_of_row)
    wait, wait_all = WAIT_COPIES[ST - 2], WAIT_COPIES[0]

    def convolution(
        x, weight, bias, out, mask, stats, photos, weight1, bias1, columns1, depth1,
        rows, columns, depth, total, hw_mul, hw_shift, w_mul, w_shift, hw, wo,
        height, width, pitch, row, photo, sy, sx, pt, pl, channels, block, kh, kw, segment, ldc, ldm,
        activation, masking, accumulate,
    ):
        shared = cuda.shared.array(0, dtype=types.uint8)
        base = shared_address(shared)
        tid = i32(cuda.threadIdx.x)
        lane, warp = i32(tid & 31), i32(tid >> 5)
        wm, wn = i32((warp % WM) * (BM // WM)), i32((warp // WM) * (BN // WN))
        bm, bn = i32(i32(cuda.blockIdx.x) * BM), i32(i32(cuda.blockIdx.y) * BN)
        q, r0 = i32(tid % CH), i32(tid // CH)
        ky, kx, c, cb = i32(0), i32(0), i32(q * VEC), i32(0)
        first, limit, shift, kc, kend = i32(bn), i32(columns), i32(0), i32(q * VEC), i32(total)
        if bn < columns1:  # the 1x1 half of a fire's expand: only the centre tap
            weight, bias, depth, kend = weight1, bias1, depth1, i32(channels)
            ky, kx, limit, block = i32(pt), i32(pl), i32(columns1), i32(1 << 30)
        elif columns1 > 0:
            first, limit = i32(bn - columns1), i32(columns - columns1)
        steps = i32((kend + BK - 1) // BK)
        py = cuda.local.array(AR, dtype=types.int32)
        px = cuda.local.array(AR, dtype=types.int32)
        pa = cuda.local.array(AR, dtype=types.uint64)
        about, corner = (hw_mul, hw_shift, w_mul, w_shift, hw, wo), (sy, sx, pt, pl)
        find_windows(x, i32(bm + r0), rows, about, corner, pitch, row, photo, py, px, pa)
        wa = u64(weight + u64((i64(first + r0) * i64(depth) + i64(q * VEC)) * E))
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
                while c >= block:
                    c = i32(c - block)
                    kx = i32(kx + 1)
                    if kx == kw:
                        kx = i32(0)
                        ky = i32(ky + 1)
                        if ky == kh:
                            ky = i32(0)
                            cb = i32(cb + block)
                            if cb >= channels:  # the second segment: the centre tap of other channels
                                ky, kx, cb, shift, block = i32(pt), i32(pl), i32(0), i32(segment), i32(1 << 30)
                slot = u32(base + filled + u32(r0 * ROW + q * 16))
                send_pixels(slot, x, py, px, pa, ky, kx, i32(c + cb + shift), kc < kend, height, width, row, pitch)
                send_filters(u32(slot + u32(BM * ROW)), weight, wa, r0, first, limit, depth)
                wa = u64(wa + u64(KB))
                filled = u32(filled + u32(STG)) if filled != u32(LAST) else u32(0)
                kc = i32(kc + BK)
                c = i32(c + BK)
            commit_copies()
            if k >= 0:
                stage = u32(base + used)
                used = u32(used + u32(STG)) if used != u32(LAST) else u32(0)
                multiply(u32(stage + u32(wm * ROW)), u32(stage + u32((BM + wn) * ROW)), lane, acc, bf)
        wait_all()
        cuda.syncthreads()
        if STATS:
            column_sums(acc, stats, i32(i32(load1(photos)) * hw - bm), columns, bn, base)
        stage_out(acc, base, wm, wn, lane, bias, first, limit, activation)
        cuda.syncthreads()
        write_out(base, tid, bn, columns, out, ldc, mask, ldm, masking, accumulate, (bm, rows))

    return convolution
