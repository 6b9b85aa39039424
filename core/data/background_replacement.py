"""Random background replacement: which leaves get another background, as parameters for the photo kernel.

Paper and light often reveal the class (`core.diagnosis.background_dependence`); a random background does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from core.data.augment import Strength, affine
from core.data.philox import uniforms
from core.ops.contract import Array
from core.ops.photo import BACKGROUND, BACKGROUND_AFFINE, MASK, Backgrounds

_STREAM: Final = 0x47524E44
"""Second word of the generator's key; each use of the generator has its own."""
_DRAWS: Final = 9
_PLACEMENT: Final = Strength(area=0.3, aspect=1.25, turn=20, quarters=True)
"""Backgrounds are cropped and rotated independently of the leaf."""


@final
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
        self, rows: Array, slots: Array, key: tuple[int, int], photos: Array, occurrence: Array, size: int
    ) -> None:
        """Write replacements into the parameters `rows` of the photos in `slots`, resized to `size`.

        A pure function of key (seed, epoch), photo and occurrence, as `core.data.augment.draw_rows`.
        """
        seed, epoch = key
        u = uniforms(_DRAWS, photos, occurrence, epoch, (seed, _STREAM))
        images = self.backgrounds.images
        chosen = np.flatnonzero((u[:, 0] < self.chance) & self.replaceable[slots])
        rows[chosen, BACKGROUND] = 1 + np.floor(u[chosen, 1] * len(images))
        rows[chosen, MASK] = slots[chosen]
        rows[chosen, BACKGROUND_AFFINE] = affine(_PLACEMENT, u[chosen, 2:], images.shape[1], size)
