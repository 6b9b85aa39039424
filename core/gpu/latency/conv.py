"""Convolution of one or two images as an implicit GEMM: all loads of a block in flight at once, sliced-K.

Computes ``activation(conv(x) + bias + addend)`` in bf16 with float32 sums: a convolution or dense layer, also with the
addition after it. Such layers are bound by the latency of one load after another, not by bytes or products, so nothing
but the sums goes through shared memory.

    block: 16 `rows` pixels x 8 `columns` `across` filters          warps: across x slices
                  filters
              +------+------+
      pixels  | warp | warp |   each slice of warps has a part of the depth (taps x channels) and loads all of it,
              | 0..  | ..   |   pixels and filters, before its first mma.m16n8k16
              +------+------+

Shared memory: the sums of all slices (`block.make_epilogue`). Registers hold both operands (`BlockShape.fits`).
`mma.m16n8k16` takes two neighbouring elements from each lane; a lane loads a 16-byte vector, eight neighbouring ones.
So the elements are not where the instruction expects them, but those of both operands are permuted in the same way,
and the order in a sum over the depth is free.
Bytes: x, filters and out once from memory; every block of filters reads the pixels again from the L2 cache.
Floor: the latency of two loads and one barrier.
Source: NVIDIA CUTLASS, sliced-K; PTX ISA 8.x, 9.7.14 (mma).
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.arguments import ACTIVATION, KernelSignature, divisions, ints, pitches, pointers
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u8, u32, u64
from core.gpu.compilation.ptx import shared_address
from core.gpu.latency.block import BlockShape, load4_where, make_epilogue, make_filter_loads, wait_for_previous
from core.gpu.ops.conv.geometry import WINDOWS
from core.gpu.ops.conv.implicit_gemm import make_window_finder
from core.gpu.parts.epilogue import pixel_of_row
from core.gpu.parts.tile import multiply_bf16
from core.gpu.parts.vectors import clear, divide, put4

SIGNATURE: Final = KernelSignature((
    *pointers(x="activations (N, height, width, C), bf16", weight="packed filters (columns, depth), bf16",
              bias="float32 (columns), or 0", out="activations (N, ho, wo, columns), bf16",
              addend="tensor of the shape of out that is added to the sums, or 0"),
    *ints(rows="pixels of out in all images", columns="filters, up to a multiple of 8",
          depth="elements of a packed filter", vectors="vectors of a sum: taps x channels / 8",
          channel_vectors="vectors of a pixel of x"),
    *divisions(channels="`channel_vectors`"),
    WINDOWS,
    *pitches(ldo="out", lda="`addend`"),
    ACTIVATION,
))  # fmt: skip


def make_pixel_loads(shape: BlockShape, chunks: int, kernel_width: int) -> Any:
    """Device function: `chunks` of a warp's pixels into registers, zeros in the padding."""
    TM, CHUNKS, KW = shape.rows * 2, chunks, kernel_width

    @device_function
    def load_pixels(x, py, px, pa, first, vectors, channel_vectors, by_channels, w, registers):
        for c in range(CHUNKS):
            vector = i32(first + c * 4)
            tap = i32(divide(u32(vector), by_channels))
            within = i32(vector - tap * channel_vectors)
            ky = i32(tap // KW)
            kx = i32(tap - ky * KW)
            offset = i64(i32(ky * w.row_pitch + kx * w.pitch + within * 8)) * 2
            for m in range(TM):
                ok = u32(py[m] + ky) < u32(w.height) and u32(px[m] + kx) < u32(w.width) and vector < vectors
                v = load4_where(u64(pa[m] + u64(offset)) if ok else x, u32(1) if ok else u32(0))
                put4(v, registers, (c * TM + m) * 4)

    return load_pixels


def make_products(shape: BlockShape, chunks: int) -> Any:
    """Device function: adds pixels times filters to the warp's sums."""
    TM, TN, CHUNKS = shape.rows, shape.columns, chunks

    @device_function
    def multiply(a, b, acc):
        for c in range(CHUNKS):
            for m in range(TM):
                p = (c * TM + m) * 8
                for n in range(TN):
                    q, o = (c * TN + n) * 4, (m * TN + n) * 4
                    for half in range(0, 4, 2):
                        pixels = a[p + half], a[p + 4 + half], a[p + half + 1], a[p + 5 + half]
                        multiply_bf16(pixels, b[q + half], b[q + half + 1], acc, o)

    return multiply


def make_small_convolution(shape_numbers: tuple[int, ...], chunks: int, kernel_width: int, added: bool) -> Any:
    """The kernel. `chunks`: of each warp; `added`: a tensor of the output's shape is added to the sums."""
    shape = BlockShape(*shape_numbers)
    TM, TN, SL, BOTH = shape.rows, shape.columns, shape.slices, 2 * shape.rows
    ROWS, COLUMNS = shape.size
    NA, NB, NACC, INITIAL = chunks * TM * 8, chunks * TN * 4, TM * TN * 4, shape.rounds * 8
    find_windows, load_filters = make_window_finder(BOTH, 8, 2), make_filter_loads(shape, chunks)
    load_pixels, multiply = make_pixel_loads(shape, chunks, kernel_width), make_products(shape, chunks)
    load_bias, load_addend, store_sums, write_output = make_epilogue(shape, pixel_of_row)

    def small_convolution(
        x, weight, bias, out, addend, rows, columns, depth, vectors, channel_vectors, by_channels, windows, ldo, lda,
        activation,
    ):
        base = shared_address(cuda.shared.array(0, u8))
        tid = i32(cuda.threadIdx.x)
        lane, warp = i32(tid & 31), i32(tid >> 5)
        g, t = i32(lane >> 2), i32(lane & 3)
        slice_index, wn = i32(warp % SL), i32((warp // SL) * (TN * 8))
        bm, bn = i32(i32(cuda.blockIdx.x) * ROWS), i32(i32(cuda.blockIdx.y) * COLUMNS)
        first = i32(slice_index * (chunks * 4) + t)
        # Filters and biases, which no kernel of the graph writes, are loaded while the previous kernel still runs.
        b = cuda.local.array(NB, u32)
        load_filters(weight, i32(bn + wn + g), columns, depth, first, vectors, b)
        initial = cuda.local.array(INITIAL, f32)
        load_bias(tid, bias, weight, bn, columns, initial)
        py = cuda.local.array(BOTH, i32)
        px = cuda.local.array(BOTH, i32)
        pa = cuda.local.array(BOTH, u64)
        find_windows(x, i32(bm + g), rows, windows, windows.top, windows.left, py, px, pa)
        wait_for_previous()
        a = cuda.local.array(NA, u32)
        load_pixels(x, py, px, pa, first, vectors, channel_vectors, by_channels, windows, a)
        value = cuda.local.array(8, f32)
        if added:
            load_addend(tid, addend, lda, bn, columns, value, initial, (bm, rows))
        acc = cuda.local.array(NACC, f32)
        clear(acc)
        multiply(a, b, acc)
        store_sums(acc, base, slice_index, wn, g, t)
        cuda.syncthreads()  # the sums of all slices are stored
        write_output(tid, base, out, ldo, bn, columns, activation, value, initial, (bm, rows))

    return small_convolution
