"""Filters as the kernels of this package read them: packed on the host so that a copy to shared memory is contiguous.

A vector is 8 bf16 channels of a filter, 16 bytes: one row of a core matrix of `wgmma`. Vectors of all columns (filters,
or channels of the input in an input gradient) follow one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from core.gpu.compilation.cuda import device_function, i32, i64, u32, u64
from core.gpu.compilation.ptx import copy_async16
from core.gpu.ops.conv.packing import Taps, pack_forward
from core.ops.contract import Array

VECTOR: Final = 8
"""bf16 channels in 16 bytes."""


def pack_vectors(weights: Sequence[Array], size: int, backward: bool = False, columns: int = 0) -> Array:
    """Filters ``(channel blocks, taps, vectors, columns, 8)`` of indices, from OHWI ones; blocks of `size` bytes.

    Backward they are rotated, columns are the input's channels and blocks hold filters. The taps of several weights
    follow one another: a fire's 1x1 filters are a tenth tap. `columns` is at least the number of columns up to 8.
    """
    block = size // 2
    sides = [w[:, ::-1, ::-1].transpose(3, 1, 2, 0) if backward else w for w in weights]
    counts, blocks = [side.shape[1] * side.shape[2] for side in sides], -(-sides[0].shape[3] // block)
    columns = columns or -(-len(sides[0]) // VECTOR) * VECTOR
    packed = np.full((blocks, sum(counts), block // VECTOR, columns, VECTOR), -1, np.int32)
    for i, side in enumerate(sides):
        first, count, taps, channels = sum(counts[:i]), len(side), counts[i], side.shape[3]
        wide = np.full((count, taps, blocks * block), -1, np.int32)
        wide[:, :, :channels] = side.reshape(count, taps, channels)
        vectors = wide.reshape(count, taps, blocks, block // VECTOR, VECTOR)
        packed[:, first : first + taps, :, :count] = vectors.transpose(2, 1, 3, 0, 4)
    return packed


def pack_image(weight: Array, taps: Taps) -> Array:
    """Filters of the image's convolution ``(vectors, filters, 8)`` of indices, from OHWI ones."""
    rows = pack_forward(weight, taps, 2)[:, : taps.total]
    return np.ascontiguousarray(rows.reshape(len(rows), -1, VECTOR).transpose(1, 0, 2))


def make_filter_loader(vectors: int, columns: int, threads: int) -> Any:
    """Device function: start the copies of a block's `columns` of so many vectors; `first`: its first of `total`."""

    @device_function
    def load_filters(to, weight, first, total, tid):
        for i in range(tid, vectors * columns, threads):
            vector, f = i32(i // columns), i32(i % columns)
            copy_async16(u32(to + u32(i * 16)), u64(weight + u64(i64(vector * total + first + f) * 16)), u32(16))

    return load_filters
