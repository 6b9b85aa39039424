"""Groups photos of one class taken within seconds of each other, which usually show the same leaf."""

from __future__ import annotations

from typing import Final

import numpy as np

from core.ops.contract import Array

BURST_SECONDS: Final = 10
"""Longest pause within a burst, in seconds. A choice, not a measurement: public datasets have no EXIF metadata."""
MOST: Final = 12
"""Larger groups are ignored: they are continuous shooting, or one time for all photos."""


def group_by_burst(taken: Array, labels: Array) -> Array:
    """Groups int32 ``(N,)`` from times in seconds (0: unknown) and classes; all others are groups of one."""
    count = len(taken)
    order = np.lexsort((taken, labels))
    time, label = taken[order], labels[order]
    starts = np.ones(count, bool)
    starts[1:] = (label[1:] != label[:-1]) | (time[1:] - time[:-1] > BURST_SECONDS)
    starts |= time == 0
    burst = np.cumsum(starts) - 1
    believed = np.bincount(burst, minlength=1)[burst] <= MOST
    groups = np.empty(count, np.int64)
    groups[order] = np.where(believed, burst, count + np.arange(count))
    return np.unique(groups, return_inverse=True)[1].astype(np.int32)
