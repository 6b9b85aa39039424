"""Where the program keeps what it can make again (decoded photos, compiled kernels), by each system's own rule."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from core.errors import InputError, StorageError
from core.private_folder import make_private_folder

KERNEL_DAYS: Final = 1.0
"""Compiled kernels younger than this stay when the caches are cleared: a program that runs now may be using them."""
REMEDY: Final = "Set XDG_CACHE_HOME to a writable folder."


def user_cache_folder() -> Path:
    """The user's cache folder for LeafClinic (it need not exist yet)."""
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "LeafClinic" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "LeafClinic"
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(chosen) if os.path.isabs(chosen) else _home() / ".cache") / "leafclinic"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:  # a container's user whom its system does not know
        raise StorageError(f"This user has no home folder. {REMEDY}") from error


def kept(find: Callable[[], Path]) -> Path | None:
    """The folder found; None where there is none, or nothing can be written there."""
    try:
        folder = find()
        return folder if os.access(folder, os.W_OK | os.X_OK) else None
    except (OSError, StorageError):
        return None


def passing() -> Path:
    """A folder that goes with this process. Never one of a known name among everybody's passing files: what lies there
    may be another's, and compiled code is run."""
    folder = Path(tempfile.mkdtemp(prefix="leafclinic-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def user_kernel_folder() -> Path:
    """Within it, the folder of compiled kernels, those of the CPU and those of the GPU: made where it is missing.

    Kernels are run as they are found. Raises InputError where other users can write there, StorageError where it cannot
    be made.
    """
    return make_kernel_folder(user_cache_folder() / "kernels")


def make_kernel_folder(folder: Path) -> Path:
    """The folder, made where it is missing. Raises as `user_kernel_folder`."""
    try:
        return make_private_folder(folder)
    except InputError as error:
        raise InputError(f"{error}\nCompiled kernels are saved there and executed, so other users must not be able to "
                         "change them. To use another folder, set XDG_CACHE_HOME.") from error
    except OSError as error:
        raise StorageError(f"{folder} cannot be made: {error.strerror}. {REMEDY}") from error


def kernel_bytes() -> int:
    """Bytes of all compiled kernels in the user's cache folder."""
    return sum(_newest_and_size(entry)[1] for entry in _kernel_entries())


def remove_old_kernels(days: float = KERNEL_DAYS) -> None:
    """Remove compiled kernels of which nothing was written for so many days; each program version has its own."""
    for entry in _kernel_entries():
        if _newest_and_size(entry)[0] < time.time() - 86400 * days:
            shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)


def _kernel_entries() -> list[Path]:
    """One folder per instruction set and version for the CPU, one file per kernel for the GPU."""
    folder = user_cache_folder() / "kernels"
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _newest_and_size(entry: Path) -> tuple[float, int]:
    """When something was last written in it (seconds since 1970), and its bytes."""
    files = [entry, *entry.rglob("*")] if entry.is_dir() else [entry]
    found = [file.stat() for file in files if file.exists()]
    return max((stat.st_mtime for stat in found), default=0.0), sum(stat.st_size for stat in found)
