"""Decides the verdict on a photo: a class, "not sure" or "no leaf", by thresholds set on validation photos."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, final

import numpy as np

from core.data.label_sets import join_labels
from core.diagnosis.coverage import TIE, CoveragePoint, at_coverage, coverage_curve
from core.ops.contract import Array
from core.percent import plain_percent

SECTION: Final = "rejection"
"""Section of the model file with the thresholds."""
NOT_SURE: Final = "not sure"
NO_LEAF: Final = "no leaf"
NO_LEAF_NAMES: Final = ("background/none", "background", "none", "no_leaf", "no leaf", "not_a_leaf",
                         "background_without_leaves")
"""Class names, in lower case, that mean a photo without a leaf."""
HEALTHY_WORDS: Final = frozenset({"healthy", "khỏe", "khoẻ"})
NOT_WORDS: Final = frozenset({"not", "non", "không"})
"""Words in class names, in the languages of the user interface."""
UNFAMILIAR: Final = "This photo looks different from the training photos: another crop, or another kind of photo."
COVERAGE: Final = 0.97
"""Default coverage: share of validation photos with a diagnosis."""
FAR_REFUSED: Final = 0.02
"""Share of validation photos that may be rejected as unfamiliar."""
UNTESTED: Final = 0.5
"""Confidence threshold of a model without thresholds."""
NO_LEAF_FOUND: Final = 0.99
"""Share of the validation photos without a leaf that must be detected."""


@final
@dataclass(frozen=True, slots=True)
class Thresholds:
    """Rejection thresholds of a model.

    score: one of `core.diagnosis.familiarity.SCORES`; far: familiarity below which a photo is unfamiliar;
    no_leaf_class: index or -1; no_leaf: probability of that class from which the verdict is "no leaf"; curve:
    confidence thresholds by coverage; labels: where photos may have several labels, the probability from which a photo
    has each.
    """

    score: str
    far: float
    no_leaf_class: int
    no_leaf: float
    curve: tuple[CoveragePoint, ...]
    labels: tuple[float, ...] = ()

    def to_section(self) -> dict[str, Any]:
        curve = [[p.coverage, p.threshold, p.accuracy, p.wrongly_refused] for p in self.curve]
        return {"score": self.score, "far": self.far, "no_leaf_class": self.no_leaf_class, "no_leaf": self.no_leaf,
                "curve": curve, **({"labels": list(self.labels)} if self.labels else {})}

    @staticmethod
    def from_section(section: Mapping[str, Any], classes: int) -> Thresholds | None:
        """The thresholds in a model file's section; None if there are none or they are not valid."""
        try:
            curve = tuple(CoveragePoint(*(float(v) for v in row)) for row in section["curve"])
            found = Thresholds(str(section["score"]), float(section["far"]), int(section["no_leaf_class"]),
                               float(section["no_leaf"]), curve, tuple(map(float, section.get("labels", ()))))
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        numbers = [found.far, found.no_leaf, *found.labels, *(v for p in curve for v in (p.threshold, p.accuracy))]
        sound = curve and -1 <= found.no_leaf_class < classes and len(found.labels) in (0, classes)
        return found if sound and all(math.isfinite(v) for v in numbers) else None


@final
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
    """Whether a class name means healthy leaves: ``tomato/healthy``, ``Tomato___healthy``,
    ``Healthy leaves``, ``lá khỏe``."""
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


def set_thresholds(
    probabilities: Array, labels: Array, familiar: Array, score: str, classes: Sequence[str]
) -> Thresholds:
    """Set thresholds on validation photos: probabilities ``(N, classes)``, labels ``(N,)`` and familiarity ``(N,)``."""
    right = probabilities.argmax(axis=1) == labels
    index = next((i for i, name in enumerate(classes) if name.lower() in NO_LEAF_NAMES), -1)
    no_leaf = 1.0
    leaves = np.ones(len(labels), np.bool_)
    if index >= 0:
        leaves = labels != index
        bare = probabilities[~leaves, index]
        no_leaf = float(np.quantile(bare, 1 - NO_LEAF_FOUND)) if len(bare) else 0.5
        no_leaf = max(no_leaf, 0.02)
    far = float(np.quantile(familiar[leaves], FAR_REFUSED)) if leaves.any() else -math.inf
    return Thresholds(score, far, index, no_leaf, coverage_curve(probabilities.max(axis=1), right))


def describe_slider(section: Mapping[str, Any], classes: int, coverage: float) -> str:
    """A line about a coverage that the model file cannot provide; else empty."""
    thresholds = Thresholds.from_section(section, classes)
    if thresholds is None:
        return ("The model file has no confidence thresholds, because there were too few validation photos. A class is "
                "predicted if its probability is above 50 %, whatever the coverage.\n")  # fmt: skip
    least = min(point.coverage for point in thresholds.curve)
    if coverage >= least - TIE:
        return ""
    return (f"The lowest coverage this model supports is {plain_percent(least, 0)} of the validation photos; it is "
            f"used instead of {plain_percent(coverage, 0)}.\n")  # fmt: skip


def rank_classes(probabilities: Array, thresholds: Thresholds | None, least: int) -> Array:
    """The most probable classes, `least` or more: first the labels that the photo has."""
    if thresholds is None or not thresholds.labels:
        return np.argsort(-probabilities, kind="stable")[:least]
    has = probabilities >= thresholds.labels
    return np.lexsort((-probabilities, ~has))[: max(least, int(has.sum()))]


def decide_verdict(
    probabilities: Array, familiar: float, thresholds: Thresholds | None, classes: Sequence[str],
    coverage: float = COVERAGE,
) -> Verdict:  # fmt: skip
    """Decide the verdict on one photo from its probabilities ``(classes,)``.

    Without thresholds (too few validation photos) the probability of the class must be at least 0.5.
    """
    order = np.argsort(-probabilities, kind="stable")
    best = int(order[0])
    second = classes[int(order[1])] if len(order) > 1 else classes[best]
    unsure = Verdict(NOT_SURE, f"It may be {classes[best]} or {second}. Take another photo, close up and in even "
                               "light.")
    if thresholds is None:
        return unsure if probabilities[best] < UNTESTED else Verdict(classes[best])
    bare = thresholds.no_leaf_class
    if bare >= 0 and probabilities[bare] >= thresholds.no_leaf:
        return Verdict(NO_LEAF, "No leaf was found in this photo.")
    if familiar < thresholds.far:
        return Verdict(NOT_SURE, UNFAMILIAR)
    if thresholds.labels:
        named = [name for at, name in enumerate(classes) if probabilities[at] >= thresholds.labels[at] and at != bare]
        return Verdict(join_labels(named)) if named else unsure
    point = at_coverage(thresholds.curve, coverage)
    if best == bare:
        return Verdict(NOT_SURE, "There may be no leaf in this photo. Take another one, close up and in even light.")
    return unsure if probabilities[best] < point.threshold else Verdict(classes[best])
