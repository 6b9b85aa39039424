"""Decides the verdict on a photo: a class, "not sure" or "no leaf", by thresholds set on validation photos."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from core.data.label_sets import join_labels
from core.diagnosis.calibration import crop_of
from core.diagnosis.thresholds import COVERAGE, UNTESTED, Thresholds, at_coverage, is_no_leaf, no_leaf_limit
from core.errors import InputError
from core.ops.contract import Array

TOP: Final = 3
"""Classes that are shown with their probabilities, or more where a photo has more labels."""
NOT_SURE: Final = "not sure"
NO_LEAF: Final = "no leaf"
HEALTHY_WORDS: Final = frozenset({"healthy", "khỏe", "khoẻ"})
NOT_WORDS: Final = frozenset({"not", "non", "không"})
"""Words in class names, in the languages of the user interface."""
UNFAMILIAR: Final = "This photo looks different from the training photos: another crop, or another kind of photo."
LEAST: Final = 0.01
"""Of 600 validation photos none had a smaller probability of its crop; below it, a photo is of another crop."""


@dataclass(frozen=True, slots=True)
class ClassProbability:
    """A class and its calibrated probability, 0..1; threshold: from which a photo has it, where it may have several."""

    label: str
    probability: float
    threshold: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """Calibrated probabilities ``(classes,)`` of a photo, and its familiarity (`core.diagnosis.familiarity`)."""

    probabilities: Array
    familiar: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """`word` is a class name, NOT_SURE or NO_LEAF; `reason` is a sentence if it is not a class."""

    word: str
    reason: str = ""

    @property
    def is_class(self) -> bool:
        return self.word not in (NOT_SURE, NO_LEAF)

    @property
    def is_disease(self) -> bool:
        """Whether the verdict is a class other than healthy: only then is the diseased area meaningful."""
        return self.is_class and not is_healthy(self.word)


@lru_cache(maxsize=4096)
def is_healthy(label: str) -> bool:
    """Whether a class name means healthy leaves: ``tomato/healthy``, ``Tomato___healthy``, ``lá khỏe``."""
    words = re.findall(r"[^\W_]+", unicodedata.normalize("NFC", label).lower())
    return not HEALTHY_WORDS.isdisjoint(words) and NOT_WORDS.isdisjoint(words) and "+" not in label


def count_findings(words: Sequence[str]) -> list[tuple[str, int]]:
    """The verdicts on leaves of one photo with their numbers of leaves: diseases first, then the most frequent.

    Where most leaves are "not sure", that comes first: of many leaves one is easily taken for another crop's disease.
    """
    counts = Counter(words)
    doubtful = NOT_SURE if 2 * counts[NOT_SURE] > len(words) else ""
    return sorted(counts.items(), key=lambda found: (
        found[0] != doubtful, not Verdict(found[0]).is_disease, -found[1], found[0]))  # fmt: skip


def describe_leaves(words: Sequence[str]) -> str:
    """Such verdicts as a sentence: "3 of 5 leaves: apple/scab; 2 of 5 leaves: apple/healthy"."""
    return "; ".join(f"{many} of {len(words)} leaves: {word}" for word, many in count_findings(words))


@dataclass(frozen=True, slots=True)
class DecisionRule:
    """How a model's predictions become verdicts.

    classes: of the model; thresholds: None if it has none, and a class then needs a probability of 0.5, "no leaf" 0.9;
    coverage: share of validation photos with a diagnosis, 0..1, which selects the confidence threshold; crop: the only
    one that photos show, "" for any. Raises InputError for another coverage.
    """

    classes: Sequence[str]
    thresholds: Thresholds | None
    coverage: float = COVERAGE
    crop: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.coverage <= 1:
            raise InputError(f"The coverage is a share from 0 to 1, not {self.coverage:g}.")

    def restrict(self, probabilities: Array, familiar: Any) -> tuple[Array, Any]:
        """Probabilities ``(..., classes)`` and familiarity ``(...)`` of photos of the crop; unchanged without a crop.

        Probabilities are those of the crop's classes, given that there is a leaf; that of no leaf stays, and where
        photos may have several labels, all labels keep theirs. A photo of another crop is unfamiliar.
        """
        if not self.crop:
            return probabilities, familiar
        bare = np.array([is_no_leaf(name) for name in self.classes])
        own = probabilities * np.array([crop_of(name) == self.crop for name in self.classes])
        total, none = (part.sum(axis=-1, keepdims=True) for part in (own, probabilities[..., bare]))
        if self.thresholds is None or not self.thresholds.labels:
            own = own * (1 - none) / np.where(total > 0, total, 1)
        other = (total + none)[..., 0] < LEAST * probabilities.sum(axis=-1)  # 1, but for several labels
        return np.where(bare, probabilities, own), np.where(other, -np.inf, familiar)

    def list_top(self, prediction: Prediction) -> tuple[ClassProbability, ...]:
        """The most probable classes, `TOP` or more: first the labels that the photo has; without impossible ones."""
        p, limits = prediction.probabilities, self.thresholds.labels if self.thresholds else ()
        if limits:
            has = p >= limits
            order = np.lexsort((-p, ~has))[: max(TOP, int(has.sum()))]
        else:
            order = np.argsort(-p, kind="stable")[:TOP]
            order = order[: max(int((p[order] > 0).sum()), 1)]
        return tuple(ClassProbability(self.classes[i], float(p[i]), limits[i] if limits else None) for i in order)

    def decide(self, prediction: Prediction) -> Verdict:
        p, thresholds = prediction.probabilities, self.thresholds
        best, least, (bare, no_leaf) = int(p.argmax()), UNTESTED, no_leaf_limit(thresholds, self.classes)
        if prediction.familiar == -np.inf:  # of another crop than the known one
            return Verdict(NOT_SURE, UNFAMILIAR)
        if bare >= 0 and p[bare] >= no_leaf:
            return Verdict(NO_LEAF, "No leaf of a kind that the model knows was found in this photo.")
        if thresholds is not None:
            if prediction.familiar < thresholds.least_familiar:
                return Verdict(NOT_SURE, UNFAMILIAR)
            if thresholds.labels:
                named = [name for at, name in enumerate(self.classes) if p[at] >= thresholds.labels[at] and at != bare]
                return Verdict(join_labels(named)) if named else self._doubt(p)
            least = at_coverage(thresholds.curve, self.coverage).threshold
        if best == bare:
            return Verdict(NOT_SURE, "There may be no leaf in this photo. Take another one, close up and in even "
                                     "light.")
        return self._doubt(p) if p[best] < least else Verdict(self.classes[best])

    def _doubt(self, probabilities: Array) -> Verdict:
        order = np.argsort(-probabilities, kind="stable")
        best, second = int(order[0]), int(order[:2][-1])
        if second == best or not probabilities[second] > 0 or is_no_leaf(self.classes[second]):
            return Verdict(NOT_SURE, f"It may be {self.classes[best]}, but this is not certain. Take another photo, "
                                     "close up and in even light.")
        return Verdict(NOT_SURE, f"It may be {self.classes[best]} or {self.classes[second]}. Take another photo, close "
                                 "up and in even light.")
