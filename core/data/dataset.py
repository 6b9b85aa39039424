"""The photos of a run as compact columns (a million photos take a few hundred megabytes), built photo by photo."""

from __future__ import annotations

import os
import re
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias
from unicodedata import normalize

import numpy as np

from core.data.label_sets import mark_labels
from core.data.string_array import StringArray, encode, readable
from core.errors import EXIT_INTERRUPTED, DataError, LeafClinicError
from core.ops.contract import Array
from core.storage import saving, write_file
from core.text import csv_text

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
MOST_CLASSES: Final = 10_000
"""More distinct labels than this mean a wrong column."""
LEAKAGE: Final = "Data leakage: "
"""Start of sentences on evaluated photos that were trained on, or whose group was: the accuracy on them is too high.
They are written out where they stand, because a translation is found by the whole sentence."""
ReportProgress: TypeAlias = Callable[[int, int], None]
"""Called with (done, total) from time to time; total is 0 if unknown. To stop the work, it raises."""
ReportStage: TypeAlias = Callable[[str, int, int], None]
"""The same with a stage before: (stage, done, total), such as "scan", "cache", "copies" or "features"."""


def ignore(*progress: object) -> None:
    """Report no progress."""


class Cancelled(LeafClinicError):
    """The user stopped the work. Photos decoded so far stay in the cache."""

    exit_code = EXIT_INTERRUPTED


@dataclass(frozen=True, slots=True)
class Skipped:
    """A photo that cannot be used, and the reason as a sentence."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Photos by row. Nothing is decoded yet, and files may turn out to be missing or broken.

    root: the folder that paths are relative to; listed: the paths come from a manifest, so `root` may contain other
    files; paths: with "/" between folders; classes: sorted names; labels: int32 ``(N,)``, indices into `classes`;
    splits: int8 ``(N,)``, as in the source (TRAIN, VALIDATION, TEST or UNSPLIT); groups: int32 ``(N,)``, None if the
    source has none; group_names: the name of each group, "" of a row without one; columns: additional ones, by name.
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
        return self.classes[int(self.labels[row])]

    def labels_among(self, names: Sequence[str], multi: bool = False) -> Array:
        """The labels as indices into these class names, int32 ``(N,)``; -1 for a class that is not among them. With
        `multi`, of photos with several labels, which of these each photo has, bool ``(N, names)``."""
        if multi:
            return np.asarray(mark_labels(self.classes, names)[self.labels])
        return np.array([names.index(name) if name in names else -1 for name in self.classes], np.int32)[self.labels]

    @property
    def ungrouped(self) -> Array:
        """Which rows have no group in the source, bool ``(N,)``."""
        if self.groups is None or self.group_names is None:
            return np.ones(len(self), bool)
        return np.array([not name for name in self.group_names])[self.groups]

    def counts(self, rows: Array | slice = slice(None)) -> dict[str, int]:
        """Photos per class, of these rows."""
        found = np.bincount(self.labels[rows], minlength=len(self.classes))
        return dict(zip(self.classes, found.tolist(), strict=True))

    def rows(self, split: int) -> Array:
        return np.flatnonzero(self.splits == split)

    def take(self, rows: Array) -> Dataset:
        """The dataset of these rows, in this order; class and group numbers stay."""
        return replace(
            self, paths=self.paths.take(rows), labels=self.labels[rows], splits=self.splits[rows],
            groups=None if self.groups is None else self.groups[rows],
            columns={name: column.take(rows) for name, column in self.columns.items()},
        )


def clean_name(text: str) -> str:
    """A class or another name that is compared: without spaces around it, in Unicode's composed form (NFC)."""
    return normalize("NFC", text.strip())


def describe_skipped(skipped: tuple[Skipped, ...], kind: str = "photo") -> str:
    """A sentence about all skipped photos; empty if there are none."""
    if not skipped:
        return ""
    many = f"1 {kind} is" if len(skipped) == 1 else f"{len(skipped)} {kind}s are"
    return f"{many} excluded: {reasons(skipped)}."


