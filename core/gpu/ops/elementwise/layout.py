"""Copies between plain float32 arrays ``(pixels, channels)`` and a plan's layout: padded to 16 bytes, perhaps bf16."""

from __future__ import annotations

from typing import Any, Final

from core.gpu.arguments import VECTORS, KernelSignature, ints, pointers
from core.gpu.compilation.cuda import cuda, f32, i32, i64, u64
from core.gpu.compilation.ptx import load4, load_float, store4, store_float
from core.gpu.parts.vectors import PACK, UNPACK, find_vector

LAYOUT: Final = KernelSignature((
    *pointers(source="array to read", target="array to write; the padded one has the vectors"),
    *VECTORS,
    *ints(channels="channels of the plain array"),
))  # fmt: skip


def make_layout(element: int, pads: bool) -> Any:
    """The kernel, one thread per vector: from the plain to the padded array, or back; extra channels become zero."""
    pack, unpack, VEC = PACK[element], UNPACK[element], 16 // element

    def layout(source, target, total, vectors, by_vectors, channels):
        at = i32(cuda.grid(1))
        if at >= total:
            return
        pixel, part = find_vector(at, vectors, by_vectors)
        first = i32(part * VEC)
        values = cuda.local.array(VEC, f32)
        if pads:
            for i in range(VEC):
                values[i] = f32(0.0)
                if first + i < channels:
                    values[i] = load_float(u64(source + u64((i64(pixel) * channels + first + i) * 4)))
            v = pack(values)
            store4(u64(target + u64(i64(at) * 16)), v[0], v[1], v[2], v[3])
        else:
            unpack(load4(u64(source + u64(i64(at) * 16))), values)
            for i in range(VEC):
                if first + i < channels:
                    store_float(u64(target + u64((i64(pixel) * channels + first + i) * 4)), values[i])

    return layout
