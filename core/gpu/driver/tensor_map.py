"""Tensor maps, which describe a tensor to TMA: arguments of a launch, encoded by the driver."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from core.gpu.compilation.cuda import driver


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A bf16 tensor in TMA tiles; sizes, pitches and tile in elements, from the innermost dimension outwards.

    `pitches` are those of all dimensions but the innermost. Address and pitches are multiples of 16 bytes. A tile's
    line of 32, 64 or 128 bytes is swizzled by as many.
    """

    address: int
    sizes: tuple[int, ...]
    pitches: tuple[int, ...]
    tile: tuple[int, ...]


@lru_cache(maxsize=256)
def encode(tensor: TensorMap) -> Any:
    """The driver's status and the map of 128 bytes."""
    long, short = driver.cuuint64_t, driver.cuuint32_t
    swizzle = getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{2 * tensor.tile[0]}B")
    return driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, len(tensor.sizes), tensor.address,
        [long(size) for size in tensor.sizes], [long(pitch * 2) for pitch in tensor.pitches],
        [short(size) for size in tensor.tile], [short(1)] * len(tensor.sizes),
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )  # fmt: skip
