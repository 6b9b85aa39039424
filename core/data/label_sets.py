"""Several labels of a photo, in the name of its class: ``apple/scab+black_rot``, or ``scab;rust`` in a manifest.

A `Dataset` keeps such names as classes, so that photos are split, sampled and counted by their set of labels. A network
has an output for each label: its predictions are compared with bool ``(N, labels)`` instead of class indices.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from core.ops.contract import Array

SEPARATORS: Final = re.compile(r"\s*[+;]\s*")


@dataclass(frozen=True, slots=True, eq=False)
class LabelSets:
    """The label sets of a dataset. labels: names of the single labels; members: bool ``(sets, labels)``."""

    labels: tuple[str, ...]
    members: Array

    def merge_equal(self, numbers: Array) -> Array:
        """The numbers of sets, equal ones (``scab+rust``, ``rust+scab``) by that of the first."""
        _, first, which = np.unique(self.members, axis=0, return_index=True, return_inverse=True)
        return np.asarray(first[which.ravel()][numbers])


def split_name(name: str) -> tuple[str, ...]:
    """The labels in a name: ``apple/scab+rust`` is ``apple/scab`` and ``apple/rust``."""
    first, *others = (part for part in SEPARATORS.split(name) if part)
    crop = first[: first.rfind("/") + 1]
    return (first, *(other if "/" in other else crop + other for other in others))


def join_labels(labels: Sequence[str]) -> str:
    """The name of a label set: the labels, the crop only once where all have the same."""
    crop = labels[0][: labels[0].rfind("/") + 1]
    same = all(label[: label.rfind("/") + 1] == crop for label in labels)
    return "+".join((labels[0], *(label[len(crop) if same else 0 :] for label in labels[1:])))


def name_labels(name: str, multi: bool) -> tuple[str, ...]:
    """The labels of photos of a class: one, or with `multi` those in its name."""
    return split_name(name) if multi and SEPARATORS.sub("", name) else (name,)


def mark_labels(classes: Sequence[str], labels: Sequence[str]) -> Array:
    """Which of the labels the name of each class has, bool ``(classes, labels)``."""
    return np.array([[label in own for label in labels] for own in (name_labels(name, True) for name in classes)])


def read_label_sets(classes: Sequence[str], mode: str) -> LabelSets | None:
    """The label sets of classes by their names; None where each photo has one label.

    mode: "single", "multi", or "auto": several labels if a name has two labels or more, one of which is itself the name
    of a class.
    """
    named = [name_labels(name, True) for name in classes]
    several = any(len(own) > 1 and not set(own).isdisjoint(classes) for own in named)
    if mode == "single" or (mode == "auto" and not several):
        return None
    labels = tuple(sorted({label for own in named for label in own}))
    return LabelSets(labels, mark_labels(classes, labels))


def target_table(classes: int, smoothing: float, sets: LabelSets | None = None) -> Array:
    """The target of every label, with label smoothing, float64 ``(labels, classes)``.

    With label sets it has a row for each set, and every label of a set is a decision of its own: 0 becomes half of the
    smoothing, as in Keras's binary cross entropy.
    """
    if sets is not None:
        return sets.members * (1 - smoothing) + smoothing / 2
    return np.full((classes, classes), smoothing / classes) + np.eye(classes) * (1 - smoothing)
