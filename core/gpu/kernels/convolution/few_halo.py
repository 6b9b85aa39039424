"""3x3 convolution of few pixels, both halves of a fire too: filters in registers, each pixel once in shared memory.

A tap at a time every pixel would come nine times from the second-level cache, which is what one photo's 3x3 layers
wait for. As in `ops.conv.halo` pixels are numbered along rows of width + 1, so that taps are constant offsets; as in
`few_pixels` all filters of a warp are loaded at once, before the kernel in front has ended, and the warps share the
sum's depth. Sixteen bytes of a pixel lie together, pixels behind each other: eight lanes read from all banks.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import (
    WAIT_COPIES,
    commit_copies,
    copy_async16,
    mma_bf16,
    shared_address,
    shared_load4,
)
from core.gpu.kernels.convolution.few_pixels import Few, make_loads, make_outputs
from core.gpu.kernels.parts.early_start import wait_for_previous
from core.gpu.kernels.parts.fragments import divide
from core.gpu.kernels.parts.pixels import pixel_of_number

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

ARGUMENTS: Final = (
    *(types.uint64,) * 4,  # x, packed filters, bias (0: none), out
    *(types.uint64,) * 2,  # packed filters and bias of a fire's 1x1 half, the first columns
    *(types.int32,) * 2,  # its columns (0: none), its packed row length
    *(types.int32,) * 4,  # pixel numbers in all, columns, packed row length, parts of the sum
    *(types.uint32,) * 6,  # fast division by numbers a photo, by width + 1, by parts of a pixel
    *(types.int32,) * 5,  # height, width, parts of a pixel, room for so many pixels, pixel pitch of x
    *(types.int32,) * 2,  # pixel pitch of out, activation
)


REGISTERS, MOST_REGISTERS, BESIDE = 65536, 230, 80
"""Registers of a multiprocessor, of a thread at most, and those of a thread that hold neither filters nor sums."""


def suits(shape: Few, parts: int) -> bool:
    """Whether the filters for a sum of so many parts, and the sums, fit into the registers."""
    registers = 4 * shape.columns * (shape.turns(parts) + shape.rows) + BESIDE
    return registers <= MOST_REGISTERS and registers * shape.threads <= REGISTERS


def room_for(shape: Few, width: int) -> int:
    """Pixels of a block with those around them; 2 more than a multiple of 8, against bank conflicts."""
    return -(-(shape.size[0] + 2 * (width + 2) - 2) // 8) * 8 + 2


def shared_bytes(shape: Few, width: int, parts: int) -> int:
    """The pixels, `parts` of 16 bytes each; later the sums."""
    return max(16 * parts * room_for(shape, width), shape.shared)


def make_tap_products(shape: Few, turns: int) -> tuple[Any, Any]:
    """Device functions: where each chunk of a lane lies behind a pixel; and pixels times filters, added to the sums."""
    TM, TN = shape.rows, shape.columns

    @device_function
    def find_taps(first, parts, centre, c_mul, c_shift, c_parts, width, room, places):
        for c in range(turns):
            part = i32(first + c * 4) if first + c * 4 < parts else i32(0)
            tap = i32(4) if centre else i32(divide(u32(part), c_mul, c_shift))
            within = part if centre else i32(part - tap * c_parts)
            places[c] = i32((within * room + (tap // 3) * (width + 1) + tap % 3) * 16)

    @device_function
    def multiply(pixels, places, b, acc):
        for c in range(turns):
            for m in range(TM):
                at = u32(pixels + u32(places[c] + m * 256))
                low, high = shared_load4(at), shared_load4(u32(at + u32(128)))
                for n in range(TN):
                    q, o = (c * TN + n) * 4, (m * TN + n) * 4
                    r = mma_bf16(
                        low[0], high[0], low[1], high[1], b[q], b[q + 1], acc[o], acc[o + 1], acc[o + 2], acc[o + 3]
                    )
                    r = mma_bf16(low[2], high[2], low[3], high[3], b[q + 2], b[q + 3], r[0], r[1], r[2], r[3])
                    acc[o], acc[o + 1], acc[o + 2], acc[o + 3] = r[0], r[1], r[2], r[3]

    return find_taps, multiply


def make_few_halo(numbers: tuple[int, ...], turns: int) -> Any:
    """The kernel, in bf16. `turns`: chunks of a warp."""
    shape = Few(*numbers)
    TN, SL, TH, (ROWS, COLUMNS) = shape.columns, shape.slices, shape.threads, shape.size
    NB, NACC, NOTED = turns * TN * 4, shape.rows * TN * 4, shape.rounds * 8
    load_filters, (find_taps, multiply) = make_loads(shape, turns), make_tap_products(shape, turns)
    begin_outputs, _, stage, write = make_outputs(shape, pixel_of_number)
    wait = WAIT_COPIES[0]

    @device_function
    def send_pixels(to, x, tid, count, c_mul, c_shift, c_parts, room, pitch, about):
        for i in range(tid, count * c_parts, TH):
            r = i32(divide(u32(i), c_mul, c_shift))
            part, pixel = i32(i - r * c_parts), pixel_of_number(i32(r - about[3] - 2), about)
            at = u64(x + u64((i64(pixel) * i64(pitch) + i64(part * 8)) * 2))
            copy_async16(
                u32(to + u32((part * room + r) * 16)), at if pixel >= 0 else x, u32(16) if pixel >= 0 else u32(0)
            )
        commit_copies()

    def few_halo(
        x, weight, bias, out, weight1, bias1, columns1, depth1, limit, columns, depth, parts,
        hw_mul, hw_shift, w_mul, w_shift, c_mul, c_shift, height, width, c_parts, room, pitch, ldc, activation,
    ):
        shared = cuda.shared.array(0, dtype=types.uint8)
        base = shared_address(shared)
        tid = i32(cuda.threadIdx.x)
        lane, warp = i32(tid & 31), i32(tid >> 5)
        g, t = i32(lane >> 2), i32(lane & 3)
        mine, wn = i32(warp % SL), i32((warp // SL) * (TN * 8))
        bm, bn = i32(i32(cuda.blockIdx.x) * ROWS), i32(i32(cuda.blockIdx.y) * COLUMNS)
        first, last, centre = i32(bn), i32(columns), bn < columns1
        if centre:  # the 1x1 half of a fire's expand
            weight, bias, depth, parts, last = weight1, bias1, depth1, c_parts, i32(columns1)
        elif columns1 > 0:
            first, last = i32(bn - columns1), i32(columns - columns1)
        begin = i32(mine * (turns * 4) + t)
        b = cuda.local.array(NB, dtype=types.uint32)
        load_filters(weight, i32(first + wn + g), last, depth, begin, parts, b)
        noted = cuda.local.array(NOTED, dtype=types.float32)
        begin_outputs(tid, bias, weight, first, last, noted)
        places = cuda.local.array(turns, dtype=types.int32)
        find_taps(begin, parts, centre, c_mul, c_shift, c_parts, width, room, places)
        about = (bm, limit, height, width, hw_mul, hw_shift, w_mul, w_shift)
        acc = cuda.local.array(NACC, dtype=types.float32)
        for i in range(NACC):
            acc[i] = f32(0.0)
        wait_for_previous()
        send_pixels(base, x, tid, i32(ROWS + 2 * (width + 2)), c_mul, c_shift, c_parts, room, pitch, about)
        wait()
        cuda.syncthreads()
        multiply(u32(base + u32(g * 16)), places, b, acc)
        cuda.syncthreads()
        stage(acc, base, mine, wn, g, t)
        cuda.syncthreads()
        value = cuda.local.array(8, dtype=types.float32)
        write(tid, base, out, ldc, bn, columns, activation, value, noted, about)

    return few_halo
