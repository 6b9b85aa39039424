"""What the border of a photo alone gives away: the number any accuracy on it must be read against.

Seven nearest neighbours on eight small patches along the border (corners and middles of the sides), no
leaf in them as a rule. Where this does well, a network may have learnt paper and light, not leaves
(after Noyan 2022, "Uncovering bias in the PlantVillage dataset"). It is measured on the centred squares that the
network sees; on whole photos that are not square it can differ a little (all 37 classes: 50.7 % and 50.3 %).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from core.data.cache import PhotoCache
from core.ops.contract import Array

NEIGHBOURS: Final = 7
PATCH: Final = 1 / 12
"""Side of a patch, as part of the photo's."""
MOST_KNOWN: Final = 20_000
MOST_EVALUATED: Final = 5_000
"""Photos that are learned from and judged at most, drawn by seed: 8 s on two busy cores, however large the set."""
_BLOCK: Final = 512


@final
@dataclass(frozen=True, slots=True)
class Baseline:
    """border: accuracy of the border's nearest neighbours; border_by_class: its mean over classes (balanced);
    majority: accuracy of always saying training's commonest class; photos: how many were judged."""

    border: float
    border_by_class: float
    majority: float
    photos: int


def measure_baseline(cache: PhotoCache, labels: Array, train: Array, judged: Array, seed: int = 0) -> Baseline:
    """Learn from rows `train`, judge rows `judged` (int, both of photos that can be used); labels int ``(N,)``."""
    train, judged = _some(train, MOST_KNOWN, seed), _some(judged, MOST_EVALUATED, seed)
    known, asked = (border_features(cache.photos, cache.slots[rows]) for rows in (train, judged))
    return evaluate_border(known, labels[train], asked, labels[judged])


def evaluate_border(known: Array, known_labels: Array, asked: Array, asked_labels: Array) -> Baseline:
    """The same from features of `border_features`, ``(N, 48)``, and labels int ``(N,)``, both not empty."""
    middle, spread = known.mean(0), known.std(0) + 1e-6
    said = _vote((known - middle) / spread, known_labels, (asked - middle) / spread)
    right = said == asked_labels
    commonest = int(np.bincount(known_labels).argmax())
    by_class = [float(right[asked_labels == label].mean()) for label in np.unique(asked_labels)]
    return Baseline(
        border=float(right.mean()),
        border_by_class=float(np.mean(by_class)),
        majority=float((asked_labels == commonest).mean()),
        photos=len(asked_labels),
    )


def border_features(photos: Array, slots: Array) -> Array:
    """Mean and deviation of R, G and B in each border patch, float32 ``(len(slots), 48)``.

    photos: uint8 ``(N, side, side, 3)``, of which those numbered `slots` are looked at.
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


def _some(rows: Array, most: int, seed: int) -> Array:
    """At most so many of the rows, in rising order."""
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))


def _vote(known: Array, labels: Array, asked: Array) -> Array:
    """The commonest label among the nearest known rows; of equals the one whose neighbours are nearer."""
    said = np.empty(len(asked), labels.dtype)
    lengths = (known * known).sum(1)
    count = min(NEIGHBOURS, len(known))
    for start in range(0, len(asked), _BLOCK):
        part = asked[start : start + _BLOCK]
        distance = lengths - 2 * part @ known.T
        near = np.argpartition(distance, count - 1, axis=1)[:, :count]
        nearness = np.argsort(np.take_along_axis(distance, near, 1), axis=1)
        voters = labels[np.take_along_axis(near, nearness, 1)]
        votes = (voters[:, :, None] == voters[:, None, :]).sum(2)
        said[start : start + _BLOCK] = voters[np.arange(len(part)), votes.argmax(1)]
    return said
