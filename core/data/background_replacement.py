"""Which leaves are set on another photo's ground, and how that ground lies: draws for the photo kernel.

Paper and light often tell the class (`core.diagnosis.background_dependence`); a ground drawn at random does not.
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
"""Second word of the generator's key; other draws have others."""
_DRAWS: Final = 9
_LIE: Final = Strength(area=0.3, aspect=1.25, turn=20, quarters=True)
"""A ground is cropped and turned on its own, whatever is done to the leaf."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class BackgroundReplacement:
    """chance: share 0..1 of the photos that are set on another ground; can: bool ``(slots,)``, where a leaf was found
    that can be cut out; `backgrounds.masks` has one mask a slot."""

    backgrounds: Backgrounds
    can: Array
    chance: float

    def draw(
        self, rows: Array, slots: Array, key: tuple[int, int], photos: Array, occurrence: Array, size: int
    ) -> None:
        """Write grounds into rows ``(N, AUGMENTATION_SIZE)`` of photos in `slots` and are shown at side `size`.

        A pure function of key (seed, epoch), photo and occurrence, as `core.data.augment.draw_rows`.
        """
        seed, epoch = key
        u = uniforms(_DRAWS, photos, occurrence, epoch, (seed, _STREAM))
        grounds = self.backgrounds.images
        chosen = np.flatnonzero((u[:, 0] < self.chance) & self.can[slots])
        rows[chosen, BACKGROUND] = 1 + np.floor(u[chosen, 1] * len(grounds))
        rows[chosen, MASK] = slots[chosen]
        rows[chosen, BACKGROUND_AFFINE] = affine(_LIE, u[chosen, 2:], grounds.shape[1], size)
