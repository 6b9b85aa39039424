"""Convolution as an implicit matrix product on the tensor cores: forward and input gradient in one kernel.

Computes ``out = activation(windows(x) filters^T + bias)``; the matrix of windows is never in memory (CUTLASS's
"implicit GEMM convolution"). The input gradient is the same product over dy with rotated filters, masked by the
activation of x's producer and, where asked, added to what is there. With a stride it is several products ("phases"):
pixels of dx with the same row and column modulo the stride take the same taps.

```
          columns: filters                   a block: BM x BN of the product, WM x WN warps
        +----+----+----+                     a warp: TM fragments of 16 rows x TN fragments of 8 columns,
        |    |    |    |  BM pixels            sums in registers
 rows:  +----+----+----+                     a step: KB bytes of the sum over taps and channels, by mma.sync
 pixels |    | BN |    |                     ring of ST stages in shared memory, filled by cp.async:
 (N H W)+----+----+----+                       [BM rows of pixels | BN rows of filters] x (KB + 16) bytes
```

Rows are 16 bytes longer than their data, so that ldmatrix has no bank conflicts. Taps outside the image are copied as
zeros. The sums pass through shared memory (reused) and are stored as 16 bytes per thread. Bytes: x, filters and out
once each where L2 holds a block's windows; the floor is ``2 N H W filters taps channels`` FLOP.

The arithmetics share the code, because a stage's rows are bytes: bf16 (pairs, k16), tf32 (k8), float32 as three tf32
products of high and low parts (CUTLASS's "3xTF32"; relative error about 1e-6), and fma without tensor cores.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.arguments import ACTIVATION, MASK, MASKING, KernelSignature, ints, pitches, pointers
from core.gpu.compilation import ptx
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u8, u32, u64
from core.gpu.ops.conv.geometry import WINDOWS
from core.gpu.parts.epilogue import make_staging, make_writing, pixel_of_row
from core.gpu.parts.tile import ELEMENT, Tile, crossed_row, make_multiplier, make_row_sender
from core.gpu.parts.vectors import clear, divide


def filter_bytes(tile: Tile, element: int, crossed: bool) -> int:
    """Bytes of a stage's filters, of which the rows lie along the depth if `crossed`."""
    return tile.depth // element * crossed_row(tile.columns, element) if crossed else tile.columns * (tile.depth + 16)


def shared_bytes(tile: Tile, element: int, crossed: bool) -> int:
    stage = tile.rows * (tile.depth + 16) + filter_bytes(tile, element, crossed)
    return max(tile.stages * stage, tile.rows * (tile.columns * element + 16))


SIGNATURE: Final = KernelSignature((
    *pointers(x="activations (N, height, width, channels), or the gradient dy", weight="packed filters",
              bias="float32 (columns,); 0 for none", out="activations, or the gradient dx"),
    MASK,
    *ints(rows="pixels of out", columns="filters, up to 16 bytes", depth="packed row length", total="depth of the sum"),
    WINDOWS,
    *ints(channels="channels of a tap", kernel_height="rows of the window", kernel_width="columns of the window",
          out_height="rows of out", out_width="columns of out"),
    *pitches(ldo="out", ldm="mask"),
    ACTIVATION,
    *MASKING,
))  # fmt: skip


