"""Measures coverage and accuracy at a confidence threshold on photos with known classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from core.diagnosis.verdict import NO_LEAF, NO_LEAF_NAMES, NOT_SURE
from core.ops.contract import Array


@final
@dataclass(frozen=True, slots=True)
class CoverageResult:
    """Diagnoses at one confidence threshold.

    wanted: the coverage on validation photos that sets the threshold; photos, answered, right: numbers of photos, of
    photos with a diagnosis, and of correct diagnoses; wrongly_refused: rejected share of the correct diagnoses.
    """

    wanted: float
    photos: int
    answered: int
    right: int
    wrongly_refused: float

    def describe(self) -> str:
        right, share = 100 * self.right / max(self.answered, 1), 100 * self.answered / max(self.photos, 1)
        return (
            f"At coverage {100 * self.wanted:g} % (set on validation photos), {self.answered} of {self.photos} photos "
            f"are diagnosed ({share:.1f} %), {right:.1f} % of these diagnoses are correct, and "
            f"{100 * self.wrongly_refused:.1f} % of the correct predictions are rejected."
        )


def measure_coverage(
    words: Sequence[str], labels: Array, right: Array, classes: Sequence[str], wanted: float
) -> CoverageResult:
    """Count diagnoses and correct diagnoses.

    words: the verdict on each photo (a class counts as a diagnosis, and so does "no leaf" if the model has a class for
    it); labels: int ``(N,)``; right: bool ``(N,)``, whether the most likely class is the true one,
    or all labels are right.
    """
    bare = np.array([name.lower() in NO_LEAF_NAMES for name in classes])
    said_bare = np.array([word == NO_LEAF for word in words])
    answered = said_bare | np.array([word not in (NOT_SURE, NO_LEAF) for word in words])
    good = np.where(said_bare, bare[labels], right)
    lost = int((right & ~(answered & good)).sum())
    return CoverageResult(wanted, len(words), int(answered.sum()), int((answered & good).sum()),
                    lost / max(int(right.sum()), 1))  # fmt: skip
