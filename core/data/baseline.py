"""Border baseline: accuracy of a classifier that sees only the border of the photos.

The classifier is 7 nearest neighbours on eight small patches along the border (corners and middles of the sides), which
rarely show the leaf. Where it does well, a network may have learned paper and light instead of leaves (after Noyan
2022, "Uncovering bias in the PlantVillage dataset"). It sees the centred squares that the network sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from core.data.cache import PhotoCache
from core.ops.contract import Array

NEIGHBOURS: Final = 7
PATCH: Final = 1 / 12
"""Side of a patch, as a share of the photo's side."""
MOST_TRAINING: Final = 20_000
MOST_EVALUATED: Final = 5_000
"""Largest numbers of training and evaluated photos, drawn by seed, so that large datasets take seconds too."""
_BLOCK: Final = 512


@final
@dataclass(frozen=True, slots=True)
class Baseline:
    """The border baseline of a set of photos.

    border: accuracy of the nearest neighbours; border_by_class: balanced accuracy; majority: accuracy of always
    predicting the most frequent training class; photos: number of evaluated photos.
    """

    border: float
    border_by_class: float
    majority: float
    photos: int


def measure_baseline(cache: PhotoCache, labels: Array, train: Array, evaluated: Array, seed: int = 0) -> Baseline:
    """Fit on rows `train` and evaluate on rows `evaluated` (int, both of usable photos); labels int ``(N,)``."""
    train, evaluated = _sample(train, MOST_TRAINING, seed), _sample(evaluated, MOST_EVALUATED, seed)
    known, asked = (border_features(cache.photos, cache.slots[rows]) for rows in (train, evaluated))
    return evaluate_border(known, labels[train], asked, labels[evaluated])


def evaluate_border(known: Array, known_labels: Array, asked: Array, asked_labels: Array) -> Baseline:
    """The baseline from features of `border_features`, ``(N, 48)``, and labels int ``(N,)``, neither empty."""
    middle, spread = known.mean(0), known.std(0) + 1e-6
    predicted = _vote((known - middle) / spread, known_labels, (asked - middle) / spread)
    right = predicted == asked_labels
    majority = int(np.bincount(known_labels).argmax())
    by_class = [float(right[asked_labels == label].mean()) for label in np.unique(asked_labels)]
    return Baseline(
        border=float(right.mean()), border_by_class=float(np.mean(by_class)),
        majority=float((asked_labels == majority).mean()), photos=len(asked_labels),
    )


def border_features(photos: Array, slots: Array) -> Array:
    """Mean and standard deviation of R, G and B in each border patch, float32 ``(len(slots), 48)``.

    photos: uint8 ``(N, side, side, 3)``; slots: indices of the photos to use.
    """
    side = photos.shape[1]
    size = max(int(side * PATCH), 1)
    low, middle, high = 0, (side - size) // 2, side - size
    corners = [(y, x) for y in (low, middle, high) for x in (low, middle, high) if (y, x) != (middle, middle)]
    out = np.empty((len(slots), len(corners), 2, 3), np.float32)
    for start in range(0, len(slots), _BLOCK):
        part = slice(start, start + _BLOCK)
        for at, (y, x) in enumerate(corners):
            patch = photos[slots[part], y : y + size, x : x + size].astype(np.float32)
            out[part, at, 0], out[part, at, 1] = patch.mean((1, 2)), patch.std((1, 2))
    return out.reshape(len(slots), -1)


def _sample(rows: Array, most: int, seed: int) -> Array:
    """A sorted random sample of at most `most` rows."""
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))


def _vote(known: Array, labels: Array, asked: Array) -> Array:
    """The majority label of the nearest neighbours; of a tie the one whose neighbours are nearer."""
    predicted = np.empty(len(asked), labels.dtype)
    lengths = (known * known).sum(1)
    count = min(NEIGHBOURS, len(known))
    for start in range(0, len(asked), _BLOCK):
        part = asked[start : start + _BLOCK]
        distance = lengths - 2 * part @ known.T
        near = np.argpartition(distance, count - 1, axis=1)[:, :count]
        nearness = np.argsort(np.take_along_axis(distance, near, 1), axis=1)
        voters = labels[np.take_along_axis(near, nearness, 1)]
        votes = (voters[:, :, None] == voters[:, None, :]).sum(2)
        predicted[start : start + _BLOCK] = voters[np.arange(len(part)), votes.argmax(1)]
    return predicted
