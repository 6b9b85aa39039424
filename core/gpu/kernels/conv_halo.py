"""3x3 convolution of stride 1 on the tensor cores with its pixels kept in shared memory: each is loaded once, not nine times.

Pixels are numbered along rows of width + 1 and photos of height + 1, so that every border is a zero pixel of the
numbering and the nine taps are nine constant offsets. A block computes `rows` consecutive numbers; for each block of
channels it loads those and the numbers around them (the halo), then multiplies with the filters of three taps at
a time. The input gradient is the same with rotated filters; a fire's 1x1 gradient rides along as a tenth tap that
reads the channels before. Serves every arithmetic, as `conv_tensor_core` does.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any, Final, final

from core.gpu.cuda import cuda, device_function, types
from core.gpu.kernels.fragments import ELEMENT, divide, multiply_add
from core.gpu.kernels.lanes import ADD, KEEP, activate
from core.gpu.ptx import (
    WAIT_COPIES,
    commit_copies,
    copy_async16,
    float_to_bits,
    ldmatrix4,
    load4,
    load4_ordered,
    load_float,
    pack_bf16,
    shared_address,
    shared_load4,
    shared_store1,
    shared_store2,
    store4,
)

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32


@final
@dataclass(frozen=True, slots=True)
class Tile:
    """A block's work: pixel numbers x filters, bytes of a channel block, stages of filters, warps along both."""

    rows: int
    columns: int
    bytes: int = 64
    stages: int = 3
    warp_rows: int = 4
    warp_columns: int = 2
    blocks: int = 2

    @property
    def numbers(self) -> tuple[int, ...]:
        """The fields, for a recipe."""
        return astuple(self)

    @property
    def threads(self) -> int:
        return 32 * self.warp_rows * self.warp_columns

    def shared(self, element: int, width: int, second: bool) -> int:
        """Bytes of dynamic shared memory for photos of a width."""
        pixels = self.rows + 2 * width + 4 + (self.rows if second else 0)
        work = 2 * pixels * (self.bytes + 16) + self.stages * self.columns * (3 * self.bytes + 16)
        return max(work, self.rows * (self.columns * element + 16))


ARGUMENTS: Final = (
    *(types.uint64,) * 5,  # x, packed filters, bias (0: none), out, mask (0: none)
    *(types.int32,) * 3,  # pixel numbers in all, filters, packed row length in elements
    *(types.uint32,) * 4,  # fast division by numbers a photo and by width + 1
    *(types.int32,) * 4,  # height, width, pixel pitch of x, blocks of channels
    *(types.int32,) * 2,  # elements from x to the second segment's channels; pitch of out
    *(types.int32,) * 4,  # pitch of the mask, activation, masking, accumulate
)


