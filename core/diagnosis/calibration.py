"""Calibration: fits temperatures and an offset, and measures the calibration error.

Labels of one crop are noisier, or its diseases more alike, than another's, so each crop has a temperature
(docs/adr/0026-temperatures-by-crop.md). A temperature alone leaves the probability of difficult photos too high, so the
largest logit is reduced by an offset (docs/adr/0041-offset-of-the-largest-logit.md). Sources: Guo et al., "On
calibration of modern neural networks", 2017; Platt, "Probabilistic outputs for support vector machines", 1999; Gupta
and Ramdas, "Top-label calibration and multiclass-to-binary reductions", ICLR 2022.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from core.diagnosis.metrics import cross_entropy, design_effect, sigmoid, softmax
from core.diagnosis.model_file import ModelFile
from core.diagnosis.thresholds import is_no_leaf
from core.ops.contract import Array

PARTS: Final = re.compile(r"/|___")
BINS: Final = 15
MOST_STEPS: Final = 50
TOLERANCE: Final = 1e-7
SMALLEST: Final = 1e-9
"""Added to second derivatives, which are 0 where all probabilities are 0 or 1."""
LEAST_SCALE: Final = 0.05
MOST_SCALE: Final = 20.0
"""Least and largest 1 / T, relative to its start."""
COMMON_RIDGE: Final = 1.0
"""Weights of ``(1 / T - 1)^2`` and ``b^2`` beside the summed cross entropy. They vary more among networks than
temperatures among crops."""
RIDGE: Final = 10.0
"""Weight of ``(1 / f - 1)^2`` beside the summed cross entropy, in nats. 3 to 30 are alike on validation photos."""
FIXED: Final = 1e12
"""Weight that keeps a value as it is."""
MARGIN: Final = 1e-6
FEWEST: Final = 10
"""Smallest number of photos predicted as classes of a crop for a temperature of its own."""
NOTABLE: Final = 1.1
"""A crop is named in the model card if its factor is at least this, or at most its inverse."""


@lru_cache(maxsize=4096)
def crop_of(name: str) -> str:
    """The crop in a class name (``crop/condition`` or ``Crop___Condition``), "" if it names a condition only."""
    crop, *condition = PARTS.split(name)
    return crop.strip() if condition else ""


@dataclass(frozen=True, slots=True)
class Bin:
    """Photos with similar probabilities: their number, mean probability, and share of correct predictions."""

    photos: int
    stated: float
    right: float


@dataclass(frozen=True, slots=True)
class Reliability:
    """Expected calibration error, of `bins` of equal width.

    chance: the error that a perfectly calibrated model with these probabilities would have on as many photos: the mean
    of ``|stated - right|`` of each bin, if `right` is binomial.
    """

    error: float
    chance: float
    bins: tuple[Bin, ...]


def fit_scale(
    logits: Array, labels: Array, start: tuple[float, float] = (1.0, 0.0),
    ridge: tuple[float, float] = (COMMON_RIDGE, COMMON_RIDGE),
) -> tuple[float, float]:  # fmt: skip
    """The temperature T and the offset b that minimize the sum of cross entropies of ``logits / T``, the largest less
    b, plus ``ridge[0] (start[0] / T - 1)^2 + ridge[1] (b - start[1])^2``. logits ``(N, classes)``, labels ``(N,)``.

    By Newton's method: the sum is convex in 1 / T and b. Without a ridge T approaches 0, and all probabilities 1, where
    all photos are classified correctly.
    """
    rows, top, z = np.arange(len(labels)), logits.argmax(axis=1), logits.astype(np.float64) / start[0]
    leading, true, weights, first = z[rows, top], z[rows, labels], np.array(ridge), np.array((1.0, start[1]))

    def loss(at: Array) -> tuple[float, Array]:
        scaled = at[0] * z
        scaled[rows, top] -= at[1]
        return float(cross_entropy(scaled, labels).sum() + weights @ (at - first) ** 2), softmax(scaled)

    at, (value, p) = first, loss(first)
    for _ in range(MOST_STEPS):
        mean, of_top = (p * z).sum(axis=1), p[rows, top]
        gradient = np.array(((mean - true).sum(), ((top == labels) - of_top).sum())) + 2 * weights * (at - first)
        mixed = (of_top * (mean - leading)).sum()
        hessian = np.array((((p * z * z).sum() - mean @ mean, mixed), (mixed, (of_top * (1 - of_top)).sum())))
        hessian += np.diag(2 * weights + SMALLEST)
        step = np.linalg.solve(hessian, gradient)
        if not LEAST_SCALE <= at[0] - step[0] <= MOST_SCALE:  # then the best offset at this bound of 1 / T
            bound = np.clip(step[0], at[0] - MOST_SCALE, at[0] - LEAST_SCALE)
            step = np.array((bound, (gradient[1] - mixed * bound) / hessian[1, 1]))
        while (found := loss(at - step))[0] > value and abs(step).max() > TOLERANCE:
            step /= 2
        at, (value, p) = at - step, found
        if abs(step).max() <= TOLERANCE:
            break
    return start[0] / float(at[0]), float(at[1])


def fit_temperature(logits: Array, labels: Array, ridge: float = COMMON_RIDGE, offset: float = 0.0) -> float:
    """The temperature of `fit_scale` with this offset. labels: int ``(N,)``, or bool ``(N, classes)`` of photos with
    several labels, each of which is then present or absent."""
    if labels.ndim == 2:
        logits, labels = np.stack((np.zeros(logits.size), logits.ravel()), axis=1), labels.ravel().astype(np.int64)
    return fit_scale(logits, labels, (1.0, offset), (ridge, FIXED))[0]


def scale_logits(logits: Array, temperature: float, by_class: Sequence[float] = (), offset: float = 0.0) -> Array:
    """Logits ``(N, classes)`` over the temperature, or over that in `by_class` of the most likely class, the largest
    less the offset. It stays the largest, by `MARGIN` at least: predictions do not change."""
    z, rows, top = logits.astype(np.float64), np.arange(len(logits)), logits.argmax(axis=1)
    z /= np.asarray(by_class)[top, None] if by_class else temperature
    if offset and z.shape[1] > 1:
        leading, z[rows, top] = z[rows, top], -np.inf
        z[rows, top] = np.maximum(leading - offset, z.max(axis=1) + MARGIN)
    return z


def calibrate_logits(model: ModelFile, logits: Array) -> Array:
    """Logits ``(N, classes)`` scaled by the model's temperatures and offset."""
    return scale_logits(logits, model.temperature, model.class_temperatures, model.offset)


