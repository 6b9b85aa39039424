"""Measures how much a model depends on the background: the border baseline, and accuracy on changed backgrounds.

The border baseline is the accuracy of 7 nearest neighbours on eight small patches along the border of the photo
(corners and middles of the sides), which rarely show the leaf. If it is high, a network may have learned paper and
light instead of leaves (after Noyan 2022, "Uncovering bias in the PlantVillage dataset"). It sees the same squares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import cv2
import numpy as np

from core.data.cache import PhotoCache
from core.diagnosis.metrics import Subset, difference_interval, wilson_interval
from core.ops.contract import Array
from core.percent import rounded

NEIGHBOURS: Final = 7
PATCH: Final = 1 / 12
"""Side of a patch, as a share of the photo's side."""
MOST_TRAINING: Final = 20_000
MOST_EVALUATED: Final = 5_000
"""Largest numbers of training and evaluated photos, drawn by seed, so that large datasets take seconds too."""
_BLOCK: Final = 512
BLUR: Final = 15
"""Standard deviation of the Gaussian blur, in pixels of 224, that removes the background's texture."""
SECTION: Final = "reading_leaf"
HIGH_BORDER: Final = 0.5
"""Border accuracy, rescaled so that the majority class is 0 and certainty 1, above which the report has a caution."""
CLEARLY_BETTER: Final = 0.05
"""Accuracy above the border baseline, below which there is no evidence that the model uses the leaves."""
TOO_FEW: Final = "unknown, because the photos are too few to exclude a high one"
AT_CHANCE: Final = "unknown, because the accuracy is not clearly above that of always predicting the most common class"


@dataclass(frozen=True, slots=True)
class Baseline:
    """border: accuracy of the border baseline; commonest: of always predicting the most frequent training class."""

    border: float
    commonest: float


def measure_baseline(cache: PhotoCache, labels: Array, train: Array, evaluated: Array, seed: int = 0) -> Baseline:
    """Fit on rows `train` and evaluate on rows `evaluated` (int, both of usable photos); labels int ``(N,)``."""
    train, evaluated = _sample(train, MOST_TRAINING, seed), _sample(evaluated, MOST_EVALUATED, seed)
    features, queries = (border_features(cache.photos, cache.slots[rows]) for rows in (train, evaluated))
    return evaluate_border(features, labels[train], queries, labels[evaluated])


def evaluate_border(features: Array, labels: Array, queries: Array, true_labels: Array) -> Baseline:
    """The baseline, from `border_features` of training photos ``(N, 48)`` and evaluated ones ``(M, 48)``."""
    mean, deviation = features.mean(0), features.std(0) + 1e-6
    predicted = _vote((features - mean) / deviation, labels, (queries - mean) / deviation)
    majority = int(np.bincount(labels).argmax())
    return Baseline(float((predicted == true_labels).mean()), float((true_labels == majority).mean()))


def border_features(photos: Array, slots: Array) -> Array:
    """Mean and standard deviation of colours in border patches of `photos[slots]`, float32 ``(len(slots), 48)``."""
    side = photos.shape[1]
    size = max(int(side * PATCH), 1)
    low, middle, high = 0, (side - size) // 2, side - size
    corners = [(y, x) for y in (low, middle, high) for x in (low, middle, high) if (y, x) != (middle, middle)]
    out = np.empty((len(slots), len(corners), 2, 3), np.float32)
    for start in range(0, len(slots), _BLOCK):
        rows = slice(start, start + _BLOCK)
        for i, (y, x) in enumerate(corners):
            patch = photos[slots[rows], y : y + size, x : x + size].astype(np.float32)
            out[rows, i, 0], out[rows, i, 1] = patch.mean((1, 2)), patch.std((1, 2))
    return out.reshape(len(slots), -1)


def _sample(rows: Array, most: int, seed: int) -> Array:
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))


def _vote(features: Array, labels: Array, queries: Array) -> Array:
    """The majority label of the nearest neighbours of each query; in a tie, the label of the nearer neighbour."""
    predicted = np.empty(len(queries), labels.dtype)
    norms = (features * features).sum(1)
    count = min(NEIGHBOURS, len(features))
    for start in range(0, len(queries), _BLOCK):
        block = queries[start : start + _BLOCK]
        distance = norms - 2 * block @ features.T
        nearest = np.argpartition(distance, count - 1, axis=1)[:, :count]
        order = np.argsort(np.take_along_axis(distance, nearest, 1), axis=1)
        neighbours = labels[np.take_along_axis(nearest, order, 1)]
        votes = (neighbours[:, :, None] == neighbours[:, None, :]).sum(2)
        predicted[start : start + _BLOCK] = neighbours[np.arange(len(block)), votes.argmax(1)]
    return predicted


