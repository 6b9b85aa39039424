"""Fits the head of a network, a linear layer on pooled features, to a few photos without forgetting the others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from core.data.string_array import number_values
from core.diagnosis.metrics import softmax
from core.ops.contract import Array

PLACE_SHARE: Final = 0.3
"""Weight of the new photos in the loss; the rest is that of the replay."""
STEPS: Final = 200


@dataclass(frozen=True, slots=True, eq=False)
class LinearHead:
    """weight ``(classes, F)`` and bias ``(classes,)``, float64."""

    weight: Array
    bias: Array

    def logits(self, features: Array) -> Array:
        return np.asarray(features @ self.weight.T + self.bias)


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Pooled features ``(N, F)``, class indices ``(N,)``, and a group number for each photo ``(N,)``."""

    features: Array
    labels: Array
    groups: Array

    def take(self, rows: Array) -> Samples:
        return Samples(self.features[rows], self.labels[rows], self.groups[rows])


def fit_head(head: LinearHead, photos: Samples, replay: Samples | None, penalty: float) -> LinearHead:
    """Fit a head by softmax regression on photos and replay, penalized by the squared distance from `head`.

    With an infinite penalty, `head` is returned. Uses Nesterov's accelerated gradient method with step 1/L, where L is
    a bound on the curvature of the loss, so it needs no line search and is deterministic; in float32, twice as fast.
    """
    if np.isinf(penalty):
        return head
    parts = ((photos, 1.0),) if replay is None else ((photos, PLACE_SHARE), (replay, 1 - PLACE_SHARE))
    features, labels = (np.concatenate([getattr(part, name) for part, _ in parts]) for name in ("features", "labels"))
    x = np.c_[features, np.ones(len(features))].astype(np.float32)
    weights = np.concatenate([np.full(len(part.labels), share / len(part.labels), np.float32) for part, share in parts])
    target = np.eye(len(head.bias), dtype=np.float32)[labels]
    start = np.c_[head.weight, head.bias].astype(np.float32)
    step = 1 / (0.5 * float(np.linalg.eigvalsh((x.T * weights) @ x)[-1]) + penalty)
    point, lookahead, momentum = start, start, 1.0
    for _ in range(STEPS):
        errors = (softmax(x @ lookahead.T, dtype=np.float32) - target) * weights[:, None]
        gradient = errors.T @ x + penalty * (lookahead - start)
        previous, point = point, lookahead - step * gradient
        momentum, last = (1 + math.sqrt(1 + 4 * momentum**2)) / 2, momentum
        lookahead = point + (last - 1) / momentum * (point - previous)
    return LinearHead(point[:, :-1].astype(np.float64), point[:, -1].astype(np.float64))


def make_folds(labels: Array, groups: Array, count: int) -> Array:
    """The fold of each photo: groups stay together, and each class is spread over the folds."""
    order = np.lexsort((groups, labels))
    folds = np.empty(len(labels), np.int64)
    folds[order] = number_values(groups[order]) % count
    return folds
