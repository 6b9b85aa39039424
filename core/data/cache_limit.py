"""How large the photo caches of a folder may grow: those used longest ago are emptied first."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from core.data.file_lock import locked
from core.storage import write_file

LIMIT_BYTES: Final = 20_000_000_000
"""Where nobody has chosen another: 130,000 photos of 224 pixels."""
LIMIT_FILE: Final = "limit"
"""In the folder of caches: the limit that was chosen, in bytes."""
FILES: Final = ("[0-9]*.index", "[0-9]*.photos", "[0-9]*.features", "[0-9]*-leaves-*.npz", "[0-9]*.writing")
"""What a cache consists of. Locks stay: another process may wait for one."""


@final
@dataclass(frozen=True, slots=True)
class CacheUse:
    """The cache of one folder of photos: its own folder, bytes, and when it was opened last (seconds since 1970)."""

    home: Path
    size: int
    used: float


@final
class _InUse(Exception):
    """Another process fills the cache."""


def read_limit(base: Path) -> int:
    """Bytes that the caches in `base` may take together."""
    try:
        return max(int((base / LIMIT_FILE).read_text("ascii")), 0)
    except (OSError, ValueError):
        return LIMIT_BYTES


def write_limit(base: Path, limit: int) -> None:
    """Choose another limit. Raises StorageError."""
    base.mkdir(parents=True, exist_ok=True)
    write_file(base / LIMIT_FILE, str(limit))


def list_caches(base: Path) -> list[CacheUse]:
    """The photo caches in `base` that hold something, the one used last first."""
    homes = {lock.parent for lock in base.glob("*/[0-9]*.lock")}
    uses = [CacheUse(home, sum(_size(file) for file in _files(home)), home.stat().st_mtime) for home in homes]
    return sorted((use for use in uses if use.size), key=lambda use: -use.used)


def keep_limit(base: Path, home: Path) -> None:
    """Note that the cache `home` is used now, and empty others until all are within the limit."""
    with contextlib.suppress(PermissionError):  # a folder that several users share
        os.utime(home)
    caches = list_caches(base)
    total, limit = sum(use.size for use in caches), read_limit(base)
    for use in reversed(caches):
        if total > limit and use.home != home and empty_cache(use.home):
            total -= use.size


def empty_cache(home: Path) -> bool:
    """Remove the files of a cache; False, and nothing is removed, while a process fills it.

    A process that has its photos mapped keeps them: the system removes the file when it is closed. Windows refuses to
    remove such a file, which then stays until the next time.
    """
    with ExitStack() as held:
        try:
            for lock in home.glob("[0-9]*.lock"):
                held.enter_context(locked(lock, _refuse))
        except _InUse:
            return False
        for file in _files(home):
            with contextlib.suppress(OSError):
                file.unlink()
        return True


def _files(home: Path) -> Iterator[Path]:
    for pattern in FILES:
        yield from home.glob(pattern)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # removed meanwhile
        return 0


def _refuse() -> None:
    raise _InUse