def state_probabilities(model: ModelFile, logits: Array) -> Array:
    """Calibrated probabilities float64 ``(N, classes)`` from logits. All shown probabilities come from here."""
    return (sigmoid if model.multilabel else softmax)(calibrate_logits(model, logits))


def label_thresholds(model: ModelFile) -> Array:
    """The threshold of each label of a model for several labels; empty for other models."""
    thresholds = model.thresholds
    return np.array(thresholds.labels if thresholds else ())


def measure_reliability(
    probabilities: Array, labels: Array, groups: Array | None = None, thresholds: Array | float = 0.5
) -> Reliability:
    """Compare the probability of the predictions with the share that is correct.

    probabilities ``(N, classes)``, labels ``(N,)``, or bool ``(N, classes)``: then predictions are labels that reach
    their threshold, as most others are easy; groups: int ``(N,)``, which `chance` takes into account.
    """
    if labels.ndim == 1:
        stated, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    else:
        named = probabilities >= thresholds
        stated, right = probabilities[named], labels[named]
        groups = (np.arange(len(named)) if groups is None else groups)[np.nonzero(named)[0]]
    edges = np.linspace(0.0, 1.0, BINS + 1)
    which = np.clip(np.searchsorted(edges, stated, side="left") - 1, 0, BINS - 1)
    members = [which == i for i in np.unique(which)]
    bins = tuple(Bin(int(rows.sum()), float(stated[rows].mean()), float(right[rows].mean())) for rows in members)
    effects = (1.0 if groups is None else design_effect(right[rows], groups[rows]) for rows in members)
    error = sum(b.photos * abs(b.stated - b.right) for b in bins) / max(len(stated), 1)
    chance = sum(b.photos * _mean_deviation(max(round(b.photos / effect), 1), b.stated)
                 for b, effect in zip(bins, effects, strict=True))  # fmt: skip
    return Reliability(error, chance / max(len(stated), 1), bins)


