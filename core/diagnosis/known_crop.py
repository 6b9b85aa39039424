"""Diagnoses of photos whose crop the user names: the classes of other crops are excluded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.diagnosis.calibration import crop_of
from core.diagnosis.thresholds import NO_LEAF_NAMES
from core.errors import InputError
from core.ops.contract import Array


def list_crops(classes: Sequence[str]) -> list[str]:
    """The crops in class names, sorted; empty if there are fewer than two, so that none can be excluded."""
    crops = {crop_of(name) for name in classes if name.lower() not in NO_LEAF_NAMES} - {""}
    return sorted(crops) if len(crops) > 1 else []


def find_crop(classes: Sequence[str], name: str) -> str:
    """The crop with this name, in upper or lower case; "" for "". Raises InputError if the model does not know it."""
    if not name:
        return ""
    crops = list_crops(classes)
    found = [crop for crop in crops if crop.lower() == name.strip().lower()]
    if not found:
        known = f"It knows {', '.join(crops)}." if crops else "Its classes are not of several crops."
        raise InputError(f"--known-crop: the model does not know the crop {name!r}. {known}")
    return found[0]


def restrict(probabilities: Array, classes: Sequence[str], crop: str, multilabel: bool = False) -> Array:
    """Probabilities ``(..., classes)`` of photos of this crop: those of its classes, given that there is a leaf.

    That of a photo without a leaf stays. Without a crop nothing changes; labels that exclude no other (`multilabel`)
    keep their probabilities.
    """
    if not crop:
        return probabilities
    bare = np.array([name.lower() in NO_LEAF_NAMES for name in classes])
    own = probabilities * np.array([crop_of(name) == crop for name in classes])
    if not multilabel:
        leaf = 1 - probabilities[..., bare].sum(axis=-1, keepdims=True)
        total = own.sum(axis=-1, keepdims=True)
        own = own * (leaf / np.where(total > 0, total, 1))
    return np.asarray(np.where(bare, probabilities, own))
