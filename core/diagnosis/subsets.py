"""Accuracy on subsets of the evaluated photos: lab photos, field photos, and the user's own field photos.

Accuracy on lab photos says little about the field, so it is never
shown without that on field photos if there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from core.diagnosis.metrics import Metrics, wilson_interval
from core.diagnosis.verdict import NO_LEAF_NAMES
from core.ops.contract import Array

FIELD: Final = "field"
OWN_FIELD: Final = "own field photos"
"""Name of the subset of the user's own field photos."""


@final
@dataclass(frozen=True, slots=True)
class Subset:
    """A subset of the evaluated photos: numbers of photos and of correct predictions."""

    name: str
    photos: int
    right: int

    @property
    def accuracy(self) -> float:
        return self.right / self.photos if self.photos else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the accuracy (Wilson)."""
        return wilson_interval(self.right, self.photos)

    @property
    def is_field(self) -> bool:
        return self.name == OWN_FIELD or self.name.split(" ")[0].lower() == FIELD

    def to_row(self) -> dict[str, Any]:
        """The subset as an entry of JSON output and of the model file."""
        return {"name": self.name, "photos": self.photos, "right": self.accuracy, "interval": list(self.interval)}


def subsets_by_setting(
    right: Array, labels: Array, classes: Sequence[str], settings: Sequence[str]
) -> tuple[Subset, ...]:
    """One subset for each setting in which leaves were photographed, largest first; empty if no setting is known.

    right: bool ``(N,)``; labels: int ``(N,)``; settings: of each photo, "" if unknown. Photos of classes without a leaf
    are in no subset: they are easy and would inflate the accuracy in the field.
    """
    bare = np.array([name.lower() in NO_LEAF_NAMES for name in classes])
    places = np.array([place.strip() for place in settings], np.str_)
    leaves = ~bare[labels]
    found = [Subset(f"{place} photos{' of leaves' if bare.any() else ''}", int(mask.sum()), int(right[mask].sum()))
             for place in np.unique(places) if place and (mask := (places == place) & leaves).any()]  # fmt: skip
    return tuple(sorted(found, key=lambda part: -part.photos))


def compare_with_field(
    places: Sequence[Subset], all_name: str, figures: Metrics, field: Metrics | None
) -> tuple[Subset, ...]:
    """The subsets by setting followed by the user's own field photos.

    Without settings, all evaluated photos under the name `all_name` are compared with the field photos. Without field
    photos, the subsets by setting alone.
    """
    if field is None:
        return tuple(places)
    whole = Subset(all_name, figures.photos, figures.right)
    return (*(places or (whole,)), Subset(OWN_FIELD, field.photos, field.right))


def describe_subset(subset: Subset) -> str:
    """Name, accuracy and interval as text."""
    low, high = subset.interval
    return (f"{subset.name} {100 * subset.accuracy:.1f} % ({subset.right} of {subset.photos}, 95 % interval "
            f"{100 * low:.1f} to {100 * high:.1f} %)")  # fmt: skip


def describe_subsets(parts: Sequence[Subset]) -> str:
    """The accuracy by setting as a sentence with its meaning; empty if no setting is known."""
    if not parts:
        return ""
    text = "By place: " + "; ".join(describe_subset(part) for part in parts) + ". "
    field = [part for part in parts if part.is_field]
    if not field:
        return text + "No photo was taken in the field, so the accuracy in the field is unknown."
    if len(field) == len(parts):
        return text + "All photos were taken in the field."
    return text + "For use outdoors, only the accuracy on field photos counts."
