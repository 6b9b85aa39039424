"""Thresholds that decide which photos get a diagnosis, set on validation photos.

The coverage-accuracy curve has the share of photos with a diagnosis, and its accuracy, by confidence threshold; the
slider for the coverage selects a point of it. Source: El-Yaniv and Wiener, "On the foundations of noise-free selective
classification", JMLR 2010. A model for several labels has one threshold per label, the one with the highest F1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final

import numpy as np

from core.ops.contract import Array
from core.percent import percent

STEPS: Final = (1.0, 0.99, 0.98, 0.97, 0.96, 0.95, 0.94, 0.92, 0.9, 0.88, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5)
TIE: Final = 1e-3
"""Coverages closer than this are equal: curves of earlier versions miss a step by up to half a photo."""
SCORES: Final = ("energy", "vim", "vim_spreads")
"""Scores of `core.diagnosis.familiarity`."""
SECTION: Final = "rejection"
"""Section of the model file with the thresholds."""
NO_LEAF_NAMES: Final = ("background/none", "background", "none", "no_leaf", "no leaf", "not_a_leaf",
                         "background_without_leaves")
"""Class names, in lower case, that mean a photo without a leaf."""
COVERAGE: Final = 0.98
"""Default coverage: share of validation photos with a diagnosis."""
UNFAMILIAR_REJECTED: Final = 0.03
"""Largest share of validation photos of leaves that is rejected as unfamiliar."""
UNTESTED: Final = 0.5
"""Confidence threshold of a model without thresholds."""
NO_LEAF_FOUND: Final = 0.99
"""Share of the validation photos without a leaf that must be detected."""
NO_LEAF_UNTESTED: Final = 0.9
"""The probability instead where that is unknown: of leaves of unknown crops some have 0.5 (benchmarks.own_models)."""
NEVER: Final = -1e300
"""A familiarity that no photo is below."""


@dataclass(frozen=True, slots=True)
class CoveragePoint:
    """Diagnosing only photos with a confidence of at least `threshold`.

    Shares 0..1; coverage: photos with a diagnosis; accuracy: correct diagnoses; wrongly_refused: correct ones rejected.
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
        kept = math.ceil(round(step * len(ordered), 6))
        threshold = float(ordered[kept - 1])
        answered = confidence >= threshold
        held_back = float((right & ~answered).sum() / max(int(right.sum()), 1))
        points.append(CoveragePoint(float(answered.mean()), threshold, float(right[answered].mean()), held_back))
    return tuple(points)


def at_coverage(points: Sequence[CoveragePoint], coverage: float) -> CoveragePoint:
    """The point with the highest threshold that has at least this coverage."""
    enough = [p for p in points if p.coverage >= coverage - TIE]
    return max(enough, key=lambda p: p.threshold) if enough else max(points, key=lambda p: p.coverage)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Rejection thresholds of a model.

    score: one of `SCORES`; least_familiar: familiarity below which a photo is unfamiliar; no_leaf_class: index or -1;
    no_leaf: probability of that class from which the verdict is "no leaf"; curve: confidence thresholds by coverage;
    labels: where photos may have several labels, the probability from which a photo has each.
    """

    score: str
    least_familiar: float
    no_leaf_class: int
    no_leaf: float
    curve: tuple[CoveragePoint, ...]
    labels: tuple[float, ...] = ()

    @property
    def measured(self) -> bool:
        """Whether it is known how many validation photos get a correct diagnosis (`untested_thresholds`)."""
        return any(point.accuracy or point.threshold for point in self.curve)

    def to_section(self) -> dict[str, Any]:
        curve = [[p.coverage, p.threshold, p.accuracy, p.wrongly_refused] for p in self.curve]
        return {"score": self.score, "far": self.least_familiar, "no_leaf_class": self.no_leaf_class,
                "no_leaf": self.no_leaf, "curve": curve, **({"labels": list(self.labels)} if self.labels else {})}

    @staticmethod
    def from_section(section: Mapping[str, Any], classes: int) -> Thresholds | None:
        """The thresholds in a model file's section; None if there are none or they are not valid."""
        try:
            curve = tuple(CoveragePoint(*(float(v) for v in row)) for row in section["curve"])
            found = Thresholds(str(section["score"]), float(section["far"]), int(section["no_leaf_class"]),
                               float(section["no_leaf"]), curve, tuple(map(float, section.get("labels", ()))))
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        numbers = [found.least_familiar, found.no_leaf, *found.labels, *(v for p in curve for v in astuple(p))]
        sound = curve and -1 <= found.no_leaf_class < classes and len(found.labels) in (0, classes)
        return found if sound and all(math.isfinite(v) for v in numbers) else None


def is_no_leaf(name: str) -> bool:
    """Whether this class means a photo without a leaf."""
    return name.lower() in NO_LEAF_NAMES


