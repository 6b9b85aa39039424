"""Outputs of the small-batch convolutions: sums of all slices meet in shared memory and are added in a fixed order.

Shared memory: ``(slices, pixels, filters + PADDING)`` float32. A thread writes vectors of eight channels; bias and what
is added to the sums are loaded for them while the operands are still in flight.
"""

from __future__ import annotations

from typing import Any

from core.gpu.compilation.cuda import device_function, types
from core.gpu.compilation.ptx import bits_to_float, float_to_bits, shared_load4, shared_store2, store4
from core.gpu.latency.block import PADDING, VECTOR, BlockShape
from core.gpu.latency.pdl import load4_constant_where, load4_where
from core.gpu.parts.vectors import PACK, UNPACK, activate

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32


def make_outputs(shape: BlockShape, place: Any) -> tuple[Any, Any, Any, Any]:
    """Device functions for a thread's vectors of the output: load bias; add another tensor; store the sums; write.

    `place(row, about)` is a device function that gives the pixel of a block's row, or -1.
    """
    (ROWS, COLUMNS), (TM, TN), TH, SL = shape.size, (shape.rows, shape.columns), shape.threads, shape.slices
    VECTORS, ROW, ROUNDS, pack, unpack = COLUMNS // VECTOR, 4 * (COLUMNS + PADDING), shape.rounds, PACK[2], UNPACK[2]

    @device_function
    def begin(tid, bias, weight, first, limit, initial):
        for j in range(ROUNDS):
            part = i32((tid + j * TH) % VECTORS)
            ok = bias != u64(0) and first + part * 8 < limit
            for h in range(2):
                at = u64(bias + u64(i64(first + part * 8 + h * 4) * 4))
                v = load4_constant_where(at if ok else weight, u32(1) if ok else u32(0))
                for i in range(4):
                    initial[j * 8 + h * 4 + i] = bits_to_float(v[i])

    @device_function
    def add(tid, other, pitch, bn, columns, value, initial, about):
        for j in range(ROUNDS):
            r, part = i32((tid + j * TH) // VECTORS), i32((tid + j * TH) % VECTORS)
            pixel = place(r, about) if r < ROWS and bn + part * 8 < columns else i32(-1)
            at = u64(other + u64((i64(pixel) * i64(pitch) + i64(bn + part * 8)) * 2))
            unpack(load4_where(at if pixel >= 0 else other, u32(1) if pixel >= 0 else u32(0)), value)
            for i in range(8):
                initial[j * 8 + i] = f32(initial[j * 8 + i] + value[i])

    @device_function
    def stage(acc, base, slice, column, g, t):
        for m in range(TM):
            for n in range(TN):
                o = (m * TN + n) * 4
                at = u32(base + u32((slice * ROWS + m * 16 + g) * ROW + (column + n * 8 + t * 2) * 4))
                shared_store2(at, float_to_bits(acc[o]), float_to_bits(acc[o + 1]))
                shared_store2(u32(at + u32(8 * ROW)), float_to_bits(acc[o + 2]), float_to_bits(acc[o + 3]))

    @device_function
    def write(tid, base, out, pitch, bn, columns, activation, value, initial, about):
        for j in range(ROUNDS):
            r, part = i32((tid + j * TH) // VECTORS), i32((tid + j * TH) % VECTORS)
            pixel = place(r, about) if r < ROWS and bn + part * 8 < columns else i32(-1)
            if pixel >= 0:
                for i in range(8):
                    value[i] = initial[j * 8 + i]
                for s in range(SL):
                    at = u32(base + u32((s * ROWS + r) * ROW + part * 32))
                    low, high = shared_load4(at), shared_load4(u32(at + u32(16)))
                    for i in range(4):
                        value[i] = f32(value[i] + bits_to_float(low[i]))
                        value[i + 4] = f32(value[i + 4] + bits_to_float(high[i]))
                for i in range(8):
                    value[i] = activate(value[i], activation)
                v = pack(value)
                store4(u64(out + u64((i64(pixel) * i64(pitch) + i64(bn + part * 8)) * 2)), v[0], v[1], v[2], v[3])

    return begin, add, stage, write
