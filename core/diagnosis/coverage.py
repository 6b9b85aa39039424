"""Coverage against accuracy: how many photos are answered, and how many of the answers are right.

The slider "answer only when this sure" moves along this curve. Source: El-Yaniv and Wiener, "On the
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
"""Shares this near are one."""


@final
@dataclass(frozen=True, slots=True)
class CoveragePoint:
    """Answering only photos with at least `threshold`: shares 0..1 of photos answered, of answers right,
    and of right answers that are held back (wrongly refused)."""

    coverage: float
    threshold: float
    accuracy: float
    wrongly_refused: float


def coverage_curve(confidence: Array, right: Array, steps: Sequence[float] = STEPS) -> tuple[CoveragePoint, ...]:
    """Points at the coverages asked for; `confidence` ``(N,)`` higher is surer, `right` bool ``(N,)``.

    Equal confidences are answered together, so the true coverage may be a little larger than asked.
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
    """The point that answers at least this share of photos, with the highest threshold of those."""
    enough = [p for p in points if p.coverage >= coverage - TIE]
    return max(enough, key=lambda p: p.threshold) if enough else max(points, key=lambda p: p.coverage)
