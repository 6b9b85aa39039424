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
from core.gpu.ops.conv.operands import Taps, pack_forward
from core.ops.contract import Array

VECTOR: Final = 8
"""bf16 channels in 16 bytes."""


def pack_vectors(weights: Sequence[Array], size: int, backward: bool = False, columns: int = 0) -> Array:
    """Filters ``(channel blocks, taps, vectors, columns, 8)`` of indices, from OHWI ones; blocks of `size` bytes.

    Backward they are rotated, columns are the input's channels and blocks hold filters. The taps of several weights
    follow one another: a fire's 1x1 filters are a tenth tap. `columns` is at least the number of columns up to 8.
    """
    sides = [w[:, ::-1, ::-1].transpose(3, 1, 2, 0) if backward else w for w in weights]
    taps = np.concatenate([side.reshape(len(side), -1, side.shape[3]) for side in sides], 1)
    count, number, channels = taps.shape
    vectors, columns = size // 16, columns or -(-count // VECTOR) * VECTOR
    blocks = -(-channels // (vectors * VECTOR))
    padding = (0, columns - count), (0, 0), (0, blocks * vectors * VECTOR - channels)
    wide = np.pad(taps, padding, constant_values=-1).reshape(columns, number, blocks, vectors, VECTOR)
    return np.ascontiguousarray(wide.transpose(2, 1, 3, 0, 4), np.int32)


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