def no_leaf_limit(thresholds: Thresholds | None, classes: Sequence[str]) -> tuple[int, float]:
    """Index of the class without a leaf, or -1, and its probability from which the verdict is "no leaf"."""
    if thresholds is not None:
        return thresholds.no_leaf_class, thresholds.no_leaf
    return next((i for i, name in enumerate(classes) if is_no_leaf(name)), -1), NO_LEAF_UNTESTED


def without_leaf(labels: Array, classes: Sequence[str]) -> Array:
    """Which photos have a class without a leaf, bool ``(N,)``; labels: int ``(N,)``, or bool ``(N, classes)``."""
    bare = np.array([is_no_leaf(name) for name in classes])
    return np.asarray(bare[labels] if labels.ndim == 1 else labels[:, bare].any(axis=1))


def set_thresholds(
    probabilities: Array, labels: Array, familiar: Array, score: str, classes: Sequence[str]
) -> Thresholds:
    """Set thresholds on validation photos: probabilities ``(N, classes)``, familiarity ``(N,)``, labels ``(N,)``, or
    bool ``(N, classes)`` of photos with several."""
    index, no_leaf = no_leaf_limit(None, classes)[0], 1.0
    leaves = ~without_leaf(labels, classes)
    least = float(np.quantile(familiar[leaves], UNFAMILIAR_REJECTED, method="lower")) if leaves.any() else NEVER
    if labels.ndim == 2:
        each, point = _set_label_thresholds(probabilities, labels, familiar >= least)
        return Thresholds(score, least, index, each[index] if index >= 0 else 1.0, (point,), each)
    if index >= 0:
        bare = probabilities[labels == index, index]
        no_leaf = max(float(np.quantile(bare, 1 - NO_LEAF_FOUND)), 0.02) if len(bare) else NO_LEAF_UNTESTED
    right = probabilities.argmax(axis=1) == labels
    return Thresholds(score, least, index, no_leaf, coverage_curve(probabilities.max(axis=1), right))


def _set_label_thresholds(
    probabilities: Array, truth: Array, familiar: Array
) -> tuple[tuple[float, ...], CoveragePoint]:
    """The threshold of each label, and what they reach; labels and whether a photo is familiar as bool."""
    labels = tuple(best_threshold(stated, true) for stated, true in zip(probabilities.T, truth.T, strict=True))
    found = probabilities >= labels
    answered, right = found.any(axis=1) & familiar, (found == truth).all(axis=1)
    return labels, CoveragePoint(float(answered.mean()), 0.0, float(right[answered].sum() / max(answered.sum(), 1)),
                                 float((right & ~answered).sum() / max(right.sum(), 1)))  # fmt: skip


def describe_coverage(thresholds: Thresholds | None, coverage: float) -> str:
    """A line about a coverage that a model cannot provide; else empty."""
    if thresholds is not None and thresholds.labels:
        return "This model has a threshold for each label. The coverage changes nothing.\n"
    if thresholds is None:
        return ("This model has no confidence thresholds: it is an ONNX file, or had too few validation photos. A "
                "class is predicted if its probability is above 50 %, whatever the coverage.\n")  # fmt: skip
    least = min(point.coverage for point in thresholds.curve)
    if coverage >= least - TIE:
        return ""
    return (f"The lowest coverage this model supports is {100 * least:.0f} % of the validation photos; it is "
            f"used instead of {100 * coverage:.0f} %.\n")  # fmt: skip


def untested_thresholds(classes: int) -> Thresholds:
    """The thresholds of a model with too few validation photos: no photo is unfamiliar."""
    return Thresholds("energy", NEVER, -1, 1.0, (CoveragePoint(1.0, 0.0, 0.0, 0.0),), (UNTESTED,) * classes)


def best_threshold(stated: Array, truth: Array) -> float:
    """The threshold of one label by its probabilities ``(N,)`` and bool ``(N,)``; 0.5 if no photo has the label."""
    if not truth.any():
        return UNTESTED
    order = np.argsort(-stated)
    ranked, found = stated[order], truth[order].cumsum()
    f1 = 2 * found / (np.arange(1, len(order) + 1) + found[-1])
    below = np.append(ranked[1:], 0.0)
    best = int(np.where(ranked > below, f1, -1.0).argmax())  # equal probabilities are answered together
    return float(ranked[best] + below[best]) / 2


def describe_label_thresholds(thresholds: Thresholds, classes: Sequence[str]) -> str:
    point = thresholds.curve[0]
    each = ", ".join(f"{name} {percent(value, 0)}" for name, value in zip(classes, thresholds.labels, strict=True))
    reached = (f"{percent(point.coverage)} of the validation photos, which set the thresholds, have a label; of "
               f"these, {percent(point.accuracy)} have exactly the right labels." if thresholds.measured else
               "There were too few validation photos to set and measure the thresholds.")  # fmt: skip
    return f"A photo has the labels whose probability reaches their threshold: {each}. {reached}"