def _mean_deviation(count: int, p: float) -> float:
    """Mean of ``|k / count - p|`` for a binomial k (Diaconis and Zabell, Statistical Science 6:284, 1991)."""
    if not 0 < p < 1:
        return 0.0
    k = min(int(count * p) + 1, count)
    ways = math.lgamma(count + 1) - math.lgamma(k) - math.lgamma(count - k + 1)
    return 2 / count * math.exp(ways + k * math.log(p) + (count - k + 1) * math.log1p(-p))


def describe_error(error: float, chance: float | None) -> str:
    """The expected calibration error in words. error, chance: as in `Reliability`, 0..1; None if unknown."""
    stated = f"{100 * error:.1f} points"
    if chance is not None:
        stated = f"{100 * error:.1f} points (a perfectly calibrated model would have {100 * chance:.1f} by chance)"
    return (f"Expected calibration error: {stated} on the validation photos that the temperature was fitted to. It can "
            "be much larger on other photos.")  # fmt: skip


def fit_scales(logits: Array, labels: Array, classes: Sequence[str]) -> tuple[float, tuple[float, ...], float]:
    """The common temperature, one for each class, empty if the common one is used for all, and the offset.

    logits ``(N, classes)``, labels ``(N,)`` of photos that the model was not trained on.
    """
    (common, offset), crops = fit_scale(logits, labels), [crop_of(name) for name in classes]
    several = len({crop for crop, name in zip(crops, classes, strict=True) if crop and not is_no_leaf(name)}) > 1
    by_class = fit_class_temperatures(logits, labels, crops, (common,) * len(crops), offset) if several else ()
    return common, by_class, offset


def fit_class_temperatures(
    logits: Array, labels: Array, groups: Sequence[str], start: Sequence[float], offset: float, ridge: float = RIDGE
) -> tuple[float, ...]:
    """A temperature for each class, its `start` times a factor of its group; empty if no group has enough photos.

    logits ``(N, classes)``, labels ``(N,)``; groups: the crop of each class, "" for none. The factor f of a group
    minimizes the sum of cross entropies over FEWEST or more photos predicted as its classes, plus ``ridge (1 / f -
    1)^2``; offset: of the largest logit (`scale_logits`).
    """
    answered, z = logits.argmax(axis=1), scale_logits(logits, 1.0, start)
    factors = {}
    for name in sorted({name for name in groups if name}):
        rows = np.asarray(groups)[answered] == name
        if rows.sum() >= FEWEST:
            factors[name] = fit_temperature(z[rows], labels[rows], ridge, offset=offset)
    return tuple(t * factors.get(name, 1.0) for t, name in zip(start, groups, strict=True)) if factors else ()


def describe_offset(offset: float) -> str:
    """What follows a temperature in a sentence; "" without an offset."""
    return f", the largest logit is {'reduced' if offset > 0 else 'raised'} by {abs(offset):.3f}" if offset else ""


def describe_temperatures(model: ModelFile) -> str:
    """Sentences about the crops whose temperature lowers or raises the confidence; "" with one temperature."""
    if not model.class_temperatures:
        return ""
    crops = {crop_of(name) or "unnamed crops": t
             for name, t in zip(model.classes, model.class_temperatures, strict=True)}
    less = [f"{crop} ({t:.3f})" for crop, t in crops.items() if t >= NOTABLE * model.temperature]
    more = [f"{crop} ({t:.3f})" for crop, t in crops.items() if t <= model.temperature / NOTABLE]
    sentences = ["Each crop has its own temperature, measured on held-out photos predicted as its classes."]
    if less:
        sentences.append(f"This lowers the confidence of predictions about {', '.join(less)}.")  # fmt: skip
    if more:
        sentences.append(f"It raises the confidence of predictions about {', '.join(more)}.")
    return " ".join(sentences)