@dataclass(frozen=True, slots=True)
class BackgroundDependence:
    """Results of the background tests. All but `photos` are shares 0..1.

    photos: number of tested photos; border: accuracy of the border baseline; commonest: of always predicting the most
    frequent class; plain, blurred, swapped: of the model on unchanged, blurred and replaced backgrounds; chance: share
    of the tested photos in their most common class or label set.
    """

    photos: int
    border: float
    commonest: float
    plain: float
    blurred: float
    swapped: float
    chance: float

    @staticmethod
    def from_section(section: Mapping[str, Any] | None) -> BackgroundDependence | None:
        """The results in a model file's section; None if there is none or it is not valid."""
        section = section or {}
        try:
            section = {"chance": section["commonest"], **section}  # older files have only that of the test photos
            shares = [float(section[name]) for name in ("border", "commonest", "plain", "blurred", "swapped", "chance")]
            photos = int(section["photos"])
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        return BackgroundDependence(photos, *shares) if photos >= 0 and all(0 <= s <= 1 for s in shares) else None

    def sentences(self, reached: Subset | None = None) -> tuple[str, ...]:
        """The results as sentences; `reached`: by the model, on the photos of the border baseline."""
        drop = self.plain - self.swapped
        low, _ = wilson_interval(round(self.plain * self.photos), self.photos)
        least = "low" if difference_interval(self.plain, self.swapped, self.photos)[1] <= 0.1 else TOO_FEW
        degree = AT_CHANCE if low <= self.chance else "high" if drop > 0.1 else "moderate" if drop > 0.03 else least
        return (
            *describe_border(self.border, self.commonest, reached),
            f"With the leaf placed on the background of another photo, accuracy changes from {rounded(self.plain)} % "
            f"to {rounded(self.swapped)} %; with the background blurred, to {rounded(self.blurred)} % ({self.photos} "
            f"validation photos). Dependence on the background: {degree}.",
        )


def describe_border(border: float, commonest: float, reached: Subset | None = None) -> tuple[str, ...]:
    """Sentences on the border baseline and the model's accuracy on the same photos. Shares 0..1."""
    texts = [f"Border baseline: {rounded(border)} % accuracy from eight small patches along the photo border, without "
            "the leaf, classified by the nearest training photos (always predicting the most common class: "
            f"{100 * commonest:.1f} %)."]  # fmt: skip
    gained = reached.accuracy - border if reached else 0.0
    if reached and (gained < CLEARLY_BETTER
                    or difference_interval(reached.accuracy, border, reached.photos, reached.effect)[0] <= 0):
        texts.append("The network is not clearly better than the border baseline: nothing shows that it uses the "
                     "leaves.")
    elif reached and reached.interval[0] > commonest:
        texts.append(f"The network is {100 * gained:.1f} points better than the border baseline; only this part must "
                     "come from the leaves.")
    counted = (round(border * reached.photos), reached.photos, reached.effect) if reached else None
    least = wilson_interval(*counted)[0] if counted else border  # of few photos chance reaches every share
    if (least - commonest) / max(1 - commonest, 1e-9) > HIGH_BORDER:
        texts.append("In these photos the background and light reveal the class, so the accuracy says little about "
                     "field photos.")
    return tuple(texts)


def blur_background(photo: Array, leaf: Array) -> Array:
    """Blur everything but the leaf, with a soft edge."""
    return _blend(photo, leaf, cv2.GaussianBlur(photo, (0, 0), BLUR * photo.shape[0] / 224))


def swap_background(photo: Array, leaf: Array, other: Array, other_leaf: Array) -> Array:
    """Paste the leaf on the background of another photo, whose leaf is inpainted from its surroundings."""
    hole = cv2.dilate(other_leaf.astype(np.uint8), np.ones((5, 5), np.uint8))
    return _blend(photo, leaf, cv2.inpaint(other, hole, 3, cv2.INPAINT_TELEA))


def measure_backgrounds(
    photos: Array, leaves: Array, kinds: Array, find_right: Callable[[Array], Array], seed: int = 0
) -> tuple[float, float, float]:
    """Accuracy (plain, blurred, swapped) on photos uint8 ``(N, s, s, 3)`` with masks bool ``(N, s, s)``.

    `find_right` returns which photos are classified correctly, bool ``(N,)``. The other background is from a random
    photo of another class or label set, by seed; kinds: the number of that of each photo, int ``(N,)``.
    """
    rng = np.random.default_rng(seed)
    changed = np.empty_like(photos)  # one set at a time: 300 photos of 224 pixels have 45 MB
    plain = float(find_right(photos).mean())
    for i in range(len(photos)):
        changed[i] = blur_background(photos[i], leaves[i])
    blurred = float(find_right(changed).mean())
    for i in range(len(photos)):
        others = np.flatnonzero(kinds != kinds[i])
        j = int(rng.choice(others)) if len(others) else i
        changed[i] = swap_background(photos[i], leaves[i], photos[j], leaves[j])
    return plain, blurred, float(find_right(changed).mean())


def _blend(photo: Array, leaf: Array, background: Array) -> Array:
    """The leaf of a photo on a background, with an edge of a few pixels."""
    alpha = np.asarray(cv2.GaussianBlur(leaf.astype(np.float32), (0, 0), 1.2))[..., None]
    return np.asarray(photo * alpha + background * (1 - alpha) + 0.5).astype(np.uint8)
