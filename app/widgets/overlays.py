"""Overlays of a photo as RGBA: coloured class map, outlines of leaf and lesions, painted mask."""

from __future__ import annotations

from typing import Final

import numpy as np
from PySide6.QtGui import QImage

from app.mask import BACKGROUND, DISEASED
from app.viewmodels.thumbnails import to_image
from core.ops.contract import Array

SICK: Final = (214, 46, 30)
RIM: Final = (255, 255, 255)
UPSAMPLING: Final = 3
"""Outlines are drawn on a grid this many times finer than the mask, or they would be too thick."""

# From nearly transparent violet over orange to yellow: bright where the map is high. RGB at 0, 1/2 and 1.
RAMP: Final = np.array(((70, 30, 110), (225, 90, 60), (250, 235, 90)), np.float32)


def coloured(values: Array) -> QImage:
    """A map uint8 ``(h, w)`` in colours; low values are nearly transparent."""
    v = (values.astype(np.float32) / 255)[..., None]
    rgb = np.where(v < 0.5, RAMP[0] + 2 * v * (RAMP[1] - RAMP[0]), RAMP[1] + (2 * v - 1) * (RAMP[2] - RAMP[1]))
    alpha = 255 * np.sqrt(v)
    return to_image(np.concatenate([rgb, alpha], axis=2).astype(np.uint8))


def outlined(labels: Array, lesions: bool) -> QImage:
    """The outline of the leaf in white and, with `lesions`, of the diseased area in red; mask uint8 ``(h, w)``."""
    fine = labels.repeat(UPSAMPLING, axis=0).repeat(UPSAMPLING, axis=1)
    drawn = np.zeros((*fine.shape, 4), np.uint8)
    drawn[edge(fine > BACKGROUND, 3)] = (*RIM, 200)
    if lesions:
        drawn[edge(fine != DISEASED, 2)] = (*RIM, 220)
        drawn[edge(fine == DISEASED, 3)] = (*SICK, 255)
    return to_image(drawn)


def edge(mask: Array, width: int) -> Array:
    """The pixels of a bool mask ``(h, w)`` within `width` of a pixel outside it, excluding the image border."""
    import cv2  # the window opens without it

    inner = cv2.erode(mask.view(np.uint8), cv2.getStructuringElement(cv2.MORPH_CROSS, (3, 3)), iterations=width)
    return np.asarray(mask & (inner == 0))


def painted(labels: Array) -> QImage:
    """Leaf and diseased area, uint8 ``(h, w)``, for the brush: disease in red, pale outside the leaf, white rims."""
    drawn = np.zeros((*labels.shape, 4), np.uint8)
    drawn[labels == DISEASED] = (*SICK, 150)
    drawn[labels == BACKGROUND] = (*RIM, 90)
    drawn[edge(labels != DISEASED, 1)] = (*RIM, 220)
    return to_image(drawn)
