"""1x1 expansion and the 3x3 depthwise convolution after it in one launch: 16 channels of some rows in shared memory.

A depthwise convolution mixes no channels, so a block needs only its own channels of the expansion.

    grid: (strips of `strip_rows` rows of out, channels / 16, images)

      x  --- mma.m16n8k16 --->  shared memory  --- 3x3 taps --->  out
      rows of the strip,        (pixels, 16 channels) bf16,        a thread has 8 channels of one
      one above and below       32 bytes a pixel                   output at a time

Shared memory: the expansion's pixels, 32 bytes each. Operands of the product go straight into registers, permuted as in
`conv.py`, all loads in flight; the filters of both convolutions before the previous kernel has ended.
Bytes: x once per 16 channels, from the L2 cache; out once; the expansion is never stored.
Floor: the latency of two loads and one barrier.
Source: MobileNetV2's inverted residual (arXiv 1801.04381); PTX ISA 8.x, 9.7.14 (mma).
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.arguments import SIZES, KernelSignature, divisions, ints, pitches, pointers
from core.gpu.compilation import ptx
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u8, u32, u64
from core.gpu.latency.block import load4_constant_where, load4_where, wait_for_previous
from core.gpu.parts.tile import multiply_bf16
from core.gpu.parts.vectors import PACK, UNPACK, activate, divide

SIGNATURE: Final = KernelSignature((
    *pointers(x="activations (N, height, width, C), bf16",
              weight="packed filters of the expansion (channels, depth), bf16", bias="its bias, float32, or 0",
              weight2="packed depthwise filters (9, channels), bf16", bias2="their bias, float32, or 0",
              out="activations (N, ho, wo, channels), bf16"),
    *ints(depth="elements of a packed filter of the expansion", vectors="vectors of a pixel of x: C / 8",
          channels="of the expansion and of out", strip_rows="rows of out of each block"),
    *SIZES,
    *divisions(columns="wo"),
    *pitches(ldx="x", ldo="out"),
    *ints(activation="of the expansion (`core.gpu.launch.RELU`)", activation2="of out"),
))  # fmt: skip

CHANNELS: Final = 16
"""Channels of a block: 32 bytes of each pixel in shared memory."""


def fragments(strip_rows: int, stride: int, height: int, width: int, warps: int) -> int:
    """Fragments of 16 pixels per warp, for blocks of `strip_rows` output rows of images of this height and width."""
    rows = min(stride * (strip_rows - 1) + 3, height)
    return -(-rows * width // (16 * warps))


def shared_bytes(tiles: int, warps: int) -> int:
    """The expansion's pixels, up to whole fragments."""
    return 16 * tiles * warps * 2 * CHANNELS


def make_fragments(tiles: int, chunks: int, warps: int) -> tuple[Any, Any]:
    """Device functions: a warp's pixels into registers; activated products with filters to shared memory."""

    @device_function
    def load_pixels(x, first, pixels, pitch, t, vectors, registers):
        for m in range(tiles):
            for h in range(2):
                p = i32(first + m * (16 * warps) + h * 8)
                for c in range(chunks):
                    ok = p < pixels and c * 4 + t < vectors
                    at = u64(x + u64((i64(p) * i64(pitch) + i64((c * 4 + t) * 8)) * 2))
                    v = load4_where(at if ok else x, u32(1) if ok else u32(0))
                    for i in range(4):
                        registers[((m * 2 + h) * chunks + c) * 4 + i] = v[i]

    @device_function
    def expand(a, b, base, first, t, biases, activation, acc):
        for m in range(tiles):
            for n in range(2):
                acc[0], acc[1] = biases[n * 2], biases[n * 2 + 1]
                acc[2], acc[3] = biases[n * 2], biases[n * 2 + 1]
                for c in range(chunks):
                    p, o, q = (m * 2 * chunks + c) * 4, ((m * 2 + 1) * chunks + c) * 4, (c * 2 + n) * 4
                    for half in range(0, 4, 2):
                        pixels = a[p + half], a[o + half], a[p + half + 1], a[o + half + 1]
                        multiply_bf16(pixels, b[q + half], b[q + half + 1], acc, 0)
                at = u32(base + u32((first + m * (16 * warps)) * 32 + n * 16 + t * 4))
                ptx.shared_store1(at, ptx.pack_bf16(activate(acc[0], activation), activate(acc[1], activation)))
                ptx.shared_store1(
                    u32(at + u32(256)), ptx.pack_bf16(activate(acc[2], activation), activate(acc[3], activation))
                )

    return load_pixels, expand


