"""Convolution of one or two images as an implicit product: all loads of a block in flight at once, split-K.

Computes ``activation(conv(x) + bias + other)`` in bf16 with float32 sums. Such layers are bound by the latency of one
load after another, not by bytes or products, so nothing goes through shared memory but the sums.

    block: 16 `rows` pixels x 8 `columns` `across` filters          warps: across x slices
                  filters
              +------+------+
      pixels  | warp | warp |   each slice of warps has a part of the depth (taps x channels) and loads all of it,
              | 0..  | ..   |   pixels and filters, before its first mma.m16n8k16
              +------+------+

Shared memory: the slices' sums (`outputs.py`). Registers hold both operands (`block.BlockShape.suits`).
Bytes: x, filters and out once from memory; every block of filters reads the pixels again from the L2 cache.
Floor: the latency of two loads and one barrier.
Source: NVIDIA CUTLASS, sliced-K; PTX ISA 8.x, 9.7.14 (mma).
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, types
from core.gpu.compilation.ptx import shared_address
from core.gpu.latency.block import BlockShape
from core.gpu.latency.operands import (
    make_filter_loads,
    make_pixel_loads,
    make_pooled_loads,
    make_products,
    make_window_finder,
)
from core.gpu.latency.outputs import make_outputs
from core.gpu.latency.pdl import wait_for_previous
from core.gpu.launch import INTEGER, POINTER, Argument, KernelSignature, divisions, pitches
from core.gpu.parts.epilogue import pixel_of_row

i32, u64, f32 = types.int32, types.uint64, types.float32

SIGNATURE: Final = KernelSignature((
    Argument("x", POINTER, "activations (N, height, width, C), bf16"),
    Argument("weight", POINTER, "packed filters (columns, depth), bf16"),
    Argument("bias", POINTER, "float32 (columns), or 0"),
    Argument("out", POINTER, "activations (N, ho, wo, columns), bf16"),
    Argument("other", POINTER, "tensor of the shape of out that is added to the sums, or 0"),
    Argument("rows", INTEGER, "pixels of out in all images"),
    Argument("columns", INTEGER, "filters, up to a multiple of 8"),
    Argument("depth", INTEGER, "elements of a packed filter"),
    Argument("vectors", INTEGER, "vectors of a sum: taps x channels / 8"),
    *divisions(area="`area`", columns="`wo`", channels="`channel_vectors`"),
    Argument("area", INTEGER, "pixels of an image of out"),
    Argument("wo", INTEGER, "columns of out"),
    Argument("channel_vectors", INTEGER, "vectors of a pixel of x"),
    Argument("height", INTEGER, "rows of x"),
    Argument("width", INTEGER, "columns of x"),
    *pitches(ldx="x"),
    Argument("row_pitch", INTEGER, "elements from a row of x to the next"),
    Argument("image_pitch", INTEGER, "elements from an image of x to the next"),
    Argument("stride_y", INTEGER, "rows between windows"),
    Argument("stride_x", INTEGER, "columns between windows"),
    Argument("top", INTEGER, "padding above"),
    Argument("left", INTEGER, "padding on the left"),
    *pitches(ldo="out", lda="`other`"),
    Argument("activation", INTEGER, "of out (`core.gpu.launch.RELU`)"),
))  # fmt: skip


def make_small_convolution(
    numbers: tuple[int, ...], turns: int, kernel_width: int, added: bool, pooled: bool = False
) -> Any:
    """The kernel. `turns`: chunks of a warp; `added`: a tensor of the output's shape is added to the sums.

    `pooled`: a 1x1 convolution of a max pool's output that reads the pool's input; stride and padding are the pool's.
    """
    shape = BlockShape(*numbers)
    TM, TN, SL, BOTH = shape.rows, shape.columns, shape.slices, 2 * shape.rows
    ROWS, COLUMNS = shape.size
    NA, NB, NACC, INITIAL = turns * TM * 8, turns * TN * 4, TM * TN * 4, shape.rounds * 8
    find_windows, load_filters = make_window_finder(shape), make_filter_loads(shape, turns)
    load_pixels = make_pooled_loads(shape, turns) if pooled else make_pixel_loads(shape, turns, kernel_width)
    multiply, (begin_outputs, add, stage, write) = make_products(shape, turns), make_outputs(shape, pixel_of_row)

    def small_convolution(
        x, weight, bias, out, other, rows, columns, depth, vectors,
        by_area_mul, by_area_shift, by_columns_mul, by_columns_shift, by_channels_mul, by_channels_shift,
        area, wo, channel_vectors, height, width, ldx, row_pitch, image_pitch, stride_y, stride_x, top, left, ldo, lda,
        activation,
    ):
        shared = cuda.shared.array(0, dtype=types.uint8)
        base = shared_address(shared)
        tid = i32(cuda.threadIdx.x)
        lane, warp = i32(tid & 31), i32(tid >> 5)
        g, t = i32(lane >> 2), i32(lane & 3)
        mine, wn = i32(warp % SL), i32((warp // SL) * (TN * 8))
        bm, bn = i32(i32(cuda.blockIdx.x) * ROWS), i32(i32(cuda.blockIdx.y) * COLUMNS)
        begin = i32(mine * (turns * 4) + t)
        b = cuda.local.array(NB, dtype=types.uint32)
        load_filters(weight, i32(bn + wn + g), columns, depth, begin, vectors, b)
        initial = cuda.local.array(INITIAL, dtype=types.float32)
        begin_outputs(tid, bias, weight, bn, columns, initial)
        py = cuda.local.array(BOTH, dtype=types.int32)
        px = cuda.local.array(BOTH, dtype=types.int32)
        pa = cuda.local.array(BOTH, dtype=types.uint64)
        find_windows(
            x, i32(bm + g), rows, by_area_mul, by_area_shift, by_columns_mul, by_columns_shift, area, wo,
            (stride_y, stride_x, top, left), ldx, row_pitch, image_pitch, py, px, pa,
        )  # fmt: skip
        wait_for_previous()  # above: filters and biases, which no kernel of the graph writes
        a = cuda.local.array(NA, dtype=types.uint32)
        load_pixels(
            x, py, px, pa, begin, vectors, by_channels_mul, by_channels_shift, channel_vectors, height, width,
            row_pitch, ldx, a,
        )  # fmt: skip
        value = cuda.local.array(8, dtype=types.float32)
        if added:
            add(tid, other, lda, bn, columns, value, initial, (bm, rows))
        acc = cuda.local.array(NACC, dtype=types.float32)
        for i in range(NACC):
            acc[i] = f32(0.0)
        multiply(a, b, acc)
        stage(acc, base, mine, wn, g, t)
        cuda.syncthreads()  # the sums of all slices are stored
        write(tid, base, out, ldo, bn, columns, activation, value, initial, (bm, rows))

    return small_convolution
