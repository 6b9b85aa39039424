"""The coverage-accuracy curve: share of photos with a diagnosis, and its accuracy, by confidence threshold.

The slider for the minimum confidence selects a point of this curve. Source: El-Yaniv and Wiener, "On the
foundations of noise-free selective classification", JMLR 2010.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from core.ops.contract import Array

STEPS: Final = (1.0, 0.99, 0.98, 0.97, 0.96, 0.95, 0.94, 0.92, 0.9, 0.88, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5)
TIE: Final = 1e-9
"""Shares closer than this are equal."""


@final
@dataclass(frozen=True, slots=True)
class CoveragePoint:
    """Diagnosing only photos with a confidence of at least `threshold`.

    Shares 0..1; coverage: photos with a diagnosis; accuracy: correct diagnoses; wrongly_refused: correct diagnoses that
    are rejected.
    """

    coverage: float
    threshold: float
    accuracy: float
    wrongly_refused: float


def coverage_curve(confidence: Array, right: Array, steps: Sequence[float] = STEPS) -> tuple[CoveragePoint, ...]:
    """The points of the curve at the coverages `steps`, from `confidence` ``(N,)`` and `right` bool ``(N,)``.

    Photos with equal confidence are accepted together, so the coverage may be slightly larger than requested.
    """
    ordered = np.sort(confidence)[::-1]
    points = []
    for step in steps:
        kept = max(1, round(step * len(ordered)))
        threshold = float(ordered[kept - 1])
        answered = confidence >= threshold
        held_back = float((right & ~answered).sum() / max(int(right.sum()), 1))
        points.append(CoveragePoint(float(answered.mean()), threshold, float(right[answered].mean()), held_back))
    return tuple(points)


def at_coverage(points: Sequence[CoveragePoint], coverage: float) -> CoveragePoint:
    """The point with the highest threshold that has at least this coverage."""
    enough = [p for p in points if p.coverage >= coverage - TIE]
    return max(enough, key=lambda p: p.threshold) if enough else max(points, key=lambda p: p.coverage)
