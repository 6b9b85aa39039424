"""Diagnoses of photos whose crop the user names: the classes of other crops are excluded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from core.data.dataset import clean_name
from core.diagnosis.calibration import crop_of
from core.diagnosis.thresholds import Thresholds, is_no_leaf
from core.errors import InputError
from core.ops.contract import Array

LEAST: Final = 0.01
"""Of 600 validation photos none had a smaller probability of its crop; below it, a photo is of another crop."""


def list_crops(classes: Sequence[str]) -> list[str]:
    """The crops in class names, sorted; empty if there are fewer than two, so that none can be excluded."""
    crops = {crop_of(name) for name in classes if not is_no_leaf(name)} - {""}
    return sorted(crops) if len(crops) > 1 else []


def find_crop(classes: Sequence[str], name: str) -> str:
    """The crop with this name, in upper or lower case; "" for "". Raises InputError if the model does not know it."""
    if not name:
        return ""
    crops = list_crops(classes)
    found = [crop for crop in crops if crop.lower() == clean_name(name).lower()]
    if not found:
        known = f"It knows {', '.join(crops)}." if crops else "Its classes are not of several crops."
        raise InputError(f"--known-crop: the model does not know the crop {name!r}. {known}")
    return found[0]


def restrict(
    probabilities: Array, familiar: Any, thresholds: Thresholds | None, classes: Sequence[str], crop: str
) -> tuple[Array, Any]:
    """Probabilities ``(..., classes)`` and familiarity ``(...)`` of photos of this crop; unchanged without a crop.

    Probabilities are those of the crop's classes, given that there is a leaf; that of no leaf stays, and where photos
    may have several labels, all labels keep theirs. A photo of another crop is unfamiliar.
    """
    if not crop:
        return probabilities, familiar
    bare = np.array([is_no_leaf(name) for name in classes])
    own = probabilities * np.array([crop_of(name) == crop for name in classes])
    total, none = (part.sum(axis=-1, keepdims=True) for part in (own, probabilities[..., bare]))
    if thresholds is None or not thresholds.labels:
        own = own * (1 - none) / np.where(total > 0, total, 1)
    return np.where(bare, probabilities, own), np.where((total + none)[..., 0] < LEAST, -np.inf, familiar)
