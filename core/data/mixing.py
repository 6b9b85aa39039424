"""Mixes photos of a batch: mixup, CutMix, and random backgrounds, as parameters for the photo kernel.

Half of the mixes blend whole photos (Zhang et al., "mixup: beyond empirical risk minimization", 2018), half paste a box
(Yun et al., "CutMix", 2019). The order of an epoch is random, so neighbours are random pairs. Paper and light often
reveal the class (`core.diagnosis.background_dependence`); a random background does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from core.data.augment import PRESETS, Strength, affine
from core.data.philox import uniforms
from core.ops.contract import Array
from core.ops.photo import BACKGROUND, BACKGROUND_AFFINE, CUTOUT, MASK, Backgrounds

_STREAM: Final = 0x4D495820
_BACKGROUND_STREAM: Final = 0x47524E44
"""Second words of the generator's keys; each use of the generator has its own."""
_DRAWS: Final = 12
_BACKGROUND_DRAWS: Final = 9
_PLACEMENT: Final = Strength(area=0.3, aspect=1.25, turn=20, quarters=True)
"""Backgrounds are cropped and rotated independently of the leaf."""


@dataclass(frozen=True, slots=True, eq=False)
class Mixing:
    """Mixes a random share of the photos of a batch.

    chance: probability 0..1; part: size of a micro-batch (photos are mixed within one); targets: of every
    label, float64 ``(labels, classes)``; augment: preset by which the other photo is cropped.
    """

    chance: float
    part: int
    targets: Array
    augment: str

    def draw(
        self, augmentation: Array, which: Array, labels: Array, key: tuple[int, int], photos: Array, occurrence: Array,
        source: int, size: int,
    ) -> Array:  # fmt: skip
        """Write the mixes into the batch's `augmentation`; return targets float32 ``(N, classes)``.

        which: indices of the photos among those on the device, int ``(N,)``; labels ``(N,)``; photos are resized from
        side `source` to `size`. A pure function of key (seed, epoch), photos and occurrence.
        """
        u = uniforms(_DRAWS, photos, occurrence, key[1], (key[0], _STREAM))
        other = pair_up(len(augmentation), self.part)
        mixed = np.flatnonzero((u[:, 0] < self.chance) & (other >= 0))
        other = other[mixed]
        share, boxes = _shares(u[mixed], size)
        augmentation[mixed, BACKGROUND] = -1 - which[other]
        augmentation[mixed, MASK] = np.where(boxes.any(axis=1), 1, share)
        augmentation[mixed, CUTOUT] = boxes
        augmentation[mixed, BACKGROUND_AFFINE] = affine(PRESETS[self.augment], u[mixed, 5:], source, size)
        targets = self.targets[labels]
        targets[mixed] = share[:, None] * targets[mixed] + (1 - share[:, None]) * targets[other]
        return targets.astype(np.float32)


def pair_up(count: int, part: int) -> Array:
    """Index of each photo's partner within its micro-batch, symmetric; -1 for a photo without one."""
    at = np.arange(count)
    first = at // part * part
    other = first + ((at - first) ^ 1)
    return np.where(other < np.minimum(first + part, count), other, -1)


def _shares(u: Array, size: int) -> tuple[Array, Array]:
    """Share of each photo that stays its own, 0..1, and the pasted box (y0, x0, y1, x1), zeros for a blend."""
    own, side = u[:, 1], size * np.sqrt(1 - u[:, 1])
    y, x = u[:, 3] * size - side / 2, u[:, 4] * size - side / 2
    boxes = np.clip(np.rint(np.stack((y, x, y + side, x + side), axis=1)), 0, size)
    covered = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) / size**2
    cut = (u[:, 2] < 0.5) & (covered > 0)
    return np.where(cut, 1 - covered, own), np.where(cut[:, None], boxes, 0)


@dataclass(frozen=True, slots=True, eq=False)
class BackgroundReplacement:
    """Replaces the background of a random share of photos.

    backgrounds: with one leaf mask per slot; replaceable: bool ``(slots,)``, where the leaf can be cut out; chance:
    probability of a replacement, 0..1.
    """

    backgrounds: Backgrounds
    replaceable: Array
    chance: float

    def draw(
        self, augmentation: Array, slots: Array, key: tuple[int, int], photos: Array, occurrence: Array, size: int
    ) -> None:
        """Write replacements into the parameters of the photos in `slots`: a function of key, photo and occurrence."""
        u = uniforms(_BACKGROUND_DRAWS, photos, occurrence, key[1], (key[0], _BACKGROUND_STREAM))
        images = self.backgrounds.images
        chosen = np.flatnonzero((u[:, 0] < self.chance) & self.replaceable[slots])
        augmentation[chosen, BACKGROUND] = 1 + np.floor(u[chosen, 1] * len(images))
        augmentation[chosen, MASK] = slots[chosen]
        augmentation[chosen, BACKGROUND_AFFINE] = affine(_PLACEMENT, u[chosen, 2:], images.shape[1], size)
