"""Limits the size of all photo caches in a folder: the least recently used ones are emptied first."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from core.data.file_lock import locked
from core.storage import TEMPORARY, create_folder, refuse_pipe, write_file

LIMIT_BYTES: Final = 20_000_000_000
"""Default limit: 130,000 photos of 224 pixels."""
LIMIT_FILE: Final = "limit"
"""In the folder of caches: the chosen limit in bytes."""
NAMES: Final = re.compile(r"\d+(\.index|\.copies|-[0-9a-f]+\.(photos|features)|-leaves-\d+\.npz)"
                          rf"(\.\d+\.[0-9a-f]{{8}}{re.escape(TEMPORARY)})?")  # fmt: skip
"""Names of the files of a cache but its locks, also unfinished ones."""


@dataclass(frozen=True, slots=True)
class CacheUse:
    """The cache of one photo folder: home: its own folder; size: bytes; used: when it was last opened (Unix time)."""

    home: Path
    size: int
    used: float


def read_limit(base: Path) -> int:
    """The largest total size in bytes of the caches in `base`. Raises DataError for a pipe instead of its file."""
    refuse_pipe(base / LIMIT_FILE)
    with contextlib.suppress(OSError, ValueError):
        return max(int((base / LIMIT_FILE).read_text("ascii")), 0)
    return LIMIT_BYTES


def write_limit(base: Path, limit: int) -> None:
    """Set another limit. Raises StorageError."""
    create_folder(base)
    write_file(base / LIMIT_FILE, str(limit))


def list_caches(base: Path) -> list[CacheUse]:
    """The photo caches in `base` that are not empty, the most recently used first."""
    homes = {lock.parent for lock in base.glob("*/[0-9]*.lock")}
    uses = [CacheUse(home, sum(_size(file) for file in _files(home)), home.stat().st_mtime) for home in homes]
    return sorted((use for use in uses if use.size), key=lambda use: -use.used)


def keep_limit(base: Path, home: Path) -> None:
    """Mark the cache `home` as used now, and empty others until all are within the limit."""
    with contextlib.suppress(PermissionError):  # a folder that several users share
        os.utime(home)
    caches = list_caches(base)
    total, limit = sum(use.size for use in caches), read_limit(base)
    for use in reversed(caches):
        if total > limit and use.home != home and empty_cache(use.home):
            total -= use.size


def empty_cache(home: Path) -> bool:
    """Remove the files of a cache; False, and nothing is removed, while a process fills it, or if it is another user's.

    A process that has its photos mapped keeps them: the system removes the file when it is closed. Windows refuses to
    remove such a file, which then stays until the next time.
    """
    with ExitStack() as held:
        try:
            for lock in home.glob("[0-9]*.lock"):
                held.enter_context(locked(lock))
        except (BlockingIOError, PermissionError):
            return False
        for file in _files(home):
            with contextlib.suppress(OSError):
                file.unlink()
        return True


def _files(home: Path) -> Iterator[Path]:
    """The files of a cache but its locks, for which another process may wait."""
    return (file for file in home.glob("[0-9]*") if NAMES.fullmatch(file.name))


def _size(file: Path) -> int:
    with contextlib.suppress(OSError):  # removed meanwhile
        return file.stat().st_size
    return 0
