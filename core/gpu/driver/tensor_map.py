"""How Hopper's copy engine sees a matrix or photos: a launch's argument, which the driver encodes as it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

from core.gpu.compilation.cuda import driver


@final
@dataclass(frozen=True, slots=True)
class TensorMap:
    """A row-major bf16 matrix whose rows are `pitch` elements apart, in boxes of `box_rows` x `box_columns`.

    Address and pitch are multiples of 16 bytes. A box's line of 32, 64 or 128 bytes is swizzled by as many.
    """

    address: int
    rows: int
    columns: int
    pitch: int
    box_rows: int
    box_columns: int

    def encode(self) -> Any:
        """The driver's answer: its status and the map of 128 bytes."""
        return _encode(self)


@final
@dataclass(frozen=True, slots=True)
class PhotoMap:
    """bf16 photos whose pixels are `pitch` elements apart, in boxes of `box_height` x `box_width` pixels of one photo.

    A box has `box_channels` of a pixel, a line that is swizzled as in `TensorMap`.
    """

    address: int
    photos: int
    height: int
    width: int
    channels: int
    pitch: int
    box_height: int
    box_width: int
    box_channels: int

    def encode(self) -> Any:
        """The driver's answer: its status and the map of 128 bytes."""
        return _encode(self)


@lru_cache(maxsize=256)
def _encode(wanted: TensorMap | PhotoMap) -> Any:
    if isinstance(wanted, TensorMap):
        return _encode_tiled(
            wanted.address, (wanted.columns, wanted.rows), (wanted.pitch,), (wanted.box_columns, wanted.box_rows)
        )
    row = wanted.width * wanted.pitch
    return _encode_tiled(
        wanted.address, (wanted.channels, wanted.width, wanted.height, wanted.photos),
        (wanted.pitch, row, wanted.height * row), (wanted.box_channels, wanted.box_width, wanted.box_height, 1),
    )  # fmt: skip


def _encode_tiled(address: int, sizes: Sequence[int], pitches: Sequence[int], box: Sequence[int]) -> Any:
    """Sizes, pitches and box in elements, from the innermost dimension outwards."""
    long, short = driver.cuuint64_t, driver.cuuint32_t
    swizzle = getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{2 * box[0]}B")
    return driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, len(sizes), address,
        [long(size) for size in sizes], [long(pitch * 2) for pitch in pitches],
        [short(size) for size in box], [short(1)] * len(sizes),
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )  # fmt: skip
