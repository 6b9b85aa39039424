"""Faults of a photo that make a diagnosis unreliable: out of focus, too dark, too small."""

from __future__ import annotations

from typing import Final

import cv2

from core.data.health import BRIGHT, SHARP, TINY, sharpness
from core.data.photo import square
from core.ops.contract import Array

SIDE: Final = 160
"""Pixels at which a photo is looked at, whatever its own and its network's."""
LIGHTEST: Final = 0.05
"""Share of the pixels that tells how bright a photo is: a dark background says nothing."""


def photo_faults(rgb: Array) -> tuple[str, ...]:
    """Sentences on a photo, uint8 RGB ``(height, width, 3)``; the limits are those of a set's examination
    (`core.data.health`).

    Of 2,637 validation photos 7 get a sentence, one of them that it is out of focus; blurred by 3 pixels (of 224) all
    but 6 of them do.
    """
    height, width = rgb.shape[:2]
    if min(height, width) < TINY:
        return (f"{width} x {height} pixels are too few to show lesions; at least {TINY} are needed on each side.",)
    grey = cv2.cvtColor(square(rgb, SIDE), cv2.COLOR_RGB2GRAY)
    if float((grey > 255 * BRIGHT).mean()) < LIGHTEST:
        return ("The photo is too dark. Take it again in better light.",)
    if sharpness(grey) < SHARP:
        return ("The photo is out of focus. Take it again from further away.",)
    return ()