def reasons(skipped: tuple[Skipped, ...]) -> str:
    """A sentence about skipped photos: the most frequent reasons, each with an example, and the number of others."""
    counts = Counter(s.reason for s in skipped)
    parts, rest = [], counts.total()
    for reason, count in counts.most_common(3):
        example = OUTSIDE.sub("", next(s.path for s in skipped if s.reason == reason))
        shown = example if len(example) <= LONGEST else "..." + example[-LONGEST:]
        parts.append(f"{count} x {reason.rstrip('.')} (such as {shown})")
        rest -= count
    return "; ".join(parts) + (f"; {rest} more for other reasons" if rest else "")


class DatasetBuilder:
    """Collects the rows of a dataset, with the checks that folders and manifests share; `columns`: additional ones."""

    def __init__(self, root: str, columns: Sequence[str] = (), grouped: bool = False) -> None:
        self.root = root
        self.skipped: list[Skipped] = []
        self._paths: list[str] = []
        self._labels = array("i")
        self._splits = array("b")
        self._groups: list[str] | None = [] if grouped else None
        self._columns: dict[str, list[str]] = {name: [] for name in columns}
        self._codes: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._paths)

    def append(self, path: str, label: str, split: int, group: str = "", extra: Sequence[str] = ()) -> None:
        """Add a photo. Raises DataError if there are too many labels or one is not UTF-8."""
        code = self._codes.setdefault(label, len(self._codes))
        if code >= MOST_CLASSES:
            raise DataError(f"There are more than {MOST_CLASSES} different labels (such as {label!r}), so this is not "
                            "the class column. Choose the class column with --label COLUMN.")
        if code == len(self._codes) - 1 and readable(label) != label:
            raise DataError(f"The class name {readable(label)!r} is not valid UTF-8. Rename the folder, or save the "
                            "manifest again as CSV (UTF-8).")
        self._paths.append(path)
        self._labels.append(code)
        self._splits.append(split)
        if self._groups is not None:
            self._groups.append(group)
        for values, value in zip(self._columns.values(), extra, strict=True):
            values.append(value)

    def finish(self, listed: bool = False) -> Dataset:
        """The dataset, with classes sorted by name and repeated paths removed. Raises DataError."""
        labels, splits = np.frombuffer(self._labels, np.int32), np.frombuffer(self._splits, np.int8)
        classes = tuple(sorted(self._codes))
        place = {name: at for at, name in enumerate(classes)}
        renumber = np.array([place[name] for name in self._codes], np.int32)
        groups, names = (None, None) if self._groups is None else _group(self._groups)
        dataset = Dataset(
            root=self.root, paths=StringArray.of(self._paths), classes=classes, labels=renumber[labels],
            splits=splits, groups=groups, group_names=names,
            columns={name: StringArray.of(values) for name, values in self._columns.items()},
            skipped=tuple(self.skipped), listed=listed,
        )
        return _without_repeats(dataset)


def _group(texts: Sequence[str]) -> tuple[Array, StringArray] | tuple[None, None]:
    """Group numbers and names, None if no row has a name; each row without one becomes its own group."""
    codes, names = encode(texts)
    alone = np.flatnonzero(np.array([not name for name in names], bool)[codes])
    if len(alone) == len(codes):
        return None, None
    codes[alone] = len(names) + np.arange(len(alone), dtype=np.int32)
    return codes, StringArray.of([*names, *("" for _ in alone)])


def _without_repeats(dataset: Dataset) -> Dataset:
    codes, distinct = encode(dataset.paths)
    if len(distinct) == len(codes):
        return dataset
    order = np.argsort(codes, kind="stable")
    same = codes[order][1:] == codes[order][:-1]
    labels, splits = dataset.labels[order], dataset.splits[order]
    differ = order[1:][same & ((labels[1:] != labels[:-1]) | (splits[1:] != splits[:-1]))]
    if len(differ):
        raise DataError(f"The manifest gives {len(differ)} of its photos two different labels or splits, such as "
                        f"{dataset.paths[differ[0]]}. Keep one row for each photo.")
    return dataset.take(np.unique(codes, return_index=True)[1])


def write_skipped(path: Path, sets: Mapping[str, Sequence[Skipped]]) -> int:
    """Write one line per skipped photo and return their number; without any, remove the file. Raises StorageError."""
    found = [(photo.path, photo.reason, name) for name, photos in sets.items() for photo in photos]
    if found:
        write_file(path, csv_text([("path", "reason", "set"), *found]))
        return len(found)
    with saving(path):
        path.unlink(missing_ok=True)
    return 0
