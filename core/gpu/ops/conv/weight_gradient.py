"""Weight gradient of a convolution on the tensor cores: the sum over pixels is split between blocks.

Computes ``dweight[f, k] = sum over pixels m of dy[m, f] windows[m, k]``, k over taps and channels as in the packed
filters, and the bias gradient as one more product, with ones.

```
           k: taps x channels               a block: BF x BN weights, WM x WN warps, over `split` pixels
         +------+------+                    a step: BP pixels, by mma.sync
 filters |  BF  x  BN  |  x splits          ring of ST stages in shared memory, filled by cp.async:
         +------+------+                      [BP rows of dy: BF filters | BP rows of windows: BN of k]
```

Rows of a stage are pixels and 16 (bf16) or 32 bytes longer than their data; fragments are read across them, transposed.
Every block of the third grid axis writes a partial sum of its own and `reduction` adds those in a fixed order: no
atomics, the same bits every time. A single one that has the order of the weights is the gradient itself. Bytes: dy once
for each BN of k, windows once for each BF filters, from L2 mostly; and 4 bytes x splits x weights of partial sums.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.arguments import KernelSignature, ints, pitches, pointers
from core.gpu.compilation import ptx
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u8, u32, u64
from core.gpu.ops.conv.geometry import WINDOWS
from core.gpu.parts.tile import ELEMENT, MULTIPLY, ONES, Tile, crossed_row, make_fragment_loaders, make_row_sender
from core.gpu.parts.vectors import clear, divide


def shared_bytes(tile: Tile, element: int) -> int:
    return tile.stages * tile.depth * (crossed_row(tile.rows, element) + crossed_row(tile.columns, element))


SIGNATURE: Final = KernelSignature((
    *pointers(x="activations (N, height, width, channels)", dy="gradient (pixels, filters)",
              partial="partial sums (splits, size)", biases="those of the biases, in the same memory, or 0"),
    *ints(pixels="pixels of dy", split="pixels of a partial sum", filters="filters, up to 16 bytes",
          packed="rows of a partial sum: `filters` again, or the compiler copies the sums in every iteration",
          depth="columns of a partial sum: taps x channels"),
    WINDOWS,
    *ints(channels="channels of a tap", kernel_width="columns of the window"),
    *pitches(ldy="dy"),
    *ints(size="floats of a partial sum: weights, then biases"),
))  # fmt: skip


def make_window_sender(tile: Tile, element: int, border: bool) -> Any:
    """Device function that starts the copies of a stage's unfolded windows of x, by taps (ky, kx) and offsets ko."""
    VEC, TH, BP = 16 // element, tile.threads, tile.depth
    ROW, CH = crossed_row(tile.columns, element), tile.columns // VEC
    LOADS, ROUNDS = BP * CH, (BP * CH + TH - 1) // TH

    @device_function
    def send_windows(slot, x, at, end, w, ky, kx, ko, tid):
        for j in range(ROUNDS):
            r, vector = i32((tid + j * TH) // CH), i32((tid + j * TH) % CH)
            m = u32(at + r)
            n = divide(m, w.by_area)
            rest = u32(m - n * u32(w.area))
            oy = divide(rest, w.by_across)
            y = i32(i32(oy) * w.stride_y - w.top)
            xx = i32(i32(rest - oy * u32(w.across)) * w.stride_x - w.left)
            ok = i32(m) < end and ky[j] < (1 << 20)
            if border:
                ok = ok and u32(y + ky[j]) < u32(w.height) and u32(xx + kx[j]) < u32(w.width)
            inside = i64(i32(y * w.row_pitch + xx * w.pitch + ko[j]))
            source = u64(x + u64((i64(n) * i64(w.image_pitch) + inside) * element))
            if LOADS % TH == 0 or tid + j * TH < LOADS:
                to = u32(slot + u32(r * ROW + vector * 16))
                ptx.copy_async16_cached(to, source if ok else x, u32(16) if ok else u32(0))

    return send_windows


def make_tap_finder(tile: Tile, element: int) -> Any:
    """Device function: rows, columns and offsets of the taps of this thread's columns; none beyond the last one."""
    VEC, TH, BP = 16 // element, tile.threads, tile.depth
    CB = tile.columns // VEC
    BR = (BP * CB + TH - 1) // TH

    @device_function
    def find_taps(bn, channels, kernel_width, depth, row_pitch, pitch, tid, ky, kx, ko):
        for j in range(BR):
            column = i32(bn + ((tid + j * TH) % CB) * VEC)
            tap = i32(column // channels)
            ky[j] = i32(tap // kernel_width) if column < depth else i32(1 << 20)
            kx[j] = i32(tap % kernel_width)
            ko[j] = i32((tap // kernel_width) * row_pitch + kx[j] * pitch + column - tap * channels)

    return find_taps


def make_partial_writer(tile: Tile) -> Any:
    """Device function: a warp's sums, and where `biased` those of the bias, to its block's partial sum."""
    TM, TN = tile.fragments

    @device_function
    def write_partial(mine, biases, acc, sums, first, start, packed, depth, biased, lane):
        g, t = i32(lane >> 2), i32(lane & 3)
        for m in range(TM):
            for half in range(2):
                f = i32(first + m * 16 + g + half * 8)
                if f < packed:
                    for n in range(TN):
                        column, o = i32(start + n * 8 + t * 2), (m * TN + n) * 4 + half * 2
                        if column < depth:
                            at = u64(mine + u64((i64(f) * i64(depth) + i64(column)) * 4))
                            ptx.store2(at, ptx.float_to_bits(acc[o]), ptx.float_to_bits(acc[o + 1]))
                    if biased and t == 0:
                        ptx.store_float(u64(biases + u64(i64(f) * 4)), sums[m * 4 + half * 2])

    return write_partial


def make_weight_gradient(arithmetic: str, numbers: tuple[int, ...], border: bool, sliced: bool = False) -> Any:
    """The kernel as a Python function; `border` is false where no tap is outside the image. `sliced`: x, dy and partial
    are the first of the slices of the groups, and the first axis of the grid has the blocks of all."""
    tile = Tile(*numbers)
    BF, BN, BP, ST, WM, WN = tile.rows, tile.columns, tile.depth, tile.stages, tile.warp_rows, tile.warp_columns
    E = ELEMENT[arithmetic]
    VEC, TH = 16 // E, tile.threads
    ROWA, ROWB, CB = crossed_row(BF, E), crossed_row(BN, E), BN // VEC
    STB, STG, BR = BP * ROWA, BP * (ROWA + ROWB), (BP * CB + TH - 1) // TH
    (TM, TN), KK, LAST = tile.fragments, 32 // E, (ST - 1) * STG
    NACC, NB, NS, ONE = TM * TN * 4, TN * 2, TM * 4, ONES[arithmetic]
    mma, (load_a, load_b) = MULTIPLY[arithmetic], make_fragment_loaders(E, ROWA, ROWB, TN)
    send_gradient, send_windows = make_row_sender(BP, BF, TH, E), make_window_sender(tile, E, border)
    find_taps, write_partial, wait = make_tap_finder(tile, E), make_partial_writer(tile), ptx.WAIT_COPIES[ST - 2]

    def weight_gradient(
        x, dy, partial, biases, pixels, split, filters, packed, depth, windows, channels, kernel_width, ldy, size
    ):
        base = ptx.shared_address(cuda.shared.array(0, u8))
        tid = i32(cuda.threadIdx.x)
        lane, warp = i32(tid & 31), i32(tid >> 5)
        wm, wn = i32((warp % WM) * (BF // WM)), i32((warp // WM) * (BN // WN))
        bf, bn = i32(i32(cuda.blockIdx.x) * BF), i32(i32(cuda.blockIdx.y) * BN)
        if sliced:
            across = i32((filters + BF - 1) // BF)
            slice_of, bf = i64(i32(cuda.blockIdx.x) // across), i32(i32(cuda.blockIdx.x) % across * BF)
            x, dy = u64(x + u64(slice_of * channels * E)), u64(dy + u64(slice_of * filters * E))
            results = u64(slice_of * packed * (depth + 1) * 4)
            partial, biases = u64(partial + results), u64(biases + results)
        start = i32(i32(cuda.blockIdx.z) * split)
        end = i32(min(i32(start + split), pixels))  # this block's share of the pixels
        steps = i32((end - start + BP - 1) // BP)
        ky = cuda.local.array(BR, i32)
        kx = cuda.local.array(BR, i32)
        ko = cuda.local.array(BR, i32)
        # A thread copies the same columns (taps and channels) of every stage: found once, only the pixels move on.
        find_taps(bn, channels, kernel_width, depth, windows.row_pitch, windows.pitch, tid, ky, kx, ko)
        acc = cuda.local.array(NACC, f32)
        clear(acc)
        sums = cuda.local.array(NS, f32)
        ones = cuda.local.array(2, u32)
        ones[0], ones[1] = u32(ONE), u32(ONE)
        clear(sums)
        biased = bn == 0 and wn == 0 and biases != u64(0)  # one column of blocks and warps computes the bias gradient
        filled, used = u32(0), u32(0)
        for k in range(1 - ST, steps):  # the first ST - 1 iterations only fill the ring
            if k >= 0:
                wait()
                cuda.syncthreads()  # the stage has arrived; no thread reads the one filled next
            ahead = i32(k + ST - 1)
            if ahead < steps:
                slot, at = u32(base + filled), i32(start + ahead * BP)
                filled = u32(filled + u32(STG)) if filled != u32(LAST) else u32(0)
                send_gradient(slot, dy, at, end, bf, filters, ldy, tid)
                send_windows(u32(slot + u32(STB)), x, at, end, windows, ky, kx, ko, tid)
            ptx.commit_copies()  # a group per iteration, even an empty one: `wait` counts groups
            if k >= 0:
                stage = u32(base + used)
                used = u32(used + u32(STG)) if used != u32(LAST) else u32(0)
                for kk in range(BP // KK):
                    b = cuda.local.array(NB, u32)
                    load_b(u32(stage + u32(STB)), kk * KK, wn, lane, b)
                    for tm in range(TM):
                        a = load_a(stage, kk * KK, wm + tm * 16, lane)  # both operands have pixels as rows: transposed
                        mma(a, b, acc, tm * TN * 4, TN)
                        if biased:
                            mma(a, ones, sums, tm * 4, 1)
        mine = u64(i64(i32(cuda.blockIdx.z)) * i64(size) * 4)
        write_partial(u64(partial + mine), u64(biases + mine), acc, sums, i32(bf + wm), i32(bn + wn), packed, depth,
                      biased, lane)

    return weight_gradient
