"""The record of the photos that a network was trained on; an evaluation counts how many of its photos are among them.

A photo's mark is the first eight bytes of its file's SHA-256. Between 12,000 training photos and 12,000 others, two
different files share a mark with probability 1e-11. A picture that is saved again has another mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from core.errors import ModelFileError
from core.ops.contract import Array

MARK_BYTES: Final = 8
"""Bytes of a mark in the model file: 12,000 marks take 96 KB."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingPhotos:
    """marks: uint64 ``(N,)``, ascending, of the photos that weights were trained on; whole: it is all of them, False
    if the weights started from a file without such a record."""

    marks: Array
    whole: bool = True

    def knows(self, content: Array) -> Array:
        """Which photos were trained on, bool ``(N,)``; content: uint8 ``(N, 32)``, their files' SHA-256."""
        return np.isin(_marks(content), self.marks)

    def unseen(self, content: Array, groups: Array, rows: Array) -> Array:
        """Which of the photos `rows` are in a group without a photo that was trained on, bool; groups: int ``(N,)``."""
        return ~np.isin(groups[rows], groups[self.knows(content)])


def record_photos(content: Array, before: Sequence[TrainingPhotos | None] = ()) -> TrainingPhotos:
    """The record of weights that are trained on these photos; before: the records of the weights they start from."""
    known = [learned for learned in before if learned is not None]
    marks = np.unique(np.concatenate((_marks(content), *(learned.marks for learned in known))))
    return TrainingPhotos(marks, len(known) == len(before) and all(learned.whole for learned in known))


def checked_marks(marks: Array, whole: object) -> TrainingPhotos:
    """The record in a file. Raises ModelFileError if it is not valid."""
    if marks.dtype != np.uint64 or marks.ndim != 1 or not (marks[1:] > marks[:-1]).all() or type(whole) is not bool:
        raise ModelFileError("The file's record of its training photos is not valid.")
    return TrainingPhotos(marks, whole)


@dataclass(frozen=True, slots=True)
class Overlap:
    """How many evaluated photos of a kind ("test", "validation", "field", "evaluated") are in the training photos."""

    kind: str
    photos: int
    learned: int


def measure_overlap(
    learned: TrainingPhotos | None, evaluated: Sequence[tuple[str, Array]]
) -> tuple[Overlap, ...] | None:
    """evaluated: kind and content uint8 ``(N, 32)`` of each set of photos. None if there is no record."""
    if learned is None:
        return None
    return tuple(Overlap(kind, len(content), int(learned.knows(content).sum())) for kind, content in evaluated)


def describe_overlap(name: str, learned: TrainingPhotos | None, found: Sequence[Overlap] | None) -> tuple[str, ...]:
    """The overlap that `measure_overlap` found as sentences; name: the model file's."""
    if learned is None or found is None:
        return (f"{name} does not record its training photos, so data leakage cannot be measured. If some of these "
                "photos were used to train it, the accuracy is too high.",)  # fmt: skip
    texts = [f"Data leakage: {name} was trained on {part.learned} of the {part.photos} {part.kind} photos. The "
             "accuracy on them is too high." for part in found if part.learned]  # fmt: skip
    if not texts:
        count = sum(part.photos for part in found)
        texts = [f"{name} was trained on none of the {count} evaluated files. A photo that was saved again is another "
                 "file."]  # fmt: skip
    if not learned.whole:
        texts.append(f"{name} started from the weights of a file that does not record its training photos: there may "
                     "be more data leakage.")
    return tuple(texts)


def _marks(content: Array) -> Array:
    """uint64 ``(N,)``, the first byte the highest, as the SHA-256 is written."""
    return np.ascontiguousarray(content[:, :MARK_BYTES]).view(">u8").ravel().astype(np.uint64)
