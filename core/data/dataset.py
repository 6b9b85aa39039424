"""The photos of a run as a table of compact columns: a million rows take some hundred megabytes."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, final

import numpy as np

from core.data.string_array import StringArray
from core.errors import EXIT_INTERRUPTED, LeafClinicError
from core.ops.contract import Array

SPLITS: Final = ("train", "val", "test")
TRAIN: Final = 0
VALIDATION: Final = 1
TEST: Final = 2
UNSPLIT: Final = -1

SPLIT_NAMES: Final = {
    "train": TRAIN, "training": TRAIN,
    "val": VALIDATION, "valid": VALIDATION, "validation": VALIDATION, "dev": VALIDATION,
    "test": TEST, "testing": TEST,
}
"""Names that people give to splits, in lower case."""

OUTSIDE: Final = re.compile(r"^(\.\./)+")
"""Way out of a manifest's folder: no help for somebody who looks for a photo."""

ReportProgress: TypeAlias = Callable[[int, int], None]
"""Told (done, total) now and then; total is 0 where it is not known."""
IsCancelled: TypeAlias = Callable[[], bool]


@final
class Cancelled(LeafClinicError):
    """The user stopped a scan or the decoding of photos; what was decoded is kept."""

    exit_code = EXIT_INTERRUPTED


@final
@dataclass(frozen=True, slots=True)
class Skipped:
    """A photo that cannot be used, and why, as a sentence."""

    path: str
    reason: str


@final
@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Photos by row. Nothing is decoded yet, and files may turn out to be missing or broken.

    root: the folder that relative paths start from; listed: the paths come from a manifest, so not all below `root` is
    theirs; paths: with "/" between folders; classes: sorted
    names; labels: int32 ``(N,)`` indices into `classes`; splits: int8 ``(N,)`` as the source gave them
    (TRAIN, VALIDATION, TEST or UNSPLIT); groups: int32 ``(N,)`` or None where the source gave none;
    group_names: the name of each group; columns: further ones, by name, as asked for.
    """

    root: str
    paths: StringArray
    classes: tuple[str, ...]
    labels: Array
    splits: Array
    groups: Array | None = None
    group_names: StringArray | None = None
    columns: Mapping[str, StringArray] = field(default_factory=dict)
    skipped: tuple[Skipped, ...] = ()
    listed: bool = False

    def __len__(self) -> int:
        return len(self.paths)

    def path(self, row: int) -> str:
        """The file of a row, as the operating system wants it."""
        return os.path.join(self.root, self.paths[row])

    def label(self, row: int) -> str:
        """The class name of a row."""
        return self.classes[int(self.labels[row])]

    def counts(self) -> dict[str, int]:
        """Photos per class."""
        found = np.bincount(self.labels, minlength=len(self.classes))
        return {name: int(n) for name, n in zip(self.classes, found, strict=True)}

    def rows(self, split: int) -> Array:
        """Rows of a split, int64."""
        return np.flatnonzero(self.splits == split)

    def take(self, rows: Array) -> Dataset:
        """Only these rows, in this order; classes and groups keep their numbers."""
        return replace(
            self,
            paths=self.paths.take(rows),
            labels=self.labels[rows],
            splits=self.splits[rows],
            groups=None if self.groups is None else self.groups[rows],
            columns={name: column.take(rows) for name, column in self.columns.items()},
        )

    @property
    def nbytes(self) -> int:
        """Bytes held by the columns."""
        arrays = [self.labels, self.splits] + ([] if self.groups is None else [self.groups])
        texts = [self.paths, *self.columns.values()] + ([] if self.group_names is None else [self.group_names])
        return sum(int(a.nbytes) for a in arrays) + sum(t.nbytes for t in texts)


def describe_skipped(skipped: tuple[Skipped, ...], kind: str = "photo") -> str:
    """A sentence about all skipped photos, such as "1 photo is left out: ..."; empty where there are none."""
    if not skipped:
        return ""
    many = f"1 {kind} is" if len(skipped) == 1 else f"{len(skipped)} {kind}s are"
    return f"{many} left out: {reasons(skipped)}."


def reasons(skipped: tuple[Skipped, ...], most: int = 3) -> str:
    """One sentence about skipped photos: how many, the commonest reasons with an example, and how many for others."""
    counts = Counter(s.reason for s in skipped)
    parts = []
    for reason, count in counts.most_common(most):
        example = OUTSIDE.sub("", next(s.path for s in skipped if s.reason == reason))
        parts.append(f"{count} x {reason.rstrip('.')} (such as {example})")
    rest = counts.total() - sum(count for _, count in counts.most_common(most))
    return "; ".join(parts) + (f"; {rest} more for other reasons" if rest else "")
