"""Writes and reads the split of a run as a CSV file: path, label, group, split, sha256."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from core.data.cache import PhotoCache
from core.data.dataset import SPLITS, UNSPLIT, Dataset
from core.data.manifest import open_manifest
from core.data.string_array import ENCODING, ERRORS
from core.errors import DataError
from core.ops.contract import Array
from core.storage import write_file


def write_split(path: Path, dataset: Dataset, cache: PhotoCache, splits: Array, groups: Array) -> None:
    """Write one line per used photo. Raises StorageError."""
    names = dataset.group_names
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("path", "label", "group", "split", "sha256"))
    for row in np.flatnonzero(splits != UNSPLIT).tolist():
        group = f"g{groups[row]}" if names is None else names[groups[row]]
        content = cache.content[row].tobytes().hex()
        rows.writerow((dataset.paths[row], dataset.label(row), group, SPLITS[splits[row]], content))
    write_file(path, text.getvalue().encode(ENCODING, ERRORS))


def read_split(path: Path, dataset: Dataset, cache: PhotoCache) -> Array:
    """Read the splits int8 ``(N,)`` of the rows of `dataset`.

    Photos are matched by path, else by content (they may have moved). Raises DataError if photos are missing, new or
    have another class.
    """
    try:
        written = open_manifest(path, label="label", columns=("sha256",))
    except DataError as error:
        raise DataError(f"{path} is not the split of a run. Choose the split.csv of a run folder. {error}") from error
    by_path = {key: at for at, key in enumerate(written.paths.keys().tolist())}
    by_content = {bytes.fromhex(text): at for at, text in enumerate(written.columns["sha256"]) if text}
    keys = dataset.paths.keys().tolist()
    splits = np.full(len(dataset), UNSPLIT, np.int8)
    unknown = []
    for row in cache.kept:
        at = by_path.get(keys[row], by_content.get(cache.content[row].tobytes()))
        if at is None:
            unknown.append(dataset.paths[row])
            continue
        if written.label(at) != dataset.label(row):
            raise DataError(
                f"{dataset.paths[row]} has the class {dataset.label(row)}, but {written.label(at)} in the split "
                f"{path}. Make a new split, or correct the class."
            )
        splits[row] = written.splits[at]
    if unknown:
        raise DataError(
            f"{len(unknown)} photos are not in the split {path}, such as {unknown[0]}. Make a new split (without "
            "--split), or remove the new photos."
        )
    return splits