def make_constant_loads(chunks: int) -> Any:
    """Device function: filters and biases of both convolutions into registers."""

    @device_function
    def load_constants(
        weight, bias, weight2, bias2, first, side, depth, vectors, channels, g, t, b, biases, filters, start
    ):
        for c in range(chunks):
            for n in range(2):
                ok = c * 4 + t < vectors
                at = u64(weight + u64((i64(first + n * 8 + g) * i64(depth) + i64((c * 4 + t) * 8)) * 2))
                v = load4_constant_where(at if ok else weight, u32(1) if ok else u32(0))
                for i in range(4):
                    b[(c * 2 + n) * 4 + i] = v[i]
        for k in range(9):
            v = load4_constant_where(u64(weight2 + u64((i64(k * channels) + i64(side)) * 2)), u32(1))
            for i in range(4):
                filters[k * 4 + i] = v[i]
        for h in range(2):
            have, have2 = u32(1) if bias != u64(0) else u32(0), u32(1) if bias2 != u64(0) else u32(0)
            at = u64(bias + u64(i64(first + h * 8 + (t >> 1) * 4) * 4)) if bias != u64(0) else weight
            v = load4_constant_where(at, have)
            biases[h * 2] = ptx.bits_to_float(v[2] if t & 1 != 0 else v[0])
            biases[h * 2 + 1] = ptx.bits_to_float(v[3] if t & 1 != 0 else v[1])
            at = u64(bias2 + u64(i64(side + h * 4) * 4)) if bias2 != u64(0) else weight
            v = load4_constant_where(at, have2)
            for i in range(4):
                start[h * 4 + i] = ptx.bits_to_float(v[i])

    return load_constants


def make_filtering(stride: int) -> Any:
    """Device function: the 3x3 sums of eight channels at output (row, ox) from the pixels in shared memory."""
    unpack, S = UNPACK[2], stride

    @device_function
    def filter_pixel(base, row, ox, top, height, width, half, filters, start, value, filt, sums):
        for i in range(8):
            sums[i] = start[i]
        for k in range(9):
            y, xx = i32(row * S - 1 + k // 3), i32(ox * S - 1 + k % 3)
            ok = u32(y) < u32(height) and u32(xx) < u32(width)
            pixel = i32((y - top) * width + xx) if ok else i32(0)
            unpack(ptx.shared_load4(u32(base + u32(pixel * 32 + half * 16))), value)
            unpack((filters[k * 4], filters[k * 4 + 1], filters[k * 4 + 2], filters[k * 4 + 3]), filt)
            for i in range(8):
                sums[i] = f32(sums[i] + (f32(value[i] * filt[i]) if ok else f32(0.0)))

    return filter_pixel


def make_expand_depthwise(tiles: int, chunks: int, warps: int, stride: int) -> Any:
    """The kernel: `tiles` of 16 pixels a warp, sums over `chunks` of 32 channels of x."""
    load_pixels, expand = make_fragments(tiles, chunks, warps)
    load_constants, filter_pixel = make_constant_loads(chunks), make_filtering(stride)
    pack, S, TH = PACK[2], stride, 32 * warps
    NA, NB = tiles * 2 * chunks * 4, chunks * 8

    def expand_depthwise(
        x, weight, bias, weight2, bias2, out, depth, vectors, channels, strip_rows, height, width, ho, wo,
        by_columns, ldx, ldo, activation, activation2,
    ):
        base = ptx.shared_address(cuda.shared.array(0, u8))
        tid, image = i32(cuda.threadIdx.x), i32(cuda.blockIdx.z)
        lane, warp = i32(tid & 31), i32(tid >> 5)
        g, t = i32(lane >> 2), i32(lane & 3)
        row0, first = i32(i32(cuda.blockIdx.x) * strip_rows), i32(i32(cuda.blockIdx.y) * 16)
        last = i32(min(i32(row0 + strip_rows), ho))
        top = i32(max(i32(row0 * S - 1), i32(0)))
        pixels = i32(i32(min(i32((last - 1) * S + 2), height) - top) * width)
        b = cuda.local.array(NB, u32)
        biases = cuda.local.array(4, f32)
        filters = cuda.local.array(36, u32)
        start = cuda.local.array(8, f32)
        side = i32(first + (tid & 1) * 8)
        load_constants(
            weight, bias, weight2, bias2, first, side, depth, vectors, channels, g, t, b, biases, filters, start
        )  # fmt: skip
        wait_for_previous()  # the loads above overlap the previous kernel
        a = cuda.local.array(NA, u32)
        acc = cuda.local.array(4, f32)
        rows_of_x = u64(x + u64((i64(image) * i64(height) + i64(top)) * i64(width) * i64(ldx) * 2))
        load_pixels(rows_of_x, i32(warp * 16 + g), pixels, ldx, t, vectors, a)
        expand(a, b, base, i32(warp * 16 + g), t, biases, activation, acc)
        cuda.syncthreads()  # the expansion is in shared memory
        value = cuda.local.array(8, f32)
        filt = cuda.local.array(8, f32)
        sums = cuda.local.array(8, f32)
        for item in range(tid, i32((last - row0) * wo * 2), TH):
            down = i32(divide(u32(item >> 1), by_columns))
            ox = i32((item >> 1) - down * wo)
            filter_pixel(base, i32(row0 + down), ox, top, height, width, tid & 1, filters, start, value, filt, sums)
            for i in range(8):
                sums[i] = activate(sums[i], activation2)
            v = pack(sums)
            at = (i64(image) * i64(ho) + i64(row0 + down)) * i64(wo) + i64(ox)
            ptx.store4(u64(out + u64((at * i64(ldo) + i64(side)) * 2)), v[0], v[1], v[2], v[3])

    return expand_depthwise
