"""Thresholds of a model for photos with several labels: one for each label, set on validation photos.

Rule: the threshold of a label is the one with the highest F1 on the validation photos, midway between the two
neighbouring probabilities. A photo has the labels whose probability reaches their threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from core.diagnosis.coverage import CoveragePoint
from core.diagnosis.verdict import FAR_REFUSED, NO_LEAF_NAMES, UNTESTED, Thresholds
from core.ops.contract import Array
from core.percent import percent

NEVER: Final = -1e300
"""A familiarity that no photo is below."""


def untested_thresholds(classes: int) -> Thresholds:
    """The thresholds of a model with too few validation photos: no photo is unfamiliar."""
    return Thresholds("energy", NEVER, -1, 1.0, (CoveragePoint(1.0, 0.0, 0.0, 0.0),), (UNTESTED,) * classes)


def set_label_thresholds(
    probabilities: Array, truth: Array, familiar: Array, score: str, classes: Sequence[str]
) -> Thresholds:
    """Set thresholds on validation photos: probabilities and labels (bool) ``(N, classes)``, familiarity ``(N,)``."""
    labels = tuple(best_threshold(stated, true) for stated, true in zip(probabilities.T, truth.T, strict=True))
    bare = next((i for i, name in enumerate(classes) if name.lower() in NO_LEAF_NAMES), -1)
    leaves = ~truth[:, bare] if bare >= 0 else np.ones(len(truth), np.bool_)
    far = float(np.quantile(familiar[leaves], FAR_REFUSED)) if leaves.any() else NEVER
    found = probabilities >= labels
    answered, right = found.any(axis=1) & (familiar >= far), (found == truth).all(axis=1)
    point = CoveragePoint(float(answered.mean()), 0.0, float(right[answered].sum() / max(answered.sum(), 1)),
                          float((right & ~answered).sum() / max(right.sum(), 1)))  # fmt: skip
    return Thresholds(score, far, bare, labels[bare] if bare >= 0 else 1.0, (point,), labels)


def best_threshold(stated: Array, truth: Array) -> float:
    """The threshold of one label by its probabilities ``(N,)`` and bool ``(N,)``; 0.5 if no photo has the label."""
    if not truth.any():
        return UNTESTED
    order = np.argsort(-stated, kind="stable")
    ranked, found = stated[order], truth[order].cumsum()
    f1 = 2 * found / (np.arange(1, len(order) + 1) + found[-1])
    below = np.append(ranked[1:], 0.0)
    best = int(np.where(ranked > below, f1, -1.0).argmax())  # equal probabilities are answered together
    return float(ranked[best] + below[best]) / 2


def describe_label_thresholds(thresholds: Thresholds, classes: Sequence[str]) -> str:
    """The thresholds and what they reach on the validation photos, as sentences."""
    point = thresholds.curve[0]
    each = ", ".join(f"{name} {percent(value, 0)}" for name, value in zip(classes, thresholds.labels, strict=True))
    return (f"A photo has the labels whose probability reaches their threshold: {each}. {percent(point.coverage)} of "
            f"the validation photos have a label; of these, {percent(point.accuracy)} have exactly the right labels.")
