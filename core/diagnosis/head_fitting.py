"""Fits the head of a network, a linear layer on pooled features, to a few photos without forgetting the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from core.diagnosis.metrics import softmax
from core.ops.contract import Array

PLACE_SHARE: Final = 0.3
"""Weight of the new photos in the loss; the rest is that of the replay."""
STEPS: Final = 200


@final
@dataclass(frozen=True, slots=True, eq=False)
class LinearHead:
    """weight ``(classes, F)`` and bias ``(classes,)``, float64."""

    weight: Array
    bias: Array

    def logits(self, features: Array) -> Array:
        return np.asarray(features @ self.weight.T + self.bias)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Pooled features ``(N, F)``, class indices ``(N,)``, and a group number for each photo ``(N,)``."""

    features: Array
    labels: Array
    groups: Array

    def take(self, rows: Array) -> Samples:
        return Samples(self.features[rows], self.labels[rows], self.groups[rows])


def fit_head(head: LinearHead, photos: Samples, replay: Samples | None, penalty: float) -> LinearHead:
    """Softmax regression on photos and replay with `penalty` times the squared distance from the head; infinite: none.

    Nesterov's accelerated gradient method with the step 1/L, L the largest curvature of the loss: no search, and the
    same result every time.
    """
    if np.isinf(penalty):
        return head
    parts = ((photos, 1.0),) if replay is None else ((photos, PLACE_SHARE), (replay, 1 - PLACE_SHARE))
    features, labels = (np.concatenate([getattr(part, name) for part, _ in parts]) for name in ("features", "labels"))
    x = np.c_[features, np.ones(len(features))]
    weights = np.concatenate([np.full(len(part.labels), share / len(part.labels)) for part, share in parts])[:, None]
    target = np.eye(len(head.bias))[labels]
    start = np.c_[head.weight, head.bias]
    step = 1 / (0.5 * np.linalg.norm(x * np.sqrt(weights), 2) ** 2 + penalty)
    at, ahead, momentum = start, start, 1.0
    for _ in range(STEPS):
        gradient = ((softmax(x @ ahead.T) - target) * weights).T @ x + penalty * (ahead - start)
        before, at = at, ahead - step * gradient
        momentum, last = (1 + np.sqrt(1 + 4 * momentum**2)) / 2, momentum
        ahead = at + (last - 1) / momentum * (at - before)
    return LinearHead(at[:, :-1], at[:, -1])


def make_folds(labels: Array, groups: Array, count: int) -> Array:
    """The fold of each photo: groups stay together, and each class is spread over the folds."""
    order = np.lexsort((groups, labels))
    _, first, group = np.unique(groups[order], return_index=True, return_inverse=True)
    ranks = np.argsort(np.argsort(first))
    folds = np.empty(len(labels), np.int64)
    folds[order] = ranks[group] % count
    return folds
