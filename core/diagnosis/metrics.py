"""Classification metrics: confusion matrix, accuracy, precision, recall, F1 and loss, with confidence intervals.

Photos with several labels have no confusion matrix; a prediction is right if all labels are (subset accuracy).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike

from core.diagnosis.thresholds import without_leaf
from core.ops.contract import Array
from core.percent import rounded

Z_95: Final = 1.959964
"""Standard normal quantile of a two-sided 95 % interval."""
ROUNDS: Final = 1000
"""Samples of the bootstrap."""
FEWEST_GROUPS: Final = 10
"""Fewest groups for the bootstrap: with 8, its 95 % intervals contain the true value only 80 to 95 times in 100."""
DEPENDENT: Final = 2
"""Weight, in photos, of the assumption that photos of a group are all right or all wrong."""
FIELD: Final = "field"
OWN_FIELD: Final = "own field photos"
"""Name of the subset of the user's own field photos."""


@dataclass(frozen=True, slots=True)
class ClassMetrics:
    """Metrics of one class: numbers of photos that have it and that are predicted as it, and shares 0..1 with 95 %
    intervals (low, high): the recall of these photos, and the precision of those predictions."""

    label: str
    photos: int
    predicted: int
    precision: float
    recall: float
    f1: float
    precision_interval: tuple[float, float]
    recall_interval: tuple[float, float]


@dataclass(frozen=True, slots=True)
class LabelCounts:
    """Counts of photos with several labels. right: photos whose labels are all right; labels: of each label the photos
    (rightly predicted, that have it, predicted); average_precision: mean over the labels that occur."""

    photos: int
    right: int
    labels: tuple[tuple[int, int, int], ...]
    average_precision: float


