"""The area under the ROC curve."""

from __future__ import annotations

from core.ops.contract import Array


def auroc(known: Array, unknown: Array) -> float:
    """Chance that a known photo scores above an unknown one (ties count half): area under the ROC curve."""
    return float((known[:, None] > unknown).mean() + (known[:, None] == unknown).mean() / 2)
