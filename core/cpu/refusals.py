"""Checks of what a CPU plan does not support: precisions, algorithms, and batches."""

from __future__ import annotations

import numpy as np

from core.cpu.kernel_entries import ALGORITHMS
from core.errors import DeviceError, KernelUnavailable
from core.ops.contract import Array
from core.ops.photo import AUGMENTATION_SIZE


def refuse_choices(precision: str, algorithm: str) -> None:
    """Raises DeviceError or KernelUnavailable."""
    if precision != "float32":
        raise DeviceError(f"The CPU computes in float32; {precision} needs --device cuda.")
    if algorithm not in ALGORITHMS:
        raise KernelUnavailable(
            f"The CPU has no algorithm {algorithm!r} for whole networks; it has {', '.join(ALGORITHMS)}."
        )


def find_problem(photos: Array | None, rows: Array, labels: Array, index: Array | None, batch: int) -> str:
    """What is wrong with a batch, or nothing: kernels read by address, so that nothing may be wrong."""
    if photos is None or photos.ndim != 4 or photos.shape[3] != 3 or not photos.size:
        return "they are not (photos, height, width, 3) of uint8"
    count = len(rows)
    if not 1 <= count <= batch:
        return f"this plan takes 1 to {batch} photos at a time, not {count}"
    if rows.shape != (count, AUGMENTATION_SIZE) or not np.isfinite(rows).all():
        return f"their transform is not {AUGMENTATION_SIZE} finite numbers a photo"
    if labels.shape != (count,):
        return f"there are {labels.size} labels for {count} photos"
    if index is None:
        return "" if len(photos) >= count else f"there are {len(photos)} photos for {count} transforms"
    if index.shape != (count,) or index.min() < 0 or index.max() >= len(photos):
        return f"their indices are not within 0 to {len(photos) - 1}"
    return ""