@dataclass(frozen=True, slots=True)
class Metrics:
    """Metrics of a set of photos; `confusion` counts (true class, predicted class), or `several` has the counts.

    groups: number of groups, 0 if no group has several photos; effect: design effect of the accuracy; class_effects: of
    the (precision, recall) of each class, empty without groups; f1_interval: of `macro_f1`, 95 %, None where that is 0
    or 1 and for fewer than `FEWEST_GROUPS` groups.
    """

    classes: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]
    loss: float
    several: LabelCounts | None = None
    groups: int = 0
    effect: float = 1.0
    class_effects: tuple[tuple[float, float], ...] = ()
    f1_interval: tuple[float, float] | None = None

    @property
    def photos(self) -> int:
        return self.several.photos if self.several else sum(map(sum, self.confusion))

    @property
    def right(self) -> int:
        return self.several.right if self.several else sum(row[i] for i, row in enumerate(self.confusion))

    @property
    def accuracy(self) -> float:
        return self.right / self.photos if self.photos else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the accuracy."""
        return wilson_interval(self.right, self.photos, self.effect)

    @property
    def score(self) -> float:
        """What the best epoch is chosen by: accuracy, or for several labels mean average precision (no threshold)."""
        return self.several.average_precision if self.several else self.accuracy

    @property
    def macro_f1(self) -> float:
        """Mean F1 over the classes that occur (`occurring`)."""
        seen = self.occurring
        return sum(c.f1 for c in seen) / len(seen) if seen else 0.0

    @property
    def occurring(self) -> tuple[ClassMetrics, ...]:
        """The classes that occur as label or prediction; one that is only predicted has no recall and an F1 of 0."""
        counted = zip(self.per_class, self._counts(), strict=True)
        return tuple(c for c, (_, true, predicted) in counted if true or predicted)

    @property
    def per_class(self) -> tuple[ClassMetrics, ...]:
        rows = []
        effects = self.class_effects or ((1.0, 1.0),) * len(self.classes)
        for label, (right, true, predicted), effect in zip(self.classes, self._counts(), effects, strict=True):
            f1 = 2 * right / (true + predicted) if true + predicted else 0.0
            precision, recall = right / predicted if predicted else 0.0, right / true if true else 0.0
            intervals = wilson_interval(right, predicted, effect[0]), wilson_interval(right, true, effect[1])
            rows.append(ClassMetrics(label, true, predicted, precision, recall, f1, *intervals))
        return tuple(rows)

    def _counts(self) -> tuple[tuple[int, int, int], ...]:
        """Of each class the photos (rightly predicted, that have it, predicted)."""
        if self.several:
            return self.several.labels
        counts = np.asarray(self.confusion)
        rows = zip(counts.diagonal(), counts.sum(axis=1), counts.sum(axis=0), strict=True)
        return tuple((int(right), int(true), int(predicted)) for right, true, predicted in rows)


def compute_metrics(
    logits: Array, labels: Array, classes: Sequence[str], thresholds: Array | float = 0.5, groups: Array | None = None
) -> Metrics:
    """Compute the metrics of logits ``(N, classes)``; the loss is the mean cross entropy.

    labels: int ``(N,)``, or bool ``(N, classes)`` of photos with several; thresholds: of the probability of each label;
    groups: int ``(N,)``, which the intervals then take into account; the interval of macro F1 is computed with them.
    """
    if labels.ndim == 2:
        truth, stated = labels, sigmoid(logits)
        found = stated >= thresholds
        rows = zip((found & truth).sum(axis=0), truth.sum(axis=0), found.sum(axis=0), strict=True)
        precisions = [average_precision(logits[:, i], truth[:, i]) for i in np.flatnonzero(truth.any(axis=0))]
        counts = LabelCounts(
            len(truth), int((found == truth).all(axis=1).sum()), tuple((int(a), int(b), int(c)) for a, b, c in rows),
            float(np.mean(precisions)) if precisions else 0.0,
        )  # fmt: skip
        figures = Metrics(tuple(classes), (), float(binary_cross_entropy(logits, truth).mean()), counts)
        return figures if groups is None else _with_groups(figures, found, truth, groups)
    predicted, only = logits.argmax(axis=1), np.eye(len(classes), dtype=bool)
    confusion = np.zeros((len(classes), len(classes)), np.int64)
    np.add.at(confusion, (labels, predicted), 1)
    loss = float(cross_entropy(logits, labels).mean()) if len(labels) else 0.0
    figures = Metrics(tuple(classes), tuple(tuple(int(n) for n in row) for row in confusion), loss)
    return figures if groups is None else _with_groups(figures, only[predicted], only[labels], groups)


def find_correct(logits: Array, labels: Array, thresholds: Array) -> Array:
    """Which predictions are correct, bool ``(N,)``: the most probable class, or all labels. As in `compute_metrics`."""
    if labels.ndim == 1:
        return np.asarray(logits.argmax(axis=1) == labels)
    return np.asarray(((sigmoid(logits) >= thresholds) == labels).all(axis=1))


def _with_groups(figures: Metrics, found: Array, truth: Array, groups: Array) -> Metrics:
    """The metrics with design effects; found, truth: bool ``(N, classes)``; groups: int ``(N,)``."""
    count = len(np.unique(groups))
    if 0 < figures.macro_f1 < 1 and count >= FEWEST_GROUPS:  # else samples are all alike
        figures = replace(figures, f1_interval=interval_of_f1(found, truth, groups))
    if count == len(groups):
        return figures
    effects = tuple((design_effect(true[stated], groups[stated]), design_effect(stated[true], groups[true]))
                    for stated, true in zip(found.T, truth.T, strict=True))  # fmt: skip
    effect = design_effect((found == truth).all(axis=1), groups)
    return replace(figures, groups=count, effect=effect, class_effects=effects)


def interval_of_f1(found: Array, truth: Array, groups: Array) -> tuple[float, float]:
    """95 % interval of macro F1, by the bootstrap over groups; arguments as above.

    Source: Efron and Tibshirani, "An introduction to the bootstrap", 1993, percentile interval.
    """
    which = np.unique(groups, return_inverse=True)[1]
    count, values, random = int(which.max()) + 1, [], np.random.default_rng(0)
    counts = np.stack([found & truth, truth, found]).astype(np.float64)
    for _ in range(ROUNDS):
        drawn = np.bincount(random.integers(0, count, count), minlength=count)[which]
        right, true, predicted = drawn @ counts
        seen = true + predicted > 0
        values.append(float((2 * right[seen] / (true + predicted)[seen]).mean()) if seen.any() else 0.0)
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)


def describe_groups(figures: Metrics | None) -> str:
    """A sentence that the intervals are wider because of groups; empty without groups."""
    if figures is None or not figures.groups:
        return ""
    return (f"The intervals take groups into account: {figures.photos} photos (groups: {figures.groups}) count as "
            f"{figures.photos / figures.effect:.0f}.")  # fmt: skip


def describe_accuracy(figures: Metrics, split: str) -> str:
    low, high = figures.interval
    interval = f"(95 % interval {rounded(low)} to {100 * high:.1f} %)"
    share = f"{rounded(figures.accuracy)} %: {figures.right} of {figures.photos} {split + ' ' if split else ''}photos"
    if figures.several:
        precision = f"mean average precision {figures.several.average_precision:.3f}"
        return f"All labels right on {share} {interval}, mean F1 {figures.macro_f1:.3f}, {precision}."
    return f"Accuracy {share} correct {interval}, macro F1 {figures.macro_f1:.3f}."


def cross_entropy(logits: Array, labels: Array) -> Array:
    """Loss of each photo in float64, without smoothing or class weights: ``log sum exp(z) - z_label``."""
    z = logits.astype(np.float64)
    z -= z.max(axis=1, keepdims=True)
    return np.asarray(np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(z)), labels], np.float64)


def binary_cross_entropy(logits: Array, truth: Array) -> Array:
    """Loss of each photo in float64, the mean over its labels; truth bool ``(N, labels)``."""
    z = logits.astype(np.float64)
    return np.asarray((np.logaddexp(0, z) - truth * z).mean(axis=1))


def average_precision(logits: Array, truth: Array) -> float:
    """The area under precision over recall as steps, without interpolation; truth bool ``(N,)`` is true somewhere.
    Probabilities would be equal, at 1, where logits still differ."""
    order = np.argsort(-logits)
    ends = np.flatnonzero(np.diff(logits[order], append=-np.inf))  # equal logits count together
    found = truth[order].cumsum()[ends]
    return float((np.diff(found, prepend=0) * found / (ends + 1)).sum() / found[-1])


def sigmoid(logits: Array) -> Array:
    """Probabilities of labels that do not exclude each other, in float64, ``(N, labels)``."""
    return np.asarray(np.exp(-np.logaddexp(0, -logits.astype(np.float64))))


def softmax(logits: Array, dtype: DTypeLike = np.float64) -> Array:
    """Probabilities ``(N, classes)``, computed in `dtype`."""
    z = logits.astype(dtype)
    z = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(z / z.sum(axis=1, keepdims=True))


def wilson_interval(right: float, total: int, effect: float = 1.0) -> tuple[float, float]:
    """95 % interval of a share (Wilson, JASA 22:209, 1927); 0..1 for `total` 0. effect: `design_effect` of the photos,
    of which ``total / effect`` count (Rao and Scott, Biometrics 48:577, 1992)."""
    if total == 0:
        return (0.0, 1.0)
    share, z2, count = right / total, Z_95**2, total / effect
    centre = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = Z_95 * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2)) / (1 + z2 / count)
    return (max(0.0, min(centre - half, share)), min(1.0, max(centre + half, share)))  # rounding must not exclude it


def difference_interval(first: float, second: float, photos: int, effect: float = 1.0) -> tuple[float, float]:
    """95 % interval of the difference of two shares, each of so many photos (Newcombe, Statistics in Medicine 17:873,
    1998, method 10). If they are of the same photos, it is too wide rather than too narrow."""
    (low, high), (least, most) = (wilson_interval(share * photos, photos, effect) for share in (first, second))
    difference = first - second
    return difference - math.hypot(first - low, most - second), difference + math.hypot(high - first, second - least)


def design_effect(right: Array, groups: Array) -> float:
    """Variance of the share of correct photos, bool ``(N,)``, relative to photos without groups, int ``(N,)``.

    It is 1 + (k - 1) rho, with k the mean group size over photos. rho is the correlation within groups, averaged with
    1 that weighs `DEPENDENT` wrong photos: a few wrong photos do not show that photos of a group are independent. It
    is 1 for a single group, which shows nothing about others.
    """
    numbers, sizes = np.unique(groups, return_inverse=True, return_counts=True)[1:]
    excess = float((sizes**2).sum()) / max(len(groups), 1) - 1
    if excess <= 0:
        return 1.0
    rare, rho = min(int(right.sum()), int((~right).sum())), 1.0
    if rare and len(sizes) > 1:
        share, (squares, cubes) = float(right.mean()), (((sizes / len(right)) ** power).sum() for power in (2, 3))
        # the share is the photos' own, which large groups draw to themselves
        spread = float((np.bincount(numbers, right - share) ** 2).sum()) / (1 + squares - 2 * cubes / squares)
        rho = min((spread / (len(right) * share * (1 - share)) - 1) / excess, 1.0)
    return 1 + excess * max(0.0, rare * rho + DEPENDENT) / (rare + DEPENDENT)


@dataclass(frozen=True, slots=True)
class Subset:
    """A subset of the evaluated photos: numbers of photos and of correct predictions, and its design effect."""

    name: str
    photos: int
    right: int
    effect: float = 1.0

    @classmethod
    def count(cls, name: str, right: Array, groups: Array) -> Subset:
        """The subset of these photos; right: bool ``(N,)``, groups: int ``(N,)``."""
        return cls(name, len(right), int(right.sum()), design_effect(right, groups))

    @classmethod
    def whole(cls, name: str, figures: Metrics) -> Subset:
        return cls(name, figures.photos, figures.right, figures.effect)

    @property
    def accuracy(self) -> float:
        return self.right / self.photos if self.photos else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the accuracy."""
        return wilson_interval(self.right, self.photos, self.effect)

    @property
    def is_field(self) -> bool:
        return self.name == OWN_FIELD or self.name.split(" ")[0].lower() == FIELD

    def describe(self) -> str:
        low, high = self.interval
        return (f"{self.name} {rounded(self.accuracy)} % ({self.right} of {self.photos}, 95 % interval "
                f"{rounded(low)} to {100 * high:.1f} %)")  # fmt: skip

    def to_row(self) -> dict[str, Any]:
        """The subset as an entry of the model file."""
        return {"name": self.name, "photos": self.photos, "right": self.accuracy, "interval": list(self.interval)}


