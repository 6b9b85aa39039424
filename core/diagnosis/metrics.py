"""Classification metrics: confusion matrix, accuracy, precision, recall, F1 and loss, with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from core.ops.contract import Array

Z_95: Final = 1.959964
"""Standard normal quantile of a two-sided 95 % interval."""


@final
@dataclass(frozen=True, slots=True)
class ClassMetrics:
    """Metrics of one class: number of photos, and shares 0..1 with 95 % intervals (low, high)."""

    label: str
    photos: int
    precision: float
    recall: float
    f1: float
    precision_interval: tuple[float, float]
    recall_interval: tuple[float, float]


@final
@dataclass(frozen=True, slots=True)
class Metrics:
    """Metrics of a set of photos; `confusion` counts (true class, predicted class)."""

    classes: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]
    loss: float

    @property
    def photos(self) -> int:
        return sum(map(sum, self.confusion))

    @property
    def right(self) -> int:
        return sum(row[i] for i, row in enumerate(self.confusion))

    @property
    def accuracy(self) -> float:
        return self.right / self.photos if self.photos else 0.0

    @property
    def macro_f1(self) -> float:
        """Mean F1 over the classes that occur as label or prediction."""
        seen = [c.f1 for i, c in enumerate(self.per_class) if c.photos or any(row[i] for row in self.confusion)]
        return sum(seen) / len(seen) if seen else 0.0

    @property
    def per_class(self) -> tuple[ClassMetrics, ...]:
        counts = np.asarray(self.confusion, np.int64)
        rows = []
        for i, label in enumerate(self.classes):
            right, true, said = int(counts[i, i]), int(counts[i].sum()), int(counts[:, i].sum())
            f1 = 2 * right / (true + said) if true + said else 0.0
            rows.append(
                ClassMetrics(
                    label, true, right / said if said else 0.0, right / true if true else 0.0, f1,
                    wilson_interval(right, said), wilson_interval(right, true),
                )
            )
        return tuple(rows)


def compute_metrics(logits: Array, labels: Array, classes: Sequence[str]) -> Metrics:
    """Compute the metrics of logits ``(N, classes)`` for labels ``(N,)``; the loss is the mean cross entropy."""
    confusion = np.zeros((len(classes), len(classes)), np.int64)
    np.add.at(confusion, (labels, logits.argmax(axis=1)), 1)
    loss = float(cross_entropy(logits, labels).mean()) if len(labels) else 0.0
    return Metrics(tuple(classes), tuple(tuple(int(n) for n in row) for row in confusion), loss)


def describe_accuracy(figures: Metrics, split: str) -> str:
    """The accuracy with its interval as a sentence."""
    low, high = wilson_interval(figures.right, figures.photos)
    return (
        f"Accuracy {100 * figures.accuracy:.1f} %: {figures.right} of {figures.photos} "
        f"{split + ' ' if split else ''}photos correct (95 % interval {100 * low:.1f} to {100 * high:.1f} %), "
        f"macro F1 {figures.macro_f1:.3f}."
    )


def cross_entropy(logits: Array, labels: Array) -> Array:
    """Loss of each photo in float64, without smoothing or class weights: ``log sum exp(z) - z_label``."""
    z = logits.astype(np.float64)
    z -= z.max(axis=1, keepdims=True)
    return np.asarray(np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(z)), labels], np.float64)


def softmax(logits: Array, temperature: float = 1.0) -> Array:
    """Probabilities in float64, ``(N, classes)``."""
    z = logits.astype(np.float64) / temperature
    z = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(z / z.sum(axis=1, keepdims=True))


def wilson_interval(right: int, total: int) -> tuple[float, float]:
    """95 % interval of a share (Wilson, JASA 22:209, 1927); 0..1 for `total` 0."""
    if total == 0:
        return (0.0, 1.0)
    share, z2 = right / total, Z_95**2
    centre = (share + z2 / (2 * total)) / (1 + z2 / total)
    half = Z_95 * math.sqrt(share * (1 - share) / total + z2 / (4 * total**2)) / (1 + z2 / total)
    return (max(0.0, min(centre - half, share)), min(1.0, max(centre + half, share)))  # rounding must not exclude it
