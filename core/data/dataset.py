"""The photos of a run as compact columns: a million photos take a few hundred megabytes."""

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
"""Common names of splits, in lower case."""

OUTSIDE: Final = re.compile(r"^(\.\./)+")
"""The path from a manifest's folder to its parents, which is not shown."""
LONGEST: Final = 300
"""Characters of a path in a sentence; the end of a longer one is shown."""

ReportProgress: TypeAlias = Callable[[int, int], None]
"""Called with (done, total) from time to time; total is 0 if unknown."""
IsCancelled: TypeAlias = Callable[[], bool]


@final
class Cancelled(LeafClinicError):
    """The user stopped scanning or decoding photos; photos decoded so far stay in the cache."""

    exit_code = EXIT_INTERRUPTED


@final
@dataclass(frozen=True, slots=True)
class Skipped:
    """A photo that cannot be used, and the reason as a sentence."""

    path: str
    reason: str


@final
@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Photos by row. Nothing is decoded yet, and files may turn out to be missing or broken.

    root: the folder that paths are relative to; listed: the paths come from a manifest, so `root` may contain other
    files; paths: with "/" between folders; classes: sorted names; labels: int32 ``(N,)``, indices into `classes`;
    splits: int8 ``(N,)``, as in the source (TRAIN, VALIDATION, TEST or UNSPLIT); groups: int32 ``(N,)``, None if the
    source has none; group_names: the name of each group; columns: additional columns, by name.
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
        """The file of a row as a native path."""
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
        """The dataset of these rows, in this order; class and group numbers stay."""
        return replace(
            self, paths=self.paths.take(rows), labels=self.labels[rows], splits=self.splits[rows],
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
    """A sentence about all skipped photos; empty if there are none."""
    if not skipped:
        return ""
    many = f"1 {kind} is" if len(skipped) == 1 else f"{len(skipped)} {kind}s are"
    return f"{many} excluded: {reasons(skipped)}."


def reasons(skipped: tuple[Skipped, ...], most: int = 3) -> str:
    """A sentence about skipped photos: the most frequent reasons, each with an example, and the number of others."""
    counts = Counter(s.reason for s in skipped)
    parts = []
    for reason, count in counts.most_common(most):
        example = OUTSIDE.sub("", next(s.path for s in skipped if s.reason == reason))
        shown = example if len(example) <= LONGEST else "..." + example[-LONGEST:]
        parts.append(f"{count} x {reason.rstrip('.')} (such as {shown})")
    rest = counts.total() - sum(count for _, count in counts.most_common(most))
    return "; ".join(parts) + (f"; {rest} more for other reasons" if rest else "")
