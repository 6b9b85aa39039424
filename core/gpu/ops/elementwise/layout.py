"""Between plain float32 arrays ``(pixels, channels)`` and the fast plan's pixels, padded to 16 bytes, perhaps bf16."""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, types
from core.gpu.compilation.ptx import load4, load_float, store4, store_float
from core.gpu.launch import DIVISOR, INTEGER, POINTER, Argument, KernelSignature
from core.gpu.parts.vectors import PACK, UNPACK, find_vector

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

LAYOUT: Final = KernelSignature((
    Argument("source", POINTER, "array to read"),
    Argument("target", POINTER, "array to write"),
    Argument("total", INTEGER, "vectors (of 16 bytes) of the padded array, one a thread"),
    Argument("lanes", INTEGER, "vectors a pixel"),
    Argument("by_lanes", DIVISOR, "division by `lanes`"),
    Argument("channels", INTEGER, "channels of the plain array"),
))  # fmt: skip


def make_spread(element: int) -> Any:
    """One lane 16 bytes of the padded target; channels that are not there become zero."""
    pack, VEC = PACK[element], 16 // element

    def spread(source, target, total, lanes, by_lanes_mul, by_lanes_shift, channels):
        at = i32(cuda.grid(1))
        if at >= total:
            return
        pixel, part = find_vector(at, lanes, by_lanes_mul, by_lanes_shift)
        first = i32(part * VEC)
        values = cuda.local.array(VEC, dtype=types.float32)
        for i in range(VEC):
            values[i] = f32(0.0)
            if first + i < channels:
                values[i] = load_float(u64(source + u64((i64(pixel) * channels + first + i) * 4)))
        v = pack(values)
        store4(u64(target + u64(i64(at) * 16)), v[0], v[1], v[2], v[3])

    return spread


def make_gather(element: int) -> Any:
    """The other way: one lane 16 bytes of the padded source."""
    unpack, VEC = UNPACK[element], 16 // element

    def gather(source, target, total, lanes, by_lanes_mul, by_lanes_shift, channels):
        at = i32(cuda.grid(1))
        if at >= total:
            return
        pixel, part = find_vector(at, lanes, by_lanes_mul, by_lanes_shift)
        first = i32(part * VEC)
        values = cuda.local.array(VEC, dtype=types.float32)
        unpack(load4(u64(source + u64(i64(at) * 16))), values)
        for i in range(VEC):
            if first + i < channels:
                store_float(u64(target + u64((i64(pixel) * channels + first + i) * 4)), values[i])

    return gather
