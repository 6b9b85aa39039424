"""Opens photos: the dataset in a folder or manifest, and the photo files that a command names."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from core.config import RunConfig
from core.data.cache_index import current_key
from core.data.dataset import UNSPLIT, Dataset, DatasetBuilder, ReportProgress, ignore
from core.data.folder import open_folder, photo_folders, refuse_folder
from core.data.manifest import is_manifest, open_manifest, read_paths
from core.errors import DataError


def open_dataset(config: RunConfig, progress: ReportProgress = ignore) -> Dataset:
    """The photos that `config` names, with at least two classes. Raises DataError."""
    dataset = open_photos(config.data, config.label, config.where, progress)
    if len(dataset.classes) < 2:
        raise DataError(f"All {len(dataset)} photos have the class {dataset.classes[0]!r}. Two classes or more are "
                        "needed: add photos of another class, such as healthy leaves.")
    return dataset


def open_photos(data: str, label: str = "", where: Sequence[str] = (), progress: ReportProgress = ignore) -> Dataset:
    """The photos of a folder or manifest, of one class or more. Raises DataError."""
    if not data:
        raise DataError("No photos were given. Give a folder of photos or a CSV manifest with --data.")
    path = Path(data)
    try:
        is_folder, exists = path.is_dir(), path.exists()
    except OSError as error:
        raise DataError(f"{data} cannot be read: {error.strerror or error}.") from error
    if not exists:
        raise DataError(f"{data} does not exist. Check the name, or connect the disk it is on.")
    if not is_folder:
        return open_manifest(path, label=label, where=where, progress=progress)
    if label:
        raise DataError("--label is the column of a manifest, but the photos are in a folder. Remove --label.")
    return open_folder(path, where=where, progress=progress)


def open_unlabelled(folder: str) -> Dataset:
    """The photos of a folder or manifest, all of one class. Raises DataError."""
    paths = [os.path.abspath(path) for path in find_photos([folder])]
    builder = DatasetBuilder(os.path.commonpath([os.path.dirname(path) for path in paths]))
    for path in paths:
        builder.append(os.path.relpath(path, builder.root).replace(os.sep, "/"), "unlabelled", UNSPLIT)
    return builder.finish(listed=not os.path.isdir(folder))


def find_photos(named: Iterable[str], column: str = "") -> Iterator[str]:
    """The files named, and the photos of folders, sorted in each, and of manifests. Raises DataError.

    column: of manifests alone, and of each photo its value there instead (`read_paths`).
    """
    for name in named:
        if column and (os.path.isdir(name) or not is_manifest(name)):
            raise DataError(f"{name} is no CSV manifest, so it has no column {column!r}. Group its photos by folder "
                            "or by time.")  # fmt: skip
        if os.path.isdir(name):
            yield from _require((one.path for _, photos in photo_folders(name, refuse_folder) for one in photos), name)
        elif is_manifest(name):
            yield from _require(read_paths(Path(name), column), name)
        else:
            yield name


def _require(found: Iterator[str], name: str) -> Iterator[str]:
    first = next(found, None)
    if first is None:
        raise DataError(f"There are no photos in {name}.")
    return itertools.chain([first], found)


def photo_files(paths: Sequence[str], known: Mapping[str, str]) -> tuple[set[str], list[str], list[str], set[str]]:
    """The folders among these; files, with photos in folders; unreadable folders; files with another key than known."""
    folders, found, refused = set(filter(os.path.isdir, paths)), list[str](), list[str]()
    for path in paths:
        listed = photo_folders(path, lambda folder, _: refused.append(folder)) if path in folders else ()
        found += [photo.path for _, photos in listed for photo in photos] if path in folders else [path]
    return folders, found, refused, {path for path in found if path in known and current_key(path) != known[path]}
