"""A dataset and its edits, which are stored in the program's data folder, never in the photo folder. No Qt."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np

from core.data.dataset import Dataset
from core.data.manifest import is_manifest, write_manifest
from core.errors import InputError
from core.ops.contract import Array
from core.schema import SchemaError, listing, named, parse_json, record, text
from core.storage import write_file

FILE: Final = "project.json"
MANIFEST: Final = "manifest.csv"
NAME_BYTES: Final = 200
"""Bytes of a folder's name that are part of its project's name: 255 are allowed, and 13 are added."""
EDITS: Final = record({"excluded": listing(text), "moved": named(text), "names": named(text)},
                      {"confirmed": named(text), "source": text, "photos": named(text), "earlier": listing(text)})


@dataclass(frozen=True, slots=True)
class Edits:
    """Edits by path and name, so that they survive added and removed photos.

    names: old to new classes; confirmed: labels that a review does not question; source: the folder or manifest;
    photos: the content of some of its photos (`app.moved_photos`); earlier: identities of edits that these continue.
    """

    excluded: tuple[str, ...] = ()
    moved: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    confirmed: dict[str, str] = field(default_factory=dict)
    source: str = ""
    photos: dict[str, str] = field(default_factory=dict)
    earlier: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """SHA-256 of the edits, "" if there are none."""
        edits = (sorted(self.excluded), self.moved, self.names, self.confirmed)
        return hashlib.sha256(json.dumps(edits, sort_keys=True).encode()).hexdigest() if any(edits) else ""

    def of_missing(self, dataset: Dataset) -> Edits:
        """The same without the edits that `apply_edits` makes in the rows of a dataset."""
        here = {*self.excluded, *self.moved}.intersection(dataset.paths)
        moved = {path: name for path, name in self.moved.items() if path not in here}
        return replace(self, excluded=tuple(path for path in self.excluded if path not in here), moved=moved)


@dataclass(slots=True, eq=False)
class EditedDataset:
    """A dataset with all edits applied.

    dataset: as opened; classes: names now (a class emptied by a rename stays, without photos); labels: int32
    ``(N,)`` into `classes`; excluded: bool ``(N,)``.
    """

    dataset: Dataset
    classes: list[str]
    labels: Array
    excluded: Array

    def counts(self) -> Array:
        """Photos in use per class, int64 ``(classes,)``."""
        return np.bincount(self.labels[~self.excluded], minlength=len(self.classes))

    def named(self) -> list[str]:
        """The classes that photos have, excluded ones too."""
        return [self.classes[at] for at in np.flatnonzero(np.bincount(self.labels, minlength=len(self.classes)))]

    def code(self, name: str) -> int:
        """The number of a class, which is created if there is none of that name."""
        if name not in self.classes:
            self.classes.append(name)
        return self.classes.index(name)

    def copy(self) -> EditedDataset:
        """The table as it is now, for a thread; the dataset itself never changes."""
        return replace(self, classes=list(self.classes), labels=self.labels.copy(), excluded=self.excluded.copy())

    def label(self, row: int) -> str:
        return self.classes[int(self.labels[row])]

    @property
    def edited(self) -> bool:
        return bool(self.excluded.any() or self.classes != list(self.dataset.classes)
                    or np.any(self.labels != self.dataset.labels))  # fmt: skip


def project_folder(home: Path, source: str) -> Path:
    """The project folder of a photo folder: one per absolute path."""
    full = os.path.abspath(source)
    name = Path(full).name.encode("utf-8", "ignore")[:NAME_BYTES].decode("utf-8", "ignore")
    return home / f"{name or 'photos'}-{hashlib.sha256(full.encode('utf-8', 'replace')).hexdigest()[:12]}"


def read_edits(folder: Path) -> Edits:
    """The stored edits; none if there is no file. Raises InputError."""
    path = folder / FILE
    if not path.is_file():
        return Edits()
    try:
        return Edits(**EDITS(parse_json(path.read_bytes())))
    except (OSError, SchemaError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path} cannot be read ({reason}). Remove it to see the photos without edits.") from error


def write_edits(folder: Path, edits: Edits) -> None:
    """Raises StorageError."""
    write_file(folder / FILE, json.dumps(asdict(edits), indent=1, ensure_ascii=True))


def dataset_source(data: str) -> str:
    """The photos of a run as they were opened; `data` may be their project's manifest."""
    path = Path(data)
    if path.name == MANIFEST:
        with contextlib.suppress(InputError, OSError):
            return _read_source(path.parent, (path.parent / FILE).stat().st_mtime_ns) or data
    return data


@lru_cache(64)
def _read_source(folder: Path, changed_at: int) -> str:
    """The source of stored edits, by their time: a list of runs asks for that of each."""
    return read_edits(folder).source


def photo_folder(source: str) -> str:
    """The folder that the paths of a folder or manifest of photos are relative to."""
    return str(Path(source).parent if is_manifest(source) else Path(source))


def dataset_name(data: str) -> str:
    """The display name of a dataset: the folder name; for a project's manifest, that of its photos."""
    return Path(photo_folder(dataset_source(data))).name


def apply_edits(dataset: Dataset, edits: Edits) -> EditedDataset:
    """The dataset with the edits; edits of missing photos are ignored."""
    table = EditedDataset(dataset, list(dataset.classes), dataset.labels.copy(), np.zeros(len(dataset), bool))
    for old, new in edits.names.items():
        if old in dataset.classes and old != new:
            table.labels[dataset.labels == dataset.classes.index(old)] = table.code(new)
    excluded = set(edits.excluded)
    wanted = excluded | set(edits.moved)
    for row, path in enumerate(dataset.paths) if wanted else ():
        if path in wanted:
            table.excluded[row] = path in excluded
            if path in edits.moved:
                table.labels[row] = table.code(edits.moved[path])
    return table


def collect_edits(table: EditedDataset, others: Edits) -> Edits:
    """The edits that produce `table` from its dataset; `others`: names, and edits of photos that it does not have."""
    dataset = table.dataset
    plain = apply_edits(dataset, Edits(names=others.names))
    known = {name: code for code, name in enumerate(table.classes)}
    code_now = np.array([known.get(name, -1) for name in plain.classes], np.int32)
    moved = np.flatnonzero(table.labels != code_now[plain.labels])
    excluded = (dataset.paths[row] for row in np.flatnonzero(table.excluded).tolist())
    classes = {dataset.paths[row]: table.label(row) for row in moved.tolist()}
    return replace(others, excluded=(*others.excluded, *excluded), moved={**others.moved, **classes})


def write_photos(path: Path, table: EditedDataset) -> Path:
    """Write the photos in use as a CSV manifest, for training. Raises StorageError."""
    write_manifest(path, table.dataset, table.classes, table.labels, np.flatnonzero(~table.excluded))
    return path
