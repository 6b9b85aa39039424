"""Several leaves in one photo: which are examined, what part of the photo shows each, and their masks in the whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import cv2
import numpy as np

from core.data.photo import square
from core.diagnosis.leaf_detector import FoundLeaf, as_box
from core.diagnosis.prediction import Box
from core.ops.contract import Array

MARGIN: Final = 0.03
"""Around a leaf, as a share of its longer side."""
LIKE_LARGEST: Final = 0.1
"""Smallest area of a leaf, as a share of the largest leaf's: smaller ones are in the background."""


def choose_leaves(found: Sequence[FoundLeaf]) -> list[FoundLeaf]:
    """The leaves that the photo is about: those not much smaller than the largest one."""
    areas = [(y1 - y0) * (x1 - x0) for y0, x0, y1, x1 in (leaf.box for leaf in found)]
    return [leaf for leaf, area in zip(found, areas, strict=True) if area >= LIKE_LARGEST * max(areas)]


def cut_square(rgb: Array, box: Box, side: int) -> tuple[Array, Box]:
    """The square around a box, inside the photo, uint8 ``(side, side, 3)``; and the square's own box."""
    size = np.array(rgb.shape[:2])
    short = min(rgb.shape[:2])
    low, high = (size - short) / 2 + short * np.array(box[:2]), (size - short) / 2 + short * np.array(box[2:])
    cut = min(max(round(float((high - low).max()) * (1 + 2 * MARGIN)), 8), short)
    y, x = (round(float(v)) for v in np.clip((low + high - cut) / 2, 0, size - cut))
    corner = np.array((y, x)) - (size - short) / 2
    place = as_box(np.concatenate((corner, corner + cut)) / short)
    return square(rgb[y : y + cut, x : x + cut], side), place


def place_in_square(part: Array, box: Box, side: int) -> Array:
    """A map of a part of a photo at its place in the photo's centred square, float32 ``(side, side)``; 0 elsewhere."""
    y0, x0, y1, x1 = (round(side * v) for v in box)
    y1, x1 = max(y1, y0 + 1), max(x1, x0 + 1)
    small = cv2.resize(np.asarray(part, np.float32), (x1 - x0, y1 - y0), interpolation=cv2.INTER_AREA)
    whole = np.zeros((side, side), np.float32)
    inside = small[max(-y0, 0) : max(side - y0, 0), max(-x0, 0) : max(side - x0, 0)]
    y, x = max(y0, 0), max(x0, 0)
    whole[y : y + inside.shape[0], x : x + inside.shape[1]] = inside
    return whole
