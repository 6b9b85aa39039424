"""Parts of a judged set, side by side: lab and field photos, and the user's own, each with its interval.

A figure on lab photos says little about the field (published networks fall from 99 % to about 30 % there), so it is
never shown alone where there is one on field photos.
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
"""Name of the part that the user brought as a second test set."""


@final
@dataclass(frozen=True, slots=True)
class Subset:
    """Some of the judged photos: how many, and how many were named right."""

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
        """For JSON and for the model file's section with the test."""
        return {"name": self.name, "photos": self.photos, "right": self.accuracy, "interval": list(self.interval)}


def subsets_by_setting(
    right: Array, labels: Array, classes: Sequence[str], settings: Sequence[str]
) -> tuple[Subset, ...]:
    """One part for each place that photos of leaves were taken in, the largest first; none where no place is known.

    right: bool ``(N,)``; labels: int ``(N,)``; settings: the place of each photo ("" is unknown). Photos of classes
    without a leaf belong to no part: they are easy, and would flatter the field.
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
    """The parts by place with the user's own field photos after them; where no place is known, all judged photos
    stand beside those, under `all_name`. Without field photos the parts as they are."""
    if field is None:
        return tuple(places)
    whole = Subset(all_name, figures.photos, figures.right)
    return (*(places or (whole,)), Subset(OWN_FIELD, field.photos, field.right))


def describe_subset(part: Subset) -> str:
    """Name, share right and interval, in words."""
    low, high = part.interval
    return (f"{part.name} {100 * part.accuracy:.1f} % ({part.right} of {part.photos}, 95 % interval "
            f"{100 * low:.1f} to {100 * high:.1f} %)")  # fmt: skip


def describe_subsets(parts: Sequence[Subset]) -> str:
    """Lab and field side by side as one sentence, with what it means; empty where no place is known."""
    if not parts:
        return ""
    said = "By place: " + "; ".join(describe_subset(part) for part in parts) + ". "
    field = [part for part in parts if part.is_field]
    if not field:
        return said + "None was taken in the field, so how good the network is there is not known."
    if len(field) == len(parts):
        return said + "All were taken in the field."
    return said + "Outdoors only the field figure counts."
