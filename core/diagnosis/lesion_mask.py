"""Which part of the leaf is diseased: tissue that is browner, darker, or paler than the leaf's own green.

The reference is the greener half of the same leaf, so that light and variety do not matter; diffuse yellowing
does not count. Constants were set on twelve hand-marked photos (tests/core/diagnosis/masks), eight were held out.
"""

from __future__ import annotations

from typing import Final

import cv2
import numpy as np

from core.ops.contract import Array

LEAST_LEAF: Final = 50
"""Pixels of leaf below which nothing is said."""
BROWN: Final = 6.0
"""Shift of Lab's a* (green to red) from the leaf's own green that counts as brown; or half of that green, if more."""
SPOT_SHIFT: Final = 3.5
SPOT_LIGHT: Final = 0.97
"""A small spot is this much redder than its surroundings (a seventh of the photo), and darker by this factor."""
DARK: Final = 0.5
"""Dead tissue has at most this part of the leaf's lightness and colourfulness."""
PALE_COLOUR: Final = 0.6
PALE_LIGHT: Final = 1.2
"""Mildew has at most this part of the leaf's colourfulness and is lighter by this factor."""
PALE_SPOT: Final = 0.02
"""Share of the leaf above which a pale patch is taken for glare, unless the leaf is known to have mildew."""


def segment_lesions(rgb: Array, leaf: Array, mildew: bool = False) -> Array:
    """Mask of diseased tissue, bool ``(height, width)``, inside `leaf` of the same uint8 RGB photo.

    With `mildew` large pale patches count as diseased; else they are taken for glare.
    """
    if leaf.sum() < LEAST_LEAF:
        return np.zeros_like(leaf)
    lab = cv2.cvtColor(cv2.GaussianBlur(rgb, (3, 3), 0), cv2.COLOR_RGB2LAB).astype(np.float32)
    light, a, b = lab[..., 0], lab[..., 1] - 128, lab[..., 2] - 128
    colour = np.hypot(a, b)
    inner = _inner(leaf)
    green = inner & (a <= np.median(a[inner]))
    light0, a0, b0, colour0 = (float(np.median(v[green])) for v in (light, a, b, colour))
    yellow = (light > 1.08 * light0) & (b > b0 + 4) & (colour > colour0)
    brown = (a - a0 > max(BROWN, 0.5 * abs(a0))) & ~yellow
    spot = (a - _around(a, leaf) > SPOT_SHIFT) & (light < SPOT_LIGHT * _around(light, leaf))
    dark = (light < DARK * light0) & (colour < DARK * colour0) & (a > 0.45 * a0)
    pale = (colour < PALE_COLOUR * colour0) & (light > PALE_LIGHT * light0)
    if not mildew:
        pale = _small_parts(pale & inner, PALE_SPOT * float(leaf.sum()))
    found = ((brown | spot | dark | pale) & inner).astype(np.uint8)
    return np.asarray(cv2.morphologyEx(found, cv2.MORPH_OPEN, np.ones((2, 2), np.uint8)) > 0)


def _inner(leaf: Array) -> Array:
    """The leaf without its rim of two pixels, where leaf and background mix."""
    inner = cv2.erode(leaf.astype(np.uint8), cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (5, 5))) > 0
    return np.asarray(inner if inner.sum() >= LEAST_LEAF else leaf)


def _small_parts(mask: Array, most: float) -> Array:
    """The connected parts of at most so many pixels."""
    count, parts, boxes, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=8)
    small = boxes[:count, cv2.CC_STAT_AREA] <= most
    small[0] = False
    return np.asarray(small[parts])


def _around(values: Array, leaf: Array) -> Array:
    """Mean over the leaf's pixels in a box of a seventh of the photo."""
    side = leaf.shape[0] // 7 | 1
    weight = leaf.astype(np.float32)
    return np.asarray(cv2.blur(values * weight, (side, side)) / np.maximum(cv2.blur(weight, (side, side)), 1e-3))
