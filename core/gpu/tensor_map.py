"""How Hopper's copy engine sees a matrix: a launch's argument, encoded by the driver when the kernel is sent."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

from core.gpu.cuda import driver


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


@lru_cache(maxsize=256)
def _encode(wanted: TensorMap) -> Any:
    long, short = driver.cuuint64_t, driver.cuuint32_t
    swizzle = getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{2 * wanted.box_columns}B")
    return driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, wanted.address,
        [long(wanted.columns), long(wanted.rows)], [long(wanted.pitch * 2)],
        [short(wanted.box_columns), short(wanted.box_rows)], [short(1), short(1)],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )  # fmt: skip
