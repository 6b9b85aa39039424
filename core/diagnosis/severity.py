"""The diseased share of a leaf's area, and its grade on the Horsfall-Barratt scale."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

from core.ops.contract import Array

SCALE: Final = "Horsfall-Barratt"
UPPER: Final = (0.0, 3.0, 6.0, 12.0, 25.0, 50.0, 75.0, 88.0, 94.0, 97.0, 99.999)
"""Highest percentage of grades 0 to 10; all above is grade 11.
Source: Horsfall and Barratt, "An improved grading system for measuring plant diseases", Phytopathology 35:655, 1945."""


@dataclass(frozen=True, slots=True, eq=False)
class Severity:
    """Masks bool ``(height, width)`` of leaf and lesions."""

    leaf: Array
    lesions: Array

    @property
    def percent(self) -> float:
        """Diseased share of the leaf's area, 0..100; 0 where there is no leaf."""
        area = int(self.leaf.sum())
        return 100.0 * int((self.lesions & self.leaf).sum()) / area if area else 0.0

    @property
    def grade(self) -> int:
        return grade(self.percent)


def grade(percent: float) -> int:
    """Horsfall-Barratt grade of a percentage, 0 (none) to 11 (all)."""
    return bisect_left(UPPER, percent)
