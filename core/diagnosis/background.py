"""Is it reading the leaf? What the border alone gives away, and what a changed background does to the answers.

The border baseline follows Noyan, "Uncovering bias in the PlantVillage dataset", 2022 (there 8 single pixels).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final, final

import cv2
import numpy as np

from core.ops.contract import Array

PATCH: Final = 12
"""A border patch's side is this part of the photo's: eight of them at corners and edge middles."""
NEIGHBOURS: Final = 7
BLUR: Final = 15
"""Gaussian deviation, in pixels of 224, that leaves no texture of the background."""
SECTION: Final = "reading_leaf"
HIGH_BORDER: Final = 0.5
"""Border accuracy, as a share of the way from chance to certainty, from which the figures are read with care."""


@final
@dataclass(frozen=True, slots=True)
class ReadingLeaf:
    """Shares 0..1: accuracy from the border alone and by the commonest class; accuracy as the photos are, with the
    background blurred and swapped; mean share of the class map off the leaf. photos: how many were looked at."""

    photos: int
    border: float
    commonest: float
    plain: float
    blurred: float
    swapped: float
    off_leaf: float

    def to_section(self) -> dict[str, Any]:
        return asdict(self)

    def sentences(self) -> tuple[str, ...]:
        """What it means, in words."""
        said = [f"From eight patches of the border, without the leaf, {self.border:.0%} of photos are named right."]
        above = (self.border - self.commonest) / max(1 - self.commonest, 1e-9)
        if above > HIGH_BORDER:
            said.append("That is much: paper and light give the class away; such photos say little about the field.")
        drop = self.plain - self.swapped
        said.append(
            f"With the leaf on another photo's ground, accuracy goes from {self.plain:.1%} to {self.swapped:.1%}; "
            f"with the ground blurred, to {self.blurred:.1%}."
        )
        much = "much" if drop > 0.1 else "a little" if drop > 0.03 else "hardly"
        said.append(f"So the answers depend {much} on the background.")
        said.append(f"On average {self.off_leaf:.0%} of what speaks for an answer lies off the leaf.")
        return tuple(said)


def border_features(photos: Array) -> Array:
    """Mean and deviation of R, G, B of eight border patches, uint8 ``(N, s, s, 3)`` to float32 ``(N, 48)``."""
    side = photos.shape[1]
    k = max(side // PATCH, 1)
    middle = (side - k) // 2
    places = [(0, 0), (0, middle), (0, side - k), (middle, 0), (middle, side - k),
              (side - k, 0), (side - k, middle), (side - k, side - k)]  # fmt: skip
    parts = []
    for y, x in places:
        patch = photos[:, y : y + k, x : x + k].reshape(len(photos), -1, 3).astype(np.float32)
        parts += [patch.mean(axis=1), patch.std(axis=1)]
    return np.concatenate(parts, axis=1)


def border_accuracy(train: Array, train_labels: Array, test: Array, test_labels: Array) -> float:
    """Share of test photos that their 7 nearest training photos by border name right. Inputs of `border_features`."""
    mean, deviation = train.mean(axis=0), train.std(axis=0) + 1e-6
    known, asked = (train - mean) / deviation, (test - mean) / deviation
    right = 0
    for row, label in zip(asked, test_labels, strict=True):
        near = np.argpartition(((known - row) ** 2).sum(axis=1), min(NEIGHBOURS, len(known)) - 1)[:NEIGHBOURS]
        right += int(np.bincount(train_labels[near]).argmax() == label)
    return right / max(len(test_labels), 1)


def blur_background(photo: Array, leaf: Array) -> Array:
    """The photo with everything but the leaf blurred; the seam is soft."""
    soft = _soft(leaf)
    far = cv2.GaussianBlur(photo, (0, 0), BLUR * photo.shape[0] / 224)
    return np.asarray(photo * soft + far * (1 - soft) + 0.5).astype(np.uint8)


def swap_background(photo: Array, leaf: Array, other: Array, other_leaf: Array) -> Array:
    """The leaf on the ground of another photo, whose own leaf is painted over from around it."""
    soft = _soft(leaf)
    hole = cv2.dilate(other_leaf.astype(np.uint8), np.ones((5, 5), np.uint8))
    ground = cv2.inpaint(other, hole, 3, cv2.INPAINT_TELEA)
    return np.asarray(photo * soft + ground * (1 - soft) + 0.5).astype(np.uint8)


def measure_backgrounds(
    photos: Array, leaves: Array, labels: Array, answer: Callable[[Array], Array], seed: int = 0
) -> tuple[float, float, float]:
    """Accuracy (plain, blurred, swapped) on photos uint8 ``(N, s, s, 3)`` with masks bool ``(N, s, s)``.

    `answer` gives class indices ``(N,)``. The swapped ground comes from a photo of another class, by seed.
    """
    rng = np.random.default_rng(seed)
    blurred = np.stack([blur_background(p, m) for p, m in zip(photos, leaves, strict=True)])
    swapped = []
    for i in range(len(photos)):
        others = np.flatnonzero(labels != labels[i])
        j = int(rng.choice(others)) if len(others) else i
        swapped.append(swap_background(photos[i], leaves[i], photos[j], leaves[j]))
    sets = (photos, blurred, np.stack(swapped))
    plain, blur, swap = (float((answer(p) == labels).mean()) for p in sets)
    return plain, blur, swap


def _soft(leaf: Array) -> Array:
    """The mask with a seam of a few pixels, float32 ``(s, s, 1)``."""
    return np.asarray(cv2.GaussianBlur(leaf.astype(np.float32), (0, 0), 1.2))[..., None]