def subsets_by_setting(
    right: Array, labels: Array, classes: Sequence[str], settings: Sequence[str], groups: Array
) -> tuple[Subset, ...]:
    """One subset for each setting in which leaves were photographed, largest first; empty if no setting is known.

    right: bool ``(N,)``; labels: as in `compute_metrics`; groups: int ``(N,)``; settings: of each photo, "" if unknown.
    Photos of classes without a leaf are in no subset: they are easy and would inflate the accuracy in the field.
    """
    places = np.array([place.strip() for place in settings])
    leaves = ~without_leaf(labels, classes)
    found = [Subset.count(f"{place} photos{'' if leaves.all() else ' of leaves'}", right[mask], groups[mask])
             for place in np.unique(places) if place and (mask := (places == place) & leaves).any()]  # fmt: skip
    return tuple(sorted(found, key=lambda part: -part.photos))


def describe_subsets(parts: Sequence[Subset]) -> str:
    """The accuracy by setting as a sentence with its meaning; empty if no setting is known."""
    if not parts:
        return ""
    text = f"By place: {'; '.join(part.describe() for part in parts)}. "
    field = [part for part in parts if part.is_field]
    if not field:
        return text + "No photo was taken in the field, so the accuracy in the field is unknown."
    if len(field) == len(parts):
        return text + "All photos were taken in the field."
    return text + "For use outdoors, only the accuracy on field photos counts."
