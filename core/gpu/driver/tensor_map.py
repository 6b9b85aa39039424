"""Tensor maps, which describe a matrix or activation tensor to TMA: arguments of a launch, encoded by the driver."""

from __future__ import annotations

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
        """The driver's status and the map of 128 bytes."""
        return _encode(
            self.address, (self.columns, self.rows), (self.pitch,), (self.tile_columns, self.tile_rows)
        )  # fmt: skip


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
        """The driver's status and the map of 128 bytes."""
        row = self.width * self.pitch
        return _encode(
            self.address, (self.channels, self.width, self.height, self.images),
            (self.pitch, row, self.height * row), (self.tile_channels, self.tile_width, self.tile_height, 1),
        )  # fmt: skip


@lru_cache(maxsize=256)
def _encode(address: int, sizes: tuple[int, ...], pitches: tuple[int, ...], tile: tuple[int, ...]) -> Any:
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
