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

from dataclasses import astuple, dataclass
from typing import Any, Final, final

from core.gpu.cuda import cuda, device_function, types
from core.gpu.kernels.epilogue import make_staging, make_writing
from core.gpu.kernels.fragments import ELEMENT, divide, make_filter_loader, multiply_add
from core.gpu.ptx import (
    WAIT_COPIES,
    bits_to_float,
    commit_copies,
    copy_async16_cached,
    float_to_bits,
    hold32,
    hold64,
    ldmatrix4,
    load1,
    shared_address,
    shared_load1,
    shared_store2,
    shuffle_xor,
    store_float,
)

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32


@final
@dataclass(frozen=True, slots=True)
class Tile:
    """Shape of a block's work: rows x columns, bytes of a stage's row, stages, warps along rows and columns."""

    rows: int
    columns: int
    bytes: int = 64
    stages: int = 3
    warp_rows: int = 4
    warp_columns: int = 2
    blocks: int = 2
    """Blocks the compiler must fit on a multiprocessor."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """The fields, for a recipe."""
        return astuple(self)

    @property
    def threads(self) -> int:
        return 32 * self.warp_rows * self.warp_columns

    def shared(self, element: int) -> int:
        """Bytes of dynamic shared memory."""
        stage = (self.rows + self.columns) * (self.bytes + 16)
        return max(self.stages * stage, self.rows * (self.columns * element + 16), 2048 * self.warp_rows)


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
    TM, TN, BM = tile.rows // WM // 16, tile.columns // WN // 8, tile.rows

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
def _pixel_of_row(r, about):
    """Pixel of a block's row: `about` is (first pixel, pixels)."""
    return i32(about[0] + r) if about[0] + r < about[1] else i32(-1)


def make_convolution(arithmetic: str, numbers: tuple[int, ...], window: str, statistics: bool = False) -> Any:
    """The kernel as a Python function. `window`: "point" (1x1, no border), "window", or "spread" (a strided
    convolution's input gradient, which reads every stride-th place)."""
    tile = Tile(*numbers)
    BM, BN, KB, ST, WM, WN = tile.rows, tile.columns, tile.bytes, tile.stages, tile.warp_rows, tile.warp_columns
    E = ELEMENT[arithmetic]
    VEC, TH, ROW, CH, BK = 16 // E, tile.threads, KB + 16, KB // 16, KB // E
    STG, AR, BR, RS = (BM + BN) * ROW, BM * CH // TH, (BN * CH + TH - 1) // TH, TH // CH
    TM, TN = BM // WM // 16, BN // WN // 8
    OROW = BN * E + 16
    NACC, NB, KS, LAST = TM * TN * 4, TN * 2, KB // 32, (ST - 1) * STG
    RAGGED = BN * CH % TH != 0
    POINT, SPREAD, STATS = window == "point", window == "spread", statistics
    assert BM * CH % TH == 0
    assert TM > 0
    assert TN % 2 == 0 or TN == 1
    mma = multiply_add(arithmetic)
    column_sums = make_column_sums(tile)
    stage_out, write_out = make_staging(E, (TM, TN), OROW), make_writing(E, BM, BN, TH, _pixel_of_row)
    wait, wait_all, load_filters = WAIT_COPIES[ST - 2], WAIT_COPIES[0], make_filter_loader(TN, ROW)

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
        for j in range(AR):
            m = u32(bm + r0 + j * RS)
            n = divide(m, hw_mul, hw_shift)
            oy = divide(u32(m - n * u32(hw)), w_mul, w_shift)
            ox = u32(m - n * u32(hw) - oy * u32(wo))
            py[j] = hold32(i32(i32(oy) * sy - pt if i32(m) < rows else i32(-(1 << 20))))
            px[j] = hold32(i32(i32(ox) * sx - pl))
            start = i64(0) if SPREAD else i64(i32(py[j]) * row) + i64(px[j] * pitch)
            pa[j] = hold64(u64(x + u64((i64(n) * i64(photo) + start) * E)))
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
                offset = i32(ky * row + kx * pitch + c + cb + shift)
                for j in range(AR):
                    if POINT:
                        ok = py[j] >= 0 and kc < kend
                        source = u64(pa[j] + u64(i64(offset) * E))
                    elif SPREAD:
                        y, xx = i32(py[j] + ky), i32(px[j] + kx)
                        ok = y >= 0 and xx >= 0 and kc < kend
                        iy, ix = i32(y // i32(height >> 16)), i32(xx // i32(width >> 16))
                        ok = ok and iy * (height >> 16) == y and ix * (width >> 16) == xx
                        ok = ok and iy < (height & 65535) and ix < (width & 65535)
                        source = u64(pa[j] + u64(i64(iy * row + ix * pitch + c + cb + shift) * E))
                    else:
                        ok = u32(py[j] + ky) < u32(height) and u32(px[j] + kx) < u32(width) and kc < kend
                        source = u64(pa[j] + u64(i64(offset) * E))
                    copy_async16_cached(u32(slot + u32(j * RS * ROW)), source if ok else x, u32(16) if ok else u32(0))
                for j in range(BR):
                    if not RAGGED or r0 + j * RS < BN:
                        ok = first + r0 + j * RS < limit
                        source = u64(wa + u64(i64(j * RS) * i64(depth) * E))
                        copy_async16_cached(
                            u32(slot + u32((BM + j * RS) * ROW)), source if ok else weight, u32(16) if ok else u32(0)
                        )
                wa = u64(wa + u64(KB))
                filled = u32(filled + u32(STG)) if filled != u32(LAST) else u32(0)
                kc = i32(kc + BK)
                c = i32(c + BK)
            commit_copies()
            if k >= 0:
                stage = u32(base + used)
                used = u32(used + u32(STG)) if used != u32(LAST) else u32(0)
                for kk in range(KS):
                    load_filters(u32(stage + u32((BM + wn) * ROW + kk * 32)), lane, bf)
                    for tm in range(TM):
                        a = ldmatrix4(u32(stage + u32((wm + tm * 16 + (lane & 15)) * ROW + kk * 32 + (lane >> 4) * 16)))
                        mma(a, bf, acc, tm * TN * 4, TN)
        wait_all()
        cuda.syncthreads()
        if STATS:
            column_sums(acc, stats, i32(i32(load1(photos)) * hw - bm), columns, bn, base)
        stage_out(acc, base, wm, wn, lane, bias, first, limit, activation)
        cuda.syncthreads()
        write_out(base, tid, bn, columns, out, ldc, mask, ldm, masking, accumulate, (bm, rows))

    return convolution
