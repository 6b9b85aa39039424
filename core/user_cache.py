"""Where the program keeps what it can make again (decoded photos, compiled kernels), by each system's own rule."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from core.errors import StorageError

REMEDY: Final = "Set XDG_CACHE_HOME to a folder that may be written."


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
    """The folder found, made if need be; None where there is none, or nothing can be written there."""
    try:
        folder = find()
        folder.mkdir(parents=True, exist_ok=True)
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
    """Within it, the folder of compiled kernels, those of the CPU and those of the GPU."""
    return user_cache_folder() / "kernels"
