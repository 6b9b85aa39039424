"""Colours at six scales around each pixel, and of the whole photo, for `core.diagnosis.segmentation`.

Colours are CIELAB. Ratios and distances of colours are left to the network.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import cv2
import numpy as np

from core.ops.contract import Array

SIDE: Final = 160
"""Pixels of a side. At 224 the errors are the same, at 128 lesions of a few pixels are missed."""
SCALES: Final = 5
"""Each scale averages squares of twice the side of the one before."""
LOCAL: Final = 3 + 1
"""Features of a pixel: its colour, and its distance from the middle."""
SCALE: Final = 4
"""Features of a pixel at each scale: colour, and deviation of lightness."""
GLOBAL: Final = 12
"""Features of a photo: median colour of border and middle, 10 % and 90 % quantiles of each colour channel."""
UNIT: Final = np.array([1 / 64, 1 / 32, 1 / 32], np.float32)
"""Scale of the features: most are within -2 to 2."""
COARSE: Final = 3
"""Scale from which the features of the photo are computed."""
RING: Final = 0.44
MIDDLE: Final = 0.2
"""Distances from the middle, in sides: where the border begins (larger coordinate), where the middle ends."""


def pixel_features(rgb: Array) -> tuple[Array, list[Array], Array]:
    """Features float32 of a photo uint8 ``(SIDE, SIDE, 3)``: of the pixels ``(SIDE, SIDE, LOCAL)``, of the squares
    ``(side, side, SCALE)`` at each scale, and of the photo ``(GLOBAL,)``."""
    lab = (cv2.cvtColor(rgb, cv2.COLOR_RGB2LAB).astype(np.float32) - 128) * UNIT
    found = np.dstack((cv2.blur(lab, (3, 3)), 2 - 4 * _distance(SIDE)[0]))
    mean, square, scales = lab, lab[..., 0] ** 2, []
    for scale in range(1, SCALES + 1):
        size = (SIDE >> scale, SIDE >> scale)
        mean, square = (cv2.resize(v, size, interpolation=cv2.INTER_AREA) for v in (mean, square))
        scales.append(np.dstack((mean, np.sqrt(np.maximum(square - mean[..., 0] ** 2, 0)))))
    coarse = scales[COARSE - 1][..., :3].reshape(-1, 3)
    radius, larger = (d.ravel() for d in _distance(SIDE >> COARSE))
    parts = (np.median(coarse[larger > RING], axis=0), np.median(coarse[radius < MIDDLE], axis=0))
    return found, scales, np.concatenate((*parts, *np.quantile(coarse, (0.1, 0.9), axis=0))).astype(np.float32)


@cache
def _distance(side: int) -> tuple[Array, Array]:
    """Distance of each pixel from the middle in sides: Euclidean, and the larger coordinate's."""
    y, x = np.abs(np.mgrid[0:side, 0:side].astype(np.float32) / (side - 1) - 0.5)
    return np.hypot(x, y), np.maximum(x, y)


@cache
def middle_weight() -> Array:
    """How much a pixel counts for a region's nearness to the middle: 1 there, 0 from 0.7 sides away."""
    return np.asarray((1 - np.minimum(_distance(SIDE)[0] / 0.7, 1)) ** 2)
