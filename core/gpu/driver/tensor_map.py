"""Tensor maps: how TMA sees a matrix or an activation tensor. A launch's argument, encoded by the driver when sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

from core.gpu.compilation.cuda import driver


@final
@dataclass(frozen=True, slots=True)
class TensorMap:
    """A row-major bf16 matrix whose rows are `pitch` elements apart, in TMA tiles of `tile_rows` x `tile_columns`.

    Address and pitch are multiples of 16 bytes. A tile's line of 32, 64 or 128 bytes is swizzled by as many.
    """

    address: int
    rows: int
    columns: int
    pitch: int
    tile_rows: int
    tile_columns: int

    def encode(self) -> Any:
        """The driver's answer: its status and the map of 128 bytes."""
        return _encode(self)


@final
@dataclass(frozen=True, slots=True)
class ActivationMap:
    """bf16 feature maps whose pixels are `pitch` elements apart, in TMA tiles of rows of one image.

    A tile has `tile_height` x `tile_width` pixels, `tile_channels` of each: a line, swizzled as in `TensorMap`.
    """

    address: int
    images: int
    height: int
    width: int
    channels: int
    pitch: int
    tile_height: int
    tile_width: int
    tile_channels: int

    def encode(self) -> Any:
        """The driver's answer: its status and the map of 128 bytes."""
        return _encode(self)


@lru_cache(maxsize=256)
def _encode(wanted: TensorMap | ActivationMap) -> Any:
    if isinstance(wanted, TensorMap):
        return _encode_tiled(
            wanted.address, (wanted.columns, wanted.rows), (wanted.pitch,), (wanted.tile_columns, wanted.tile_rows)
        )
    row = wanted.width * wanted.pitch
    return _encode_tiled(
        wanted.address, (wanted.channels, wanted.width, wanted.height, wanted.images),
        (wanted.pitch, row, wanted.height * row), (wanted.tile_channels, wanted.tile_width, wanted.tile_height, 1),
    )  # fmt: skip


def _encode_tiled(address: int, sizes: Sequence[int], pitches: Sequence[int], tile: Sequence[int]) -> Any:
    """Sizes, pitches and tile in elements, from the innermost dimension outwards."""
    long, short = driver.cuuint64_t, driver.cuuint32_t
    swizzle = getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{2 * tile[0]}B")
    return driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, len(sizes), address,
        [long(size) for size in sizes], [long(pitch * 2) for pitch in pitches],
        [short(size) for size in tile], [short(1)] * len(sizes),
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )  # fmt: skip