@device_function
def find_phase(product, w, kernel_height, kernel_width):
    """First row and column of out in the phase, rows and columns of its taps, and its padding above and on the left.

    Pixel (y, x) of out takes tap (ky, kx) if y + top - ky and x + left - kx are multiples of the stride.
    """
    y, x = i32(i32(product // w.stride_x) % w.stride_y), i32(product % w.stride_x)
    down, across = i32(y + w.top), i32(x + w.left)
    tall = i32((kernel_height - down % w.stride_y + w.stride_y - 1) // w.stride_y)
    wide = i32((kernel_width - across % w.stride_x + w.stride_x - 1) // w.stride_x)
    return y, x, tall, wide, i32(tall - 1 - down // w.stride_y), i32(wide - 1 - across // w.stride_x)


@device_function
def pixel_of_phase(r, geometry):
    """The pixel of out for a row of the product, or -1.

    `geometry`: first row, rows, windows, (y, x) of the phase, height and width of out.
    """
    first, rows, w, at, height, width = geometry
    m = u32(first + r)
    n = divide(m, w.by_area)
    rest = u32(m - n * u32(w.area))
    row = divide(rest, w.by_across)
    y, x = i32(i32(row) * w.stride_y + at[0]), i32(i32(rest - row * u32(w.across)) * w.stride_x + at[1])
    return i32((i32(n) * height + y) * width + x) if i32(m) < rows and y < height and x < width else i32(-1)


def make_window_finder(count: int, apart: int, element: int, phases: bool = False) -> Any:
    """Device function: where the windows of this thread's `count` pixels, `apart` from one to the next, begin, as row,
    column and address."""

    @device_function
    def find_windows(x, first, rows, w, top, left, py, px, pa):
        stride_y, stride_x = (i32(1), i32(1)) if phases else (w.stride_y, w.stride_x)
        for j in range(count):
            m = u32(first + j * apart)
            n = divide(m, w.by_area)
            oy = divide(u32(m - n * u32(w.area)), w.by_across)
            ox = u32(m - n * u32(w.area) - oy * u32(w.across))
            # Rows beyond the last pixel get a y far outside the image. `hold` keeps the values in registers: the
            # compiler would compute them again in every stage.
            py[j] = ptx.hold32(i32(i32(oy) * stride_y - top if i32(m) < rows else i32(-(1 << 20))))
            px[j] = ptx.hold32(i32(i32(ox) * stride_x - left))
            start = i64(i32(py[j]) * w.row_pitch) + i64(px[j] * w.pitch)
            pa[j] = ptx.hold64(u64(x + u64((i64(n) * i64(w.image_pitch) + start) * element)))

    return find_windows


def make_pixel_sender(tile: Tile, element: int, point: bool) -> Any:
    """Device function that starts the copies of one tap of this thread's pixels, zeros outside the image."""
    AR, RS, ROW = tile.rows * (tile.depth // 16) // tile.threads, tile.threads // (tile.depth // 16), tile.depth + 16

    @device_function
    def send_pixels(slot, x, py, px, pa, ky, kx, channel, deep, w):
        height, width, row, pitch = w.height, w.width, w.row_pitch, w.pitch
        offset = i32(ky * row + kx * pitch + channel)
        for j in range(AR):
            inside = py[j] >= 0 if point else u32(py[j] + ky) < u32(height) and u32(px[j] + kx) < u32(width)
            ok = inside and deep
            source = u64(pa[j] + u64(i64(offset) * element))
            ptx.copy_async16_cached(u32(slot + u32(j * RS * ROW)), source if ok else x, u32(16) if ok else u32(0))

    return send_pixels


def make_filter_sender(tile: Tile, element: int) -> Any:
    """Device function that starts the copies of a stage's filters, zeros beyond the last one.

    `deep`: whether this thread's depth is one of the sum; rows of bf16 are padded with zeros, so it may be beyond.
    """
    CH, ROW = tile.depth // 16, tile.depth + 16
    BR, RS = (tile.columns * CH + tile.threads - 1) // tile.threads, tile.threads // CH
    RAGGED, BN, PADDED = tile.columns * CH % tile.threads != 0, tile.columns, element == 2

    @device_function
    def send_filters(slot, weight, at, mine, first, limit, depth, deep):
        for j in range(BR):
            if not RAGGED or mine + j * RS < BN:
                ok = first + mine + j * RS < limit and (PADDED or deep)
                source = u64(at + u64(i64(j * RS) * i64(depth) * element))
                ptx.copy_async16_cached(
                    u32(slot + u32(j * RS * ROW)), source if ok else weight, u32(16) if ok else u32(0)
                )

    return send_filters


@device_function
def find_tap(ky, kx, c, channels, kernel_width):
    """Row and column of the tap, and its channel, `c` channels after the first channel of tap (ky, kx)."""
    while c >= channels:
        c, kx = i32(c - channels), i32(kx + 1)
        if kx == kernel_width:
            kx, ky = i32(0), i32(ky + 1)
    return ky, kx, c


@device_function
def find_slice(number, x, bias, out, mask, read, columns, written):
    """Addresses of a slice's arrays from those of the first; `read` and `written`: bytes of a pixel in a slice."""
    after = u64(number * written)
    own = u64(bias + u64(number * columns * 4)) if bias != u64(0) else bias
    return u64(x + u64(number * read)), own, u64(out + after), u64(mask + after)


def make_convolution(arithmetic: str, numbers: tuple[int, ...], window: str, sliced: bool = False) -> Any:
    """The kernel as a Python function. `window`: "point" (1x1, no border), "crossed" (the same, with rows of filters
    along the depth: an input gradient reads those of the forward pass), "window", or "phases" (the input gradient of
    a strided convolution). `sliced`: x, weight, bias, out and mask are the first of the slices of the
    groups. The third axis of the grid has the slices, and the phases of each."""
    tile = Tile(*numbers)
    BM, BN, KB, ST, WM, WN = tile.rows, tile.columns, tile.depth, tile.stages, tile.warp_rows, tile.warp_columns
    E, TH, ROW, CH = ELEMENT[arithmetic], tile.threads, KB + 16, KB // 16
    VEC, BK = 16 // E, KB // E
    CROSSED, PHASES = window == "crossed", window == "phases"
    (TM, TN), STG, AR, OROW = tile.fragments, BM * ROW + filter_bytes(tile, E, CROSSED), BM * CH // TH, BN * E + 16
    APART = E if CROSSED else ROW  # bytes from one filter to the next
    NACC, NB, LAST = TM * TN * 4, TN * 2, (ST - 1) * STG
    assert BM * CH % TH == 0
    find_windows, send_filters = make_window_finder(AR, TH // CH, E, PHASES), make_filter_sender(tile, E)
    send_pixels, send_rows = make_pixel_sender(tile, E, window in ("point", "crossed")), make_row_sender(BK, BN, TH, E)
    multiply = make_multiplier(arithmetic, tile, ROW, CROSSED)
    stage_out = make_staging(E, (TM, TN), OROW)
    write_out = make_writing(E, BM, BN, TH, pixel_of_phase if PHASES else pixel_of_row)
    wait, wait_all = ptx.WAIT_COPIES[ST - 2], ptx.WAIT_COPIES[0]

    def convolution(
        x, weight, bias, out, mask, rows, columns, depth, total, windows, channels, kernel_height, kernel_width,
        out_height, out_width, ldo, ldm, activation, masking, accumulate,
    ):
        product, top, left, y, xx = i32(cuda.blockIdx.z), windows.top, windows.left, i32(0), i32(0)
        if PHASES:
            y, xx, tall, kernel_width, top, left = find_phase(product, windows, kernel_height, kernel_width)
            total = i32(tall * kernel_width * channels)
        if sliced or PHASES:
            weight = u64(weight + u64(i64(product) * (total if CROSSED else columns) * depth * E))
        if sliced:
            number = i64(product // (windows.stride_y * windows.stride_x) if PHASES else product)
            x, bias, out, mask = find_slice(number, x, bias, out, mask, i32(channels * E), columns, i32(columns * E))
        base, tid = ptx.shared_address(cuda.shared.array(0, u8)), i32(cuda.threadIdx.x)
        lane, warp = i32(tid & 31), i32(tid >> 5)
        wm, wn = i32((warp % WM) * (BM // WM)), i32((warp // WM) * (BN // WN))
        bm, bn = i32(i32(cuda.blockIdx.x) * BM), i32(i32(cuda.blockIdx.y) * BN)
        q, r0 = i32(tid % CH), i32(tid // CH)
        ky, kx, c, at, steps = i32(0), i32(0), i32(q * VEC), i32(q * VEC), i32((total + BK - 1) // BK)
        py = cuda.local.array(AR, i32)
        px = cuda.local.array(AR, i32)
        pa = cuda.local.array(AR, u64)
        find_windows(x, i32(bm + r0), rows, windows, top, left, py, px, pa)
        wa = u64(weight + u64((i64(bn + r0) * i64(depth) + i64(q * VEC)) * E))
        acc = cuda.local.array(NACC, f32)
        bf = cuda.local.array(NB, u32)
        clear(acc)
        filled, used = u32(0), u32(0)
        for k in range(1 - ST, steps):  # the first ST - 1 iterations only fill the ring
            if k >= 0:
                wait()
                cuda.syncthreads()  # the stage has arrived; no thread reads the one filled next
            ahead = i32(k + ST - 1)
            if ahead < steps:
                # This thread's 16 bytes of the depth moved on by BK elements, perhaps into another tap.
                ky, kx, c = find_tap(ky, kx, c, channels, kernel_width)
                slot = u32(base + filled + u32(r0 * ROW + q * 16))
                send_pixels(slot, x, py, px, pa, ky, kx, c, at < total, windows)
                if CROSSED:
                    ring = u32(base + filled + u32(BM * ROW))
                    send_rows(ring, weight, i32(ahead * BK), total, bn, columns, depth, tid)
                else:
                    send_filters(u32(slot + u32(BM * ROW)), weight, wa, r0, bn, columns, depth, at < total)
                    wa = u64(wa + u64(KB))
                filled = u32(filled + u32(STG)) if filled != u32(LAST) else u32(0)
                at, c = i32(at + BK), i32(c + BK)
            ptx.commit_copies()  # a group per iteration, even an empty one: `wait` counts groups
            if k >= 0:
                stage = u32(base + used)
                used = u32(used + u32(STG)) if used != u32(LAST) else u32(0)
                multiply(u32(stage + u32(wm * ROW)), u32(stage + u32(BM * ROW + wn * APART)), lane, acc, bf)
        wait_all()
        cuda.syncthreads()  # the ring is free for the sums
        stage_out(acc, base, wm, wn, lane, bias, bn, columns, activation)
        cuda.syncthreads()
        place = (bm, rows, windows, (y, xx), out_height, out_width) if PHASES else (bm, rows)
        write_out(base, tid, bn, columns, out, ldo, mask, ldm, masking, accumulate, place)

    return convolution
