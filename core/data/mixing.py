"""Photos mixed with their neighbours in the epoch's order, and what a mixed photo teaches.

A photo is mixed as a whole (Zhang et al., "mixup: beyond empirical risk minimization", 2018) or gives a box to the
other photo (Yun et al., "CutMix", 2019), each every second time. The order is random, so a neighbour is any photo.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from core.data.augment import PRESETS, affine
from core.data.philox import uniforms
from core.ops.contract import Array
from core.ops.photo import BACKGROUND, BACKGROUND_AFFINE, CUTOUT, MASK

_STREAM: Final = 0x4D495820
"""Second word of the generator's key; other draws have others."""
_DRAWS: Final = 12


@final
@dataclass(frozen=True, slots=True)
class Mixing:
    """chance: share 0..1 of the photos that are mixed; part: photos that are computed at once, of which a batch has one
    or several; classes and smoothing: of the targets; augment: how the other photo is cropped."""

    chance: float
    part: int
    classes: int
    smoothing: float
    augment: str

    def draw(
        self, rows: Array, which: Array, labels: Array, key: tuple[int, int], photos: Array, occurrence: Array,
        source: int, size: int,
    ) -> Array:  # fmt: skip
        """Write the mixes into a batch's rows ``(N, AUGMENTATION_SIZE)``; gives its targets, float32 ``(N, classes)``.

        which: the photos' numbers in the set that the device has, int ``(N,)``; labels ``(N,)``; photos of side
        `source` are shown at side `size`. A pure function of key (seed, epoch), photos and occurrence.
        """
        u = uniforms(_DRAWS, photos, occurrence, key[1], (key[0], _STREAM))
        other = pair_up(len(rows), self.part)
        mixed = np.flatnonzero((u[:, 0] < self.chance) & (other >= 0))
        other = other[mixed]
        share, boxes = _shares(u[mixed], size)
        rows[mixed, BACKGROUND] = -1 - which[other]
        rows[mixed, MASK] = np.where(boxes.any(axis=1), 1, share)
        rows[mixed, CUTOUT] = boxes
        rows[mixed, BACKGROUND_AFFINE] = affine(PRESETS[self.augment], u[mixed, 5:], source, size)
        targets = smoothed(labels, self.classes, self.smoothing)
        targets[mixed] = share[:, None] * targets[mixed] + (1 - share[:, None]) * targets[other]
        return targets.astype(np.float32)


def pair_up(count: int, part: int) -> Array:
    """The place in its batch of each photo's neighbour, the same way round for both; -1 without one in its part."""
    at = np.arange(count)
    first = at // part * part
    other = first + ((at - first) ^ 1)
    return np.where(other < np.minimum(first + part, count), other, -1)


def _shares(u: Array, size: int) -> tuple[Array, Array]:
    """How much of each photo is its own, 0..1, and the box that is the other's: y0, x0, y1, x1, zeros without one."""
    own, side = u[:, 1], size * np.sqrt(1 - u[:, 1])
    y, x = u[:, 3] * size - side / 2, u[:, 4] * size - side / 2
    boxes = np.clip(np.rint(np.stack((y, x, y + side, x + side), axis=1)), 0, size)
    covered = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) / size**2
    cut = (u[:, 2] < 0.5) & (covered > 0)
    return np.where(cut, 1 - covered, own), np.where(cut[:, None], boxes, 0)


def smoothed(labels: Array, classes: int, smoothing: float) -> Array:
    """What labels ``(N,)`` teach: all certainty but `smoothing`, which all classes share; ``(N, classes)``."""
    targets = np.full((len(labels), classes), smoothing / classes)
    targets[np.arange(len(labels)), labels] += 1 - smoothing
    return targets
