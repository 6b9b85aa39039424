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
from core.gpu.kernels.fragments import ELEMENT, divide, multiply_add
from core.gpu.kernels.lanes import ADD, KEEP, activate
from core.gpu.ptx import (
    WAIT_COPIES,
    bits_to_float,
    commit_copies,
    copy_async16_cached,
    float_to_bits,
    ldmatrix2,
    ldmatrix4,
    load1,
    load4,
    load4_ordered,
    load_float,
    pack_bf16,
    shared_address,
    shared_load1,
    shared_load4,
    shared_store1,
    shared_store2,
    shuffle_xor,
    store4,
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


def make_convolution(arithmetic: str, numbers: tuple[int, ...], window: str, statistics: bool = False) -> Any:
    """The kernel as a Python function. `window`: "point" (1x1, no border), "window", or "spread" (a strided
    convolution's input gradient, which reads every stride-th place)."""
    tile = Tile(*numbers)
    BM, BN, KB, ST, WM, WN = tile.rows, tile.columns, tile.bytes, tile.stages, tile.warp_rows, tile.warp_columns
    E = ELEMENT[arithmetic]
    VEC, TH, ROW, CH, BK = 16 // E, tile.threads, KB + 16, KB // 16, KB // E
    STG, AR, BR, RS = (BM + BN) * ROW, BM * CH // TH, (BN * CH + TH - 1) // TH, TH // CH
    TM, TN = BM // WM // 16, BN // WN // 8
    OROW, OC = BN * E + 16, BN // VEC
    NACC, NB, KS = TM * TN * 4, TN * 2, KB // 32
    PARTS = (BM * OC + TH - 1) // TH
    GROUP = min(PARTS, 8)
    NMASK = GROUP * 4
    RAGGED = BN * CH % TH != 0
    POINT, SPREAD, HALF, STATS = window == "point", window == "spread", E == 2, statistics
    assert BM * CH % TH == 0 and TM > 0 and (TN % 2 == 0 or TN == 1) and OC > 0
    mma = multiply_add(arithmetic)
    keep, add, column_sums = KEEP[E], ADD[E], make_column_sums(tile)
    wait, wait_all = WAIT_COPIES[ST - 2], WAIT_COPIES[0]

    def convolution(
        x, weight, bias, out, mask, stats, photos,
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
        steps, shift = i32((total + BK - 1) // BK), i32(0)
        kc, kend = i32(q * VEC), i32(total)
        py = cuda.local.array(AR, dtype=types.int32)
        px = cuda.local.array(AR, dtype=types.int32)
        pa = cuda.local.array(AR, dtype=types.uint64)
        for j in range(AR):
            m = u32(bm + r0 + j * RS)
            n = divide(m, hw_mul, hw_shift)
            rest = u32(m - n * u32(hw))
            oy = divide(rest, w_mul, w_shift)
            ox = u32(rest - oy * u32(wo))
            py[j] = i32(oy) * sy - pt if i32(m) < rows else i32(-(1 << 20))
            px[j] = i32(ox) * sx - pl
            if SPREAD:
                pa[j] = x + u64((i64(n) * i64(photo)) * E)
            else:
                pa[j] = x + u64((i64(n) * i64(photo) + i64(i32(py[j]) * row) + i64(px[j] * pitch)) * E)
        wa = u64(weight + u64((i64(bn + r0) * i64(depth) + i64(q * VEC)) * E))
        acc = cuda.local.array(NACC, dtype=types.float32)
        for i in range(NACC):
            acc[i] = f32(0.0)
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
                slot = u32(base + u32((ahead % ST) * STG) + u32(r0 * ROW + q * 16))
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
                        ok = bn + r0 + j * RS < columns
                        source = u64(wa + u64(i64(j * RS) * i64(depth) * E))
                        copy_async16_cached(
                            u32(slot + u32((BM + j * RS) * ROW)), source if ok else weight, u32(16) if ok else u32(0)
                        )
                wa = u64(wa + u64(KB))
                kc = i32(kc + BK)
                c = i32(c + BK)
            commit_copies()
            if k >= 0:
                stage = u32(base + u32((k % ST) * STG))
                for kk in range(KS):
                    bf = cuda.local.array(NB, dtype=types.uint32)
                    if TN == 1:
                        t2 = ldmatrix2(u32(stage + u32((BM + wn + (lane & 7)) * ROW + kk * 32 + ((lane >> 3) & 1) * 16)))
                        bf[0], bf[1] = t2[0], t2[1]
                    else:
                        for n2 in range(TN // 2):
                            at = (BM + wn + n2 * 16 + (lane & 7) + ((lane >> 4) << 3)) * ROW
                            t4 = ldmatrix4(u32(stage + u32(at + kk * 32 + ((lane >> 3) & 1) * 16)))
                            for i in range(4):
                                bf[n2 * 4 + i] = t4[i]
                    for tm in range(TM):
                        a = ldmatrix4(u32(stage + u32((wm + tm * 16 + (lane & 15)) * ROW + kk * 32 + (lane >> 4) * 16)))
                        mma(a, bf, acc, tm * TN * 4, TN)
        wait_all()
        cuda.syncthreads()
        if STATS:
            column_sums(acc, stats, i32(i32(load1(photos)) * hw - bm), columns, bn, base)
        g, t = i32(lane >> 2), i32(lane & 3)
        for n in range(TN):
            col = i32(wn + n * 8 + t * 2)
            b0, b1 = f32(0.0), f32(0.0)
            if bias != u64(0) and bn + col < columns:
                b0 = load_float(u64(bias + u64((bn + col) * 4)))
                b1 = load_float(u64(bias + u64((bn + col) * 4 + 4)))
            for m in range(TM):
                o, r = (m * TN + n) * 4, i32(wm + m * 16 + g)
                v0 = activate(f32(acc[o] + b0), activation)
                v1 = activate(f32(acc[o + 1] + b1), activation)
                v2 = activate(f32(acc[o + 2] + b0), activation)
                v3 = activate(f32(acc[o + 3] + b1), activation)
                if HALF:
                    shared_store1(u32(base + u32(r * OROW + col * 2)), pack_bf16(v0, v1))
                    shared_store1(u32(base + u32((r + 8) * OROW + col * 2)), pack_bf16(v2, v3))
                else:
                    shared_store2(u32(base + u32(r * OROW + col * 4)), float_to_bits(v0), float_to_bits(v1))
                    shared_store2(u32(base + u32((r + 8) * OROW + col * 4)), float_to_bits(v2), float_to_bits(v3))
        cuda.syncthreads()
        masks = cuda.local.array(NMASK, dtype=types.uint32)
        for first_part in range(0, PARTS, GROUP):  # loads of a group are all under way before its first store
            if masking != 0:
                for j in range(GROUP):
                    i = i32(tid + (first_part + j) * TH)
                    r, part = i32(i // OC), i32(i % OC)
                    ok = r < BM and bm + r < rows and bn + part * VEC < columns
                    place = u64((i64(bm + r) * i64(ldm) + i64(bn + part * VEC)) * E)
                    y = load4(u64(mask + place) if ok else mask)
                    for z in range(4):
                        masks[j * 4 + z] = y[z]
            for j in range(GROUP):
                i = i32(tid + (first_part + j) * TH)
                r, part = i32(i // OC), i32(i % OC)
                if r < BM and bm + r < rows and bn + part * VEC < columns:
                    v = shared_load4(u32(base + u32(r * OROW + part * 16)))
                    target = u64(out + u64((i64(bm + r) * i64(ldc) + i64(bn + part * VEC)) * E))
                    if masking != 0:
                        v = keep(v, (masks[j * 4], masks[j * 4 + 1], masks[j * 4 + 2], masks[j * 4 + 3]), masking)
                    if accumulate != 0:
                        v = add(v, load4_ordered(target))
                    store4(target, v[0], v[1], v[2], v[3])

    return convolution
