"""Calibration: fits temperatures, and measures the calibration error.

Labels of one crop are noisier, or its diseases more alike, than another's, so each crop has a temperature
(docs/adr/0026-temperatures-by-crop.md). Sources: Guo et al., "On calibration of modern neural networks", 2017; Gupta
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

from core.diagnosis.metrics import binary_cross_entropy, cross_entropy, design_effect, sigmoid, softmax
from core.diagnosis.model_file import ModelFile
from core.diagnosis.thresholds import is_no_leaf
from core.ops.contract import Array

PARTS: Final = re.compile(r"/|___")
BINS: Final = 15
FARTHEST: Final = 3.0
"""Largest ``|ln T|``: 0.05 to 20."""
COMMON_RIDGE: Final = 1.0
"""Weight of ``(ln T)^2`` beside the summed cross entropy. Temperatures of networks vary more than those of crops."""
RIDGE: Final = 3.0
"""Weight of ``(ln f)^2`` beside the summed cross entropy, in nats. 1 to 30 are alike on validation photos."""
FEWEST: Final = 10
"""Smallest number of photos predicted as classes of a crop for a temperature of its own."""
FARTHEST_FACTOR: Final = 1.5
"""Largest ``|ln f|``: the common temperature times 0.22 to 4.5."""
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


def fit_temperature(logits: Array, labels: Array, ridge: float = COMMON_RIDGE, farthest: float = FARTHEST) -> float:
    """The temperature with the lowest cross entropy of ``logits / T`` plus ``ridge * (ln T)^2``, by ternary search.

    labels: int ``(N,)``, or bool ``(N, classes)`` for binary cross entropy. Without `ridge` it approaches 0, and all
    probabilities 1, where all photos are classified correctly. 1.0 without photos.
    """
    if not len(labels):
        return 1.0
    entropy = cross_entropy if labels.ndim == 1 else binary_cross_entropy

    def loss(log_t: float) -> float:  # summed over photos and labels
        return float(entropy(logits / np.exp(log_t), labels).sum() * labels[0].size) + ridge * log_t**2

    low, high = -farthest, farthest
    while high - low > 1e-5:
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, right) if loss(left) < loss(right) else (left, high)
    return math.exp((low + high) / 2)


def divide_logits(logits: Array, temperature: float, by_class: Sequence[float] = ()) -> Array:
    """Logits ``(N, classes)`` over the temperature, or over that in `by_class` of the most likely class."""
    z = logits.astype(np.float64)
    if not by_class:
        return np.asarray(z / temperature)
    return np.asarray(z / np.asarray(by_class)[z.argmax(axis=1), None])


def calibrate_logits(model: ModelFile, logits: Array) -> Array:
    """Logits ``(N, classes)`` divided by the model's temperatures."""
    return divide_logits(logits, model.temperature, model.class_temperatures)


def state_probabilities(model: ModelFile, logits: Array) -> Array:
    """Calibrated probabilities float64 ``(N, classes)`` from logits. All shown probabilities come from here."""
    return (sigmoid if model.multilabel else softmax)(calibrate_logits(model, logits))


def label_thresholds(model: ModelFile) -> Array:
    """The threshold of each label of a model for several labels; empty for other models."""
    thresholds = model.thresholds
    return np.array(thresholds.labels if thresholds else ())


def measure_reliability(probabilities: Array, labels: Array, groups: Array | None = None) -> Reliability:
    """Compare the probability of the predictions with the share that is correct.

    probabilities ``(N, classes)``, labels ``(N,)``, or bool ``(N, classes)``: then each label is a prediction;
    groups: int ``(N,)``, which `chance` takes into account.
    """
    if labels.ndim == 2:
        stated = probabilities.ravel()
        groups = None if groups is None else groups.repeat(labels.shape[1])
        probabilities, labels = np.stack((1 - stated, stated), axis=1), labels.ravel()
    stated = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == labels
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


def fit_temperatures(logits: Array, labels: Array, classes: Sequence[str]) -> tuple[float, tuple[float, ...]]:
    """The common temperature, and one for each class, empty if the common one is used for all.

    logits ``(N, classes)``, labels ``(N,)`` of photos that the model was not trained on.
    """
    common, crops = fit_temperature(logits, labels), [crop_of(name) for name in classes]
    several = len({crop for crop, name in zip(crops, classes, strict=True) if crop and not is_no_leaf(name)}) > 1
    return common, fit_class_temperatures(logits, labels, crops, common) if several else ()


def fit_class_temperatures(
    logits: Array, labels: Array, groups: Sequence[str], temperature: float, ridge: float = RIDGE
) -> tuple[float, ...]:
    """A temperature for each class: `temperature` times the factor of its group; empty if no group has its own.

    logits ``(N, classes)``, labels ``(N,)``; groups: the crop of each class, "" for none. The factor f of a group
    minimizes the sum of cross entropies over FEWEST or more photos predicted as its classes, plus ``ridge (ln f)^2``.
    """
    names = sorted({name for name in groups if name})
    answered = np.asarray(groups)[logits.argmax(axis=1)]
    enough = [name for name in names if (answered == name).sum() >= FEWEST]
    if not enough:
        return ()
    z = logits.astype(np.float64) / temperature
    own = {name: answered == name for name in enough}
    factors = {name: fit_temperature(z[rows], labels[rows], ridge, FARTHEST_FACTOR) for name, rows in own.items()}
    return tuple(temperature * factors.get(name, 1.0) for name in groups)


def describe_temperatures(model: ModelFile) -> str:
    """Sentences about the crops whose temperature lowers or raises the confidence; "" with one temperature."""
    if not model.class_temperatures:
        return ""
    crops = {crop_of(name): t for name, t in zip(model.classes, model.class_temperatures, strict=True)}
    less = [f"{crop} ({t:.3f})" for crop, t in crops.items() if t >= NOTABLE * model.temperature]
    more = [f"{crop} ({t:.3f})" for crop, t in crops.items() if t <= model.temperature / NOTABLE]
    sentences = ["Each crop has its own temperature, measured on held-out photos predicted as its classes."]
    if less:
        sentences.append(f"This lowers the confidence of predictions about {', '.join(less)}.")  # fmt: skip
    if more:
        sentences.append(f"It raises the confidence of predictions about {', '.join(more)}.")
    return " ".join(sentences)
