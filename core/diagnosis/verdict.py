"""Decides the verdict on a photo: a class, "not sure" or "no leaf", by thresholds set on validation photos."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from core.data.label_sets import join_labels
from core.diagnosis.thresholds import COVERAGE, UNTESTED, Thresholds, at_coverage, is_no_leaf
from core.ops.contract import Array

TOP: Final = 3
"""Classes that are shown with their probabilities, or more where a photo has more labels."""
NOT_SURE: Final = "not sure"
NO_LEAF: Final = "no leaf"
HEALTHY_WORDS: Final = frozenset({"healthy", "khỏe", "khoẻ"})
NOT_WORDS: Final = frozenset({"not", "non", "không"})
"""Words in class names, in the languages of the user interface."""
UNFAMILIAR: Final = "This photo looks different from the training photos: another crop, or another kind of photo."


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


def rank_classes(probabilities: Array, thresholds: Thresholds | None) -> Array:
    """The most probable classes, `TOP` or more: first the labels that the photo has. Impossible ones are left out."""
    if thresholds is None or not thresholds.labels:
        order = np.argsort(-probabilities, kind="stable")[:TOP]
        return order[: max(int((probabilities[order] > 0).sum()), 1)]
    has = probabilities >= thresholds.labels
    return np.lexsort((-probabilities, ~has))[: max(TOP, int(has.sum()))]


def decide_verdict(
    probabilities: Array, familiar: float, thresholds: Thresholds | None, classes: Sequence[str],
    coverage: float = COVERAGE,
) -> Verdict:  # fmt: skip
    """Decide the verdict from probabilities ``(classes,)``; without thresholds the class must have at least 0.5."""
    order = np.argsort(-probabilities, kind="stable")
    best, second = int(order[0]), int(order[:2][-1])
    unsure = Verdict(NOT_SURE, f"It may be {classes[best]} or {classes[second]}. Take another photo, close up and in "
                               "even light.")
    if second == best or not probabilities[second] > 0 or is_no_leaf(classes[second]):
        unsure = Verdict(NOT_SURE, f"It may be {classes[best]}, but this is not certain. Take another photo, close up "
                                   "and in even light.")
    if familiar == -np.inf:  # of another crop than the known one
        return Verdict(NOT_SURE, UNFAMILIAR)
    if thresholds is None:
        return unsure if probabilities[best] < UNTESTED else Verdict(classes[best])
    bare = thresholds.no_leaf_class
    if bare >= 0 and probabilities[bare] >= thresholds.no_leaf:
        return Verdict(NO_LEAF, "No leaf of a kind that the model knows was found in this photo.")
    if familiar < thresholds.least_familiar:
        return Verdict(NOT_SURE, UNFAMILIAR)
    if thresholds.labels:
        named = [name for at, name in enumerate(classes) if probabilities[at] >= thresholds.labels[at] and at != bare]
        return Verdict(join_labels(named)) if named else unsure
    point = at_coverage(thresholds.curve, coverage)
    if best == bare:
        return Verdict(NOT_SURE, "There may be no leaf in this photo. Take another one, close up and in even light.")
    return unsure if probabilities[best] < point.threshold else Verdict(classes[best])
