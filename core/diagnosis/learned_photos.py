"""Which photos a network has learned from, so that an evaluation can say how many of its photos are among them.

A photo is known by its mark, the first eight bytes of its file's SHA-256: of 12,000 learned photos and 12,000 judged
ones two different files share a mark with a chance of 1e-11. The same picture saved anew has another mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from core.errors import ModelFileError
from core.ops.contract import Array

MARK_BYTES: Final = 8
"""Of a photo in the file: 12,000 of them take 96 KB."""
KIND_NAMES: Final = {"judged": "evaluated"}
"""Kinds of photos in JSON that sentences name otherwise."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class LearnedPhotos:
    """marks: uint64 ``(N,)``, rising, of photos that weights were made by; whole: whether these are all, because the
    weights did not begin as those of a file that names none."""

    marks: Array
    whole: bool = True

    def knows(self, content: Array) -> Array:
        """Which photos were learned from, bool ``(N,)``; content: uint8 ``(N, 32)``, their files' SHA-256."""
        return np.isin(_marks(content), self.marks)


def learned_from(content: Array, before: Sequence[LearnedPhotos | None] = ()) -> LearnedPhotos:
    """Of weights that learn from these photos; before: what they, or the weights they began as, have learned from."""
    told = [learned for learned in before if learned is not None]
    marks = np.unique(np.concatenate((_marks(content), *(learned.marks for learned in told))))
    return LearnedPhotos(marks, len(told) == len(before) and all(learned.whole for learned in told))


def checked_marks(marks: Array, whole: object) -> LearnedPhotos:
    """What a file says. Raises ModelFileError where that cannot be."""
    if marks.dtype != np.uint64 or marks.ndim != 1 or not (marks[1:] > marks[:-1]).all() or type(whole) is not bool:
        raise ModelFileError("The file's record of its training photos is not valid.")
    return LearnedPhotos(marks, whole)


@final
@dataclass(frozen=True, slots=True)
class Overlap:
    """Of so many judged photos of a kind ("test", "validation", "field") so many were learned from."""

    kind: str
    photos: int
    learned: int


def measure_overlap(learned: LearnedPhotos | None, judged: Sequence[tuple[str, Array]]) -> tuple[Overlap, ...] | None:
    """judged: kind and content uint8 ``(N, 32)`` of each set of photos; None where the file names no photos."""
    if learned is None:
        return None
    return tuple(Overlap(kind, len(content), int(learned.knows(content).sum())) for kind, content in judged)


def describe_overlap(name: str, learned: LearnedPhotos | None, judged: Sequence[tuple[str, Array]]) -> tuple[str, ...]:
    """What is known of it, in sentences; name: of the model file."""
    found = measure_overlap(learned, judged)
    if learned is None or found is None:
        return (f"{name} does not record its training photos, so data leakage cannot be measured. If some of these "
                "photos were used to train it, the accuracy is too high.",)  # fmt: skip
    told = [f"Data leakage: {name} was trained on {part.learned} of the {part.photos} "
            f"{KIND_NAMES.get(part.kind, part.kind)} photos. The accuracy on them is too high."
            for part in found if part.learned]  # fmt: skip
    if not told:
        told = [f"No data leakage: {name} was trained on none of the {sum(part.photos for part in found)} evaluated "
                "photos."]
    if not learned.whole:
        told.append(f"{name} started from the weights of a file that does not record its training photos: there may be "
                    "more data leakage.")
    return tuple(told)


def _marks(content: Array) -> Array:
    """uint64 ``(N,)``, the first byte the highest, as the SHA-256 is written."""
    return np.ascontiguousarray(content[:, :MARK_BYTES]).view(">u8").ravel().astype(np.uint64)
