"""Opens photos: the dataset in a folder or manifest, and the photo files that a command names."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from core.config import RunConfig
from core.data.cache_index import current_key
from core.data.dataset import UNSPLIT, Dataset, DatasetBuilder, ReportProgress, ignore
from core.data.folder import open_folder, refuse_folder, was_seen
from core.data.manifest import is_manifest, open_manifest, read_paths
from core.data.photo_format import NAMED
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
    return builder.finish()


def find_photos(named: Iterable[str], column: str = "") -> Iterator[str]:
    """The files named, and the photos of folders, in sorted order, and of manifests. Raises DataError.

    column: of manifests alone, and of each photo its value there instead (`read_paths`).
    """
    for name in named:
        if column and (os.path.isdir(name) or not is_manifest(name)):
            raise DataError(f"{name} is no CSV manifest, so it has no column {column!r}. Group its photos by folder "
                            "or by time.")  # fmt: skip
        if os.path.isdir(name):
            yield from _require(list_photos(name, refuse_folder), name)
        elif is_manifest(name):
            yield from _require(read_paths(Path(name), column), name)
        else:
            yield name


def _require(found: Iterator[str], name: str) -> Iterator[str]:
    first = next(found, None)
    if first is None:
        raise DataError(f"There are no photos in {name}.")
    return itertools.chain([first], found)


def list_photos(folder: str, refuse: Callable[[str, OSError], object]) -> Iterator[str]:
    """The photos below a folder by path, also in unsupported formats, but not hidden ones (telephones keep
    .thumbnails, macOS leaves ._photo.jpg). Each folder is listed once, even if links lead to it again. refuse: called
    for each folder that cannot be read."""
    seen: set[tuple[int, int]] = set()
    found = [(folder, True)]
    while found:
        path, is_folder = found.pop()
        if not is_folder:
            yield path
            continue
        try:
            if was_seen(path, seen):
                continue
            with os.scandir(path) as entries:
                shown = [(e.path, e.is_dir(follow_symlinks=False) or e.is_symlink() and os.path.isdir(e))
                         for e in entries if e.name[0] != "."]  # fmt: skip
        except OSError as error:
            refuse(path, error)
            continue
        named = [(name, deeper) for name, deeper in shown
                 if deeper or name.lower().endswith(NAMED) or not os.path.exists(name)]  # a link that leads nowhere
        found += sorted(named, key=lambda entry: entry[0] + "/" * entry[1], reverse=True)


def photo_files(paths: Sequence[str], known: Mapping[str, str]) -> tuple[set[str], list[str], list[str], set[str]]:
    """The folders among these; files, with photos in folders; unreadable folders; files with another key than known."""
    folders, found, refused = set(filter(os.path.isdir, paths)), list[str](), list[str]()
    for path in paths:
        found += list_photos(path, lambda folder, _: refused.append(folder)) if path in folders else [path]
    return folders, found, refused, {path for path in found if path in known and current_key(path) != known[path]}
