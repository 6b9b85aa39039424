"""Writes a dataset as a CSV manifest with labels of its own, such as corrected ones; `core.data.manifest` reads it."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path

from core.data.dataset import SPLITS, Dataset
from core.errors import InputError
from core.ops.contract import Array
from core.storage import write_file


def write_manifest(path: Path, dataset: Dataset, classes: Sequence[str], labels: Array, rows: Array) -> None:
    """Write these rows with ``classes[labels[row]]``; paths are relative to the manifest's folder if possible.

    Groups and splits of the source are included. Raises StorageError.
    """
    raw = io.BytesIO()
    text = io.TextIOWrapper(raw, "utf-8", "surrogateescape", newline="")  # in pieces: 80 MB would block the window
    writer = csv.writer(text, lineterminator="\n")
    names = dataset.group_names if dataset.groups is not None else None
    writer.writerow(["path", "label", "split", *(["group"] if names is not None else [])])
    for row in rows.tolist():
        split = int(dataset.splits[row])
        values = [_relative(dataset.path(row), path.parent), classes[int(labels[row])]]
        values.append(SPLITS[split] if split >= 0 else "")
        if names is not None and dataset.groups is not None:
            values.append(names[int(dataset.groups[row])])
        writer.writerow(values)
    text.flush()
    write_file(path, raw.getvalue())


def check_place(path: Path, dataset: Dataset) -> None:
    """Raises InputError for a file that would be among the photos."""
    if not dataset.listed and path.absolute().is_relative_to(Path(dataset.root).absolute()):
        raise InputError(f"{path} is inside the photo folder, in which nothing is written. Choose another folder.")


def _relative(path: str, folder: Path) -> str:
    """A path relative to a folder; unchanged if there is none (on Windows, another drive)."""
    try:
        return os.path.relpath(path, folder).replace(os.sep, "/")
    except ValueError:
        return path
