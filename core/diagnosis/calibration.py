"""Calibration: one temperature that makes the stated probabilities come true, and how true they are.

Source: Guo et al., "On calibration of modern neural networks", 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from core.diagnosis.figures import cross_entropy, softmax
from core.ops.contract import Array

BINS: Final = 15
COLDEST: Final = 0.05
HOTTEST: Final = 20.0
GOLDEN: Final = (5**0.5 - 1) / 2


@final
@dataclass(frozen=True, slots=True)
class Bin:
    """Photos whose stated probability lies in [low, high]: how many, mean stated, share right."""

    low: float
    high: float
    photos: int
    stated: float
    right: float


@final
@dataclass(frozen=True, slots=True)
class Reliability:
    """Stated against true: expected calibration error with bins of equal width, and of equal count."""

    error: float
    error_equal_count: float
    bins: tuple[Bin, ...]


def fit_temperature(logits: Array, labels: Array) -> float:
    """The temperature with the least mean cross entropy of ``logits / T`` (golden section over log T).

    The loss has one minimum in 1/T (it is convex there), so the section finds it to 1e-5. 1.0 without photos.
    """
    if not len(labels):
        return 1.0
    low, high = np.log(COLDEST), np.log(HOTTEST)

    def loss(log_t: float) -> float:
        return float(cross_entropy(logits.astype(np.float64) / np.exp(log_t), labels).mean())

    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = loss(left), loss(right)
    while high - low > 1e-5:
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = loss(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = loss(right)
    return float(np.exp((low + high) / 2))


def measure_reliability(logits: Array, labels: Array, temperature: float = 1.0, bins: int = BINS) -> Reliability:
    """How far the stated probability of the top answer is from the share of right answers."""
    probabilities = softmax(logits, temperature)
    stated = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == labels
    edges = np.linspace(0.0, 1.0, bins + 1)
    width_bins = _bins(stated, right, edges)
    count_bins = _equal_count(stated, right, bins)
    return Reliability(_error(width_bins), _error(count_bins), width_bins)


def describe_error(error: float) -> str:
    """The expected calibration error in words. `error`: 0..1."""
    return (f"Stated probabilities are off by {100 * error:.1f} points on average on validation photos; on photos of "
            "another kind it can be much more.")  # fmt: skip


def _bins(stated: Array, right: Array, edges: Array) -> tuple[Bin, ...]:
    which = np.clip(np.searchsorted(edges, stated, side="left") - 1, 0, len(edges) - 2)
    out = []
    for i in range(len(edges) - 1):
        inside = which == i
        if inside.any():
            row = (int(inside.sum()), float(stated[inside].mean()), float(right[inside].mean()))
            out.append(Bin(float(edges[i]), float(edges[i + 1]), *row))
    return tuple(out)


def _equal_count(stated: Array, right: Array, bins: int) -> tuple[Bin, ...]:
    parts = [p for p in np.array_split(np.argsort(stated, kind="stable"), bins) if len(p)]
    return tuple(
        Bin(float(stated[p].min()), float(stated[p].max()), len(p), float(stated[p].mean()), float(right[p].mean()))
        for p in parts
    )


def _error(bins: tuple[Bin, ...]) -> float:
    total = sum(b.photos for b in bins)
    return sum(b.photos * abs(b.stated - b.right) for b in bins) / total if total else 0.0
