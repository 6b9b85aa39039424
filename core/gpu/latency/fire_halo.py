"""Both expand halves of a fire for one or two images: each pixel once in shared memory, sliced-K.

Nine taps straight from global memory would fetch every pixel nine times from the L2 cache, which is what the 3x3 layers
of one image wait for. Pixels are numbered along rows of width + 1 and images of height + 1, so that borders are zero
pixels and the nine taps are constant offsets. Warps hold their filters in registers.

    block: 16 `rows` pixel numbers x 8 `columns` `across` filters, `slices` warps split the depth (`block.BlockShape`)

    shared memory: (vectors of a pixel, vector pitch) x 16 bytes          later: the sums of all slices
      vector 0: | number -w-2 | ... | number ROWS+w+1 | pad |     the vector pitch is 2 more than a multiple of 8:
      vector 1: | ...                                      |     eight lanes read from all banks

A block of the first `columns1` filters computes the 1x1 half: only the centre tap.
Bytes: x, filters and out once. Floor: the latency of one load, one copy to shared memory and three barriers.
Source: NVIDIA CUTLASS, sliced-K; PTX ISA 8.x, 9.7.14 (mma).
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.arguments import ACTIVATION, Group, KernelSignature, divisions, ints, pitches, pointers
from core.gpu.compilation import ptx
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u8, u32, u64
from core.gpu.latency.block import BlockShape, make_epilogue, make_filter_loads, wait_for_previous
from core.gpu.parts.epilogue import pixel_of_number
from core.gpu.parts.tile import multiply_bf16
from core.gpu.parts.vectors import clear, divide

NUMBERING: Final = Group("numbering", (
    *divisions(numbers="numbers of an image, (height + 1) (width + 1)", columns="width + 1",
               channels="`channel_vectors`"),
    *ints(height="rows of x and out", width="columns of x and out", channel_vectors="vectors of a pixel of x",
          vector_pitch="pixels from one vector to the next in shared memory"),
))  # fmt: skip

SIGNATURE: Final = KernelSignature((
    *pointers(x="activations (N, height, width, C), bf16",
              weight="packed filters of the 3x3 half (columns - columns1, depth), bf16", bias="float32, or 0",
              out="activations (N, height, width, columns), bf16",
              weight1="packed filters of the 1x1 half (columns1, depth1)", bias1="its bias, or 0"),
    *ints(columns1="filters of the 1x1 half", depth1="elements of one of its packed filters",
          limit="pixel numbers in all", columns="filters of both halves", depth="elements of a packed filter",
          vectors="vectors of a sum: 9 x `channel_vectors`"),
    NUMBERING,
    *pitches(ldx="x", ldo="out"),
    ACTIVATION,
))  # fmt: skip

OTHER_REGISTERS: Final = 80
"""Registers of a thread that hold neither filters nor sums."""


def fits(shape: BlockShape, vectors: int) -> bool:
    """Whether the filters for a sum of so many vectors, and the sums, fit into the registers."""
    return shape.has_registers(4 * shape.columns * (shape.chunks(vectors) + shape.rows) + OTHER_REGISTERS)


def vector_pitch_of(shape: BlockShape, width: int) -> int:
    """Pixels of a block with those around them; 2 more than a multiple of 8, against bank conflicts."""
    return -(-(shape.size[0] + 2 * (width + 2) - 2) // 8) * 8 + 2


def shared_bytes(shape: BlockShape, width: int, vectors: int) -> int:
    """The pixels, so many vectors of 16 bytes each; later the sums."""
    return max(16 * vectors * vector_pitch_of(shape, width), shape.shared)


def make_tap_products(shape: BlockShape, chunks: int) -> tuple[Any, Any]:
    """Device functions: offsets of a lane's chunks from a pixel; pixels times filters, added to the sums."""
    TM, TN = shape.rows, shape.columns

    @device_function
    def find_taps(first, vectors, centre, numbering, offsets):
        for c in range(chunks):
            vector = i32(first + c * 4) if first + c * 4 < vectors else i32(0)
            tap = i32(4) if centre else i32(divide(u32(vector), numbering.by_channels))
            within = vector if centre else i32(vector - tap * numbering.channel_vectors)
            row = within * numbering.vector_pitch + (tap // 3) * (numbering.width + 1)
            offsets[c] = i32((row + tap % 3) * 16)

    @device_function
    def multiply(pixels, offsets, b, acc):
        for c in range(chunks):
            for m in range(TM):
                at = u32(pixels + u32(offsets[c] + m * 256))
                low, high = ptx.shared_load4(at), ptx.shared_load4(u32(at + u32(128)))
                for n in range(TN):
                    q, o = (c * TN + n) * 4, (m * TN + n) * 4
                    multiply_bf16((low[0], high[0], low[1], high[1]), b[q], b[q + 1], acc, o)
                    multiply_bf16((low[2], high[2], low[3], high[3]), b[q + 2], b[q + 3], acc, o)

    return find_taps, multiply


def make_fire_halo(numbers: tuple[int, ...], chunks: int) -> Any:
    """The kernel, in bf16. `chunks`: of each warp."""
    shape = BlockShape(*numbers)
    TN, SL, TH, (ROWS, COLUMNS) = shape.columns, shape.slices, shape.threads, shape.size
    NB, NACC, INITIAL = chunks * TN * 4, shape.rows * TN * 4, shape.rounds * 8
    load_filters, (find_taps, multiply) = make_filter_loads(shape, chunks), make_tap_products(shape, chunks)
    load_bias, _, store_sums, write_output = make_epilogue(shape, pixel_of_number)
    wait = ptx.WAIT_COPIES[0]

    @device_function
    def copy_pixels(to, x, tid, count, numbering, pitch, geometry):
        for i in range(tid, count * numbering.channel_vectors, TH):
            r = i32(divide(u32(i), numbering.by_channels))
            vector, pixel = i32(i - r * numbering.channel_vectors), pixel_of_number(i32(r - geometry[3] - 2), geometry)
            at = u64(x + u64((i64(pixel) * i64(pitch) + i64(vector * 8)) * 2))
            place = u32(to + u32((vector * numbering.vector_pitch + r) * 16))
            ptx.copy_async16(place, at if pixel >= 0 else x, u32(16) if pixel >= 0 else u32(0))
        ptx.commit_copies()

    def fire_halo(
        x, weight, bias, out, weight1, bias1, columns1, depth1, limit, columns, depth, vectors, numbering, ldx, ldo,
        activation,
    ):
        base = ptx.shared_address(cuda.shared.array(0, u8))
        tid = i32(cuda.threadIdx.x)
        lane, warp = i32(tid & 31), i32(tid >> 5)
        g, t = i32(lane >> 2), i32(lane & 3)
        slice_index, wn = i32(warp % SL), i32((warp // SL) * (TN * 8))
        bm, bn = i32(i32(cuda.blockIdx.x) * ROWS), i32(i32(cuda.blockIdx.y) * COLUMNS)
        centre = bn < columns1
        first, last = (i32(bn), i32(columns1)) if centre else (i32(bn - columns1), i32(columns - columns1))
        if centre:
            weight, bias, depth, vectors = weight1, bias1, depth1, numbering.channel_vectors
        begin = i32(slice_index * (chunks * 4) + t)
        b = cuda.local.array(NB, u32)
        load_filters(weight, i32(first + wn + g), last, depth, begin, vectors, b)
        initial = cuda.local.array(INITIAL, f32)
        load_bias(tid, bias, weight, first, last, initial)
        offsets = cuda.local.array(chunks, i32)
        find_taps(begin, vectors, centre, numbering, offsets)
        width = numbering.width
        geometry = (bm, limit, numbering.height, width, numbering.by_numbers, numbering.by_columns)
        acc = cuda.local.array(NACC, f32)
        clear(acc)
        wait_for_previous()  # the loads above overlap the previous kernel
        copy_pixels(base, x, tid, i32(ROWS + 2 * (width + 2)), numbering, ldx, geometry)
        wait()
        cuda.syncthreads()  # the pixels are in shared memory
        multiply(u32(base + u32(g * 16)), offsets, b, acc)
        cuda.syncthreads()  # all warps have read the pixels: the sums replace them
        store_sums(acc, base, slice_index, wn, g, t)
        cuda.syncthreads()  # the sums of all slices are stored
        value = cuda.local.array(8, f32)
        write_output(tid, base, out, ldo, bn, columns, activation, value, initial, geometry)

    return fire_halo
