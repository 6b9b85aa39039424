"""The crops of a model, of which the user may name the one that photos show (`core.diagnosis.verdict`)."""

from __future__ import annotations

from collections.abc import Sequence

from core.data.dataset import clean_name
from core.diagnosis.calibration import crop_of
from core.diagnosis.thresholds import is_no_leaf
from core.errors import InputError


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
