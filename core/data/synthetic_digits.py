"""Generates digits in MNIST's form, so that the kernels course needs no data set."""

from __future__ import annotations

from typing import Final

import cv2
import numpy as np

from core.data.idx import SIDE
from core.ops.contract import Array

CANVAS: Final = 2 * SIDE
"""Digits are drawn at twice their size and then reduced, pixels."""
HEIGHT: Final = 20 / 28
"""Mean height of a digit in its image; MNIST's are 20 of 28 pixels."""
FONTS: Final = (cv2.FONT_HERSHEY_SIMPLEX, cv2.FONT_HERSHEY_DUPLEX, cv2.FONT_HERSHEY_COMPLEX,
                cv2.FONT_HERSHEY_SCRIPT_SIMPLEX)  # fmt: skip
COUNTS: Final = {"train": 8192, "t10k": 2000}
"""Number of digits in the training and in the test part."""


def generate_digits(part: str) -> tuple[Array, Array]:
    """Return images uint8 ``(N, 28, 28, 1)`` and labels int32 ``(N,)`` of "train" or "t10k", always the same ones."""
    rng = np.random.default_rng([list(COUNTS).index(part), COUNTS[part]])
    labels = rng.integers(0, 10, COUNTS[part], np.int32)
    return np.stack([_draw(int(label), rng) for label in labels])[..., None], labels


def _draw(digit: int, rng: np.random.Generator) -> Array:
    """One digit, white on black, with a random font, pen, size, rotation, slant and position."""
    font, text, thickness = FONTS[int(rng.integers(len(FONTS)))], str(digit), int(rng.integers(3, 8))
    (width, height), _ = cv2.getTextSize(text, font, 1.0, 1)
    size = CANVAS * HEIGHT * rng.uniform(0.8, 1.1) / max(width, height)
    image = np.zeros((CANVAS, CANVAS), np.uint8)
    corner = (int((CANVAS - width * size) / 2), int((CANVAS + height * size) / 2))
    cv2.putText(image, text, corner, font, size, 255, thickness, cv2.LINE_AA)
    change = cv2.getRotationMatrix2D((CANVAS / 2, CANVAS / 2), float(rng.uniform(-15, 15)), 1.0)
    change[0, 1] += rng.uniform(-0.25, 0.25)  # slant
    change[:, 2] += rng.uniform(-0.08, 0.08, 2) * CANVAS
    change[0, 2] -= change[0, 1] * CANVAS / 2 + change[0, 0] * CANVAS / 2 - CANVAS / 2  # the slant keeps the centre
    moved = cv2.warpAffine(image, change, (CANVAS, CANVAS))
    small = cv2.resize(moved, (SIDE, SIDE), interpolation=cv2.INTER_AREA).astype(np.float32)
    return np.asarray(np.clip(small + rng.normal(0, 8, small.shape), 0, 255), np.uint8)