def make_halo_convolution(arithmetic: str, numbers: tuple[int, ...], second: bool) -> Any:
    """The kernel as a Python function; `second` adds the tenth tap."""
    tile = Tile(*numbers)
    BM, BN, KB, ST, WM, WN = tile.rows, tile.columns, tile.bytes, tile.stages, tile.warp_rows, tile.warp_columns
    E = ELEMENT[arithmetic]
    VEC, TH, ROW, CH, CB = 16 // E, tile.threads, KB + 16, KB // 16, KB // E
    WROW, WCH, STG = 3 * KB + 16, 3 * KB // 16, BN * (3 * KB + 16)
    TM, TN, KS, STEPS, TAPS = BM // WM // 16, BN // WN // 8, KB // 32, 4 if second else 3, 10 if second else 9
    OROW, OC = BN * E + 16, BN // VEC
    PARTS = (BM * OC + TH - 1) // TH
    GROUP = min(PARTS, 8)
    NACC, NB, NMASK, HALF, SECOND = TM * TN * 4, TN * 2, GROUP * 4, E == 2, second
    FILTERS = ST * STG
    assert TM > 0 and TN % 2 == 0 and ST - 1 <= STEPS
    mma, keep, add = multiply_add(arithmetic), KEEP[E], ADD[E]
    wait, wait_all = WAIT_COPIES[ST - 2], WAIT_COPIES[0]

    @device_function
    def load_pixels(to, x, first, count, limit, height, width, pitch, offset, hw_mul, hw_shift, w_mul, w_shift, tid):
        """Copy `count` numbered pixels of one channel block; what lies outside the photos becomes zero."""
        for i in range(tid, count * CH, TH):
            r, q = i32(i // CH), i32(i % CH)
            p = i32(first + r)
            n = divide(max(p, 0), hw_mul, hw_shift)
            rest = u32(u32(max(p, 0)) - n * u32((height + 1) * (width + 1)))
            y = i32(divide(rest, w_mul, w_shift))
            xx = i32(rest - u32(y * (width + 1)))
            ok = p >= 0 and p < limit and y < height and xx < width
            row = i64((i64(n) * height + y) * width + xx)
            source = u64(x + u64((row * pitch + offset + q * VEC) * E))
            copy_async16(u32(to + u32(r * ROW + q * 16)), source if ok else x, u32(16) if ok else u32(0))

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
        acc = cuda.local.array(NACC, dtype=types.float32)
        bf = cuda.local.array(NB, dtype=types.uint32)
        for i in range(NACC):
            acc[i] = f32(0.0)
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
                    load_pixels(to, x, i32(bm - around), halo, limit, height, width, pitch, i32(cb * CB), hw_mul, hw_shift,
                                w_mul, w_shift, tid)
                    if SECOND:
                        load_pixels(u32(to + u32(halo * ROW)), x, bm, BM, limit, height, width, pitch,
                                    i32(cb * CB + segment), hw_mul, hw_shift, w_mul, w_shift, tid)
                slot = u32(base + u32((ahead % ST) * STG))
                chunks = i32(CH) if s == 3 else i32(WCH)
                for i in range(tid, BN * chunks, TH):
                    r, q = i32(i // chunks), i32(i % chunks)
                    ok = bn + r < columns
                    place = i64(bn + r) * i64(depth) + i64((cb * TAPS + s * 3) * CB + q * VEC)
                    copy_async16(
                        u32(slot + u32(r * WROW + q * 16)), u64(weight + u64(place * E)) if ok else weight,
                        u32(16) if ok else u32(0),
                    )
            commit_copies()
            if k >= 0:
                cb = i32(k // STEPS)
                s = i32(k - cb * STEPS)
                stage = u32(base + u32((k % ST) * STG))
                pixels = u32(base + u32(FILTERS) + u32(cb & 1) * span)
                begin = i32(halo) if SECOND and s == 3 else i32(s * (width + 1))
                for tap in range(3):
                    if not SECOND or s < 3 or tap == 0:
                        for kk in range(KS):
                            for n2 in range(TN // 2):
                                at = (wn + n2 * 16 + (lane & 7) + ((lane >> 4) << 3)) * WROW + tap * KB + kk * 32
                                b4 = ldmatrix4(u32(stage + u32(at + ((lane >> 3) & 1) * 16)))
                                for i in range(4):
                                    bf[n2 * 4 + i] = b4[i]
                            for tm in range(TM):
                                at = (begin + tap + wm + tm * 16 + (lane & 15)) * ROW + kk * 32 + (lane >> 4) * 16
                                mma(ldmatrix4(u32(pixels + u32(at))), bf, acc, tm * TN * 4, TN)
        wait_all()
        cuda.syncthreads()
        g, t = i32(lane >> 2), i32(lane & 3)
        for n in range(TN):
            col = i32(wn + n * 8 + t * 2)
            b0, b1 = f32(0.0), f32(0.0)
            if bias != u64(0) and bn + col < columns:
                b0 = load_float(u64(bias + u64((bn + col) * 4)))
                b1 = load_float(u64(bias + u64((bn + col) * 4 + 4)))
            for m in range(TM):
                o, r = (m * TN + n) * 4, i32(wm + m * 16 + g)
                v0, v1 = activate(f32(acc[o] + b0), activation), activate(f32(acc[o + 1] + b1), activation)
                v2, v3 = activate(f32(acc[o + 2] + b0), activation), activate(f32(acc[o + 3] + b1), activation)
                if HALF:
                    shared_store1(u32(base + u32(r * OROW + col * 2)), pack_bf16(v0, v1))
                    shared_store1(u32(base + u32((r + 8) * OROW + col * 2)), pack_bf16(v2, v3))
                else:
                    shared_store2(u32(base + u32(r * OROW + col * 4)), float_to_bits(v0), float_to_bits(v1))
                    shared_store2(u32(base + u32((r + 8) * OROW + col * 4)), float_to_bits(v2), float_to_bits(v3))
        cuda.syncthreads()
        masks = cuda.local.array(NMASK, dtype=types.uint32)
        places = cuda.local.array(GROUP, dtype=types.int32)
        for first_part in range(0, PARTS, GROUP):
            for j in range(GROUP):
                i = i32(tid + (first_part + j) * TH)
                r, part = i32(i // OC), i32(i % OC)
                p = i32(bm + r)
                n = divide(p, hw_mul, hw_shift)
                rest = u32(u32(p) - n * u32((height + 1) * (width + 1)))
                y = i32(divide(rest, w_mul, w_shift))
                xx = i32(rest - u32(y * (width + 1)))
                ok = r < BM and p < limit and y < height and xx < width and bn + part * VEC < columns
                places[j] = i32((i32(n) * height + y) * width + xx) if ok else i32(-1)
                if masking != 0:
                    place = u64((i64(places[j]) * i64(ldm) + i64(bn + part * VEC)) * E)
                    got = load4(u64(mask + place) if ok else mask)
                    for z in range(4):
                        masks[j * 4 + z] = got[z]
            for j in range(GROUP):
                i = i32(tid + (first_part + j) * TH)
                r, part = i32(i // OC), i32(i % OC)
                if places[j] >= 0:
                    v = shared_load4(u32(base + u32(r * OROW + part * 16)))
                    target = u64(out + u64((i64(places[j]) * i64(ldc) + i64(bn + part * VEC)) * E))
                    if masking != 0:
                        v = keep(v, (masks[j * 4], masks[j * 4 + 1], masks[j * 4 + 2], masks[j * 4 + 3]), masking)
                    if accumulate != 0:
                        v = add(v, load4_ordered(target))
                    store4(target, v[0], v[1], v[2], v[3])

    return convolution
