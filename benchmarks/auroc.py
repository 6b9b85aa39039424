"""The area under the ROC curve."""

from __future__ import annotations

import numpy as np

from core.ops.contract import Array


def auroc(known: Array, unknown: Array) -> float:
    """Chance that a known photo or pixel scores above an unknown one (ties count half); NaN where there is none."""
    if not len(known) or not len(unknown):
        return float("nan")
    unknown = np.sort(unknown)
    below = np.searchsorted(unknown, known, "left") + np.searchsorted(unknown, known, "right")
    return float(below.mean() / 2 / len(unknown))
