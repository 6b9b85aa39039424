"""Digits as image files: MNIST's digits unpacked into folders, and photographed digits converted to MNIST's format.

In this format a digit is white on black, 20 pixels tall, and its centre of mass is in the middle. The paper may be
shaded or slightly rotated; the digit is what differs most from the paper around it. Source: LeCun, Cortes, Burges, "The
MNIST database".
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import cv2
import numpy as np

from core.data.digits import SIDE
from core.errors import DataError
from core.ops.contract import Array
from core.storage import saving

FOLDERS: Final = ("train", "test")
"""Folders of the training and the test digits, which define the split."""
INNER: Final = 20
"""Pixels of the longer side of a digit within the 28 x 28."""
WORKING: Final = 400
"""Longer side of the photo in which ink is separated from paper, pixels."""
LEAST: Final = 0.002
"""Smallest area of a stroke, as a share of the photo; smaller parts are dust."""
CONTRAST: Final = 25
"""Least difference between ink and paper, of 255."""


def unpack(parts: Iterable[tuple[Array, Array]], out: Path) -> int:
    """Write digits as ``out/train/7/00042.png``; returns their number. Raises DataError (not empty), StorageError."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"{out} is not an empty folder. Choose a new folder with --out.")
    count = 0
    for folder, (photos, labels) in zip(FOLDERS, parts, strict=True):
        for number, (photo, label) in enumerate(zip(photos, labels, strict=True)):
            place = out / folder / str(label)
            with saving(place):
                place.mkdir(parents=True, exist_ok=True)
                (place / f"{number:05}.png").write_bytes(cv2.imencode(".png", photo)[1].tobytes())
        count += len(photos)
    return count


def read_digit(photo: Array) -> Array:
    """The digit, uint8 ``(28, 28, 1)``, in a photo uint8 ``(H, W)`` or ``(H, W, 3)``. Raises DataError without one."""
    grey = photo if photo.ndim == 2 else cv2.cvtColor(photo, cv2.COLOR_RGB2GRAY)
    if grey.shape == (SIDE, SIDE) and np.median(grey) < CONTRAST:  # as `unpack` writes it
        return np.asarray(grey[..., None])
    scale = WORKING / max(grey.shape)
    size = [max(1, round(side * scale)) for side in reversed(grey.shape)]
    grey = cv2.resize(grey, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
    ink = _ink(grey)
    mask = _strokes(ink)
    y, x = np.nonzero(mask)
    if not len(y):
        raise DataError("No digit was found in this photo. Write the digit dark on plain paper so that it fills half "
                        "of the photo.")
    cut = np.where(mask, ink, 0)[y.min() : y.max() + 1, x.min() : x.max() + 1]
    return _centred(cut)


def _ink(grey: Array) -> Array:
    """Difference of each pixel from the paper around it, 0 to 255; of lighter pixels on dark paper."""
    top, left = (side // 10 for side in grey.shape)
    middle = grey[top : len(grey) - top, left : grey.shape[1] - left]
    if np.median(grey) < middle.mean() - CONTRAST / 5 and np.median(grey) < 110:
        grey = 255 - grey  # chalk on a board
    paper = cv2.medianBlur(cv2.dilate(grey, np.ones((25, 25), np.uint8)), 51)
    return np.asarray(cv2.subtract(paper, cv2.GaussianBlur(grey, (5, 5), 0)))


def _strokes(ink: Array) -> Array:
    """Mask of the digit: ink above Otsu's threshold, without dust and parts at the border."""
    level, _ = cv2.threshold(ink, 0, 255, cv2.THRESH_OTSU)
    mask = (ink > max(level, CONTRAST)).astype(np.uint8)
    mask = cv2.morphologyEx(mask, cv2.MORPH_CLOSE, np.ones((5, 5), np.uint8))
    count, parts, figures, _ = cv2.connectedComponentsWithStats(mask)
    height, width = mask.shape
    kept = np.zeros(count, bool)
    for k in range(1, count):
        x, y, w, h, area = figures[k]
        at_border = x <= 1 or y <= 1 or x + w >= width - 1 or y + h >= height - 1
        kept[k] = area >= LEAST * mask.size and not at_border
    if kept.any():  # parts far smaller than the largest are blots
        largest = figures[kept.nonzero()[0], cv2.CC_STAT_AREA].max()
        kept &= figures[:, cv2.CC_STAT_AREA] >= largest / 8
    return np.asarray(kept[parts])


def _centred(cut: Array) -> Array:
    """The digit scaled to 20 x 20, with its centre of mass in the middle of 28 x 28."""
    stroke = cut.astype(np.float32) / max(float(cut.max()), 1.0)
    scale = INNER / max(stroke.shape)
    size = (max(1, round(stroke.shape[1] * scale)), max(1, round(stroke.shape[0] * scale)))
    small = cv2.resize(cv2.GaussianBlur(stroke, (0, 0), max(0.3 / scale, 0.01)), size, interpolation=cv2.INTER_AREA)
    small = np.clip(small / max(float(small.max()), 1e-6) * 1.3, 0, 1)
    sums = cv2.moments(small)
    top, left = (round((SIDE - 1) / 2 - sums[name] / max(sums["m00"], 1e-6)) for name in ("m01", "m10"))
    top, left = min(max(top, 0), SIDE - small.shape[0]), min(max(left, 0), SIDE - small.shape[1])
    digit = np.zeros((SIDE, SIDE, 1), np.uint8)
    digit[top : top + small.shape[0], left : left + small.shape[1], 0] = (small * 255).astype(np.uint8)
    return digit
