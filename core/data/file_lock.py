"""A lock between processes that the operating system releases when its holder dies."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

POLL_SECONDS: Final = 0.1


@contextmanager
def locked(path: Path, while_waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock of a file that is no link.

    While another process has it, call `while_waiting` (which may raise); without one, raise BlockingIOError.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        while not _try_lock(handle):
            if while_waiting is None:
                raise BlockingIOError(f"Another process has locked {path}.")
            while_waiting()
            time.sleep(POLL_SECONDS)
        yield
    finally:
        os.close(handle)  # releases the lock


if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


def _try_lock(handle: int) -> bool:
    with suppress(BlockingIOError, PermissionError):  # the latter on Windows; a file system may also have no locks
        if sys.platform == "win32":
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
