"""Lists photo files one by one, in bounded memory: files, folders and manifests."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from core.data.file_extensions import NAMED
from core.data.manifest import read_paths
from core.errors import DataError

MANIFEST: Final = ".csv"


def find_photos(named: Iterable[str]) -> Iterator[str]:
    """The files named, and the photos of folders, in sorted order, and of manifests. Raises DataError."""
    for name in named:
        if os.path.isdir(name):
            yield from _require(_below(name), name)
        elif name.lower().endswith(MANIFEST):
            yield from _require(read_paths(Path(name)), name)
        else:
            yield name


def _require(found: Iterator[str], name: str) -> Iterator[str]:
    first = next(found, None)
    if first is None:
        raise DataError(f"There are no photos in {name}.")
    return itertools.chain([first], found)


def _below(folder: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:  # hidden ones: telephones keep .thumbnails, macOS leaves ._photo.jpg
            shown = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries if entry.name[0] != "."]
    except OSError as error:
        raise DataError(f"The folder {error.filename} cannot be read: {error.strerror}. Change its permissions, or "
                        "move it out of the photo folder.") from error  # fmt: skip
    for name, is_folder in sorted(shown, key=lambda entry: entry[0] + "/" * entry[1]):
        if is_folder:
            yield from _below(os.path.join(folder, name))
        elif name.lower().endswith(NAMED):
            yield os.path.join(folder, name)
