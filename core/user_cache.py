"""Where the program keeps what it can make again (decoded photos, compiled kernels), by each system's own rule."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def user_cache_folder() -> Path:
    """The user's cache folder for LeafClinic (it need not exist yet)."""
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "LeafClinic" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "LeafClinic"
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(chosen) if os.path.isabs(chosen) else Path.home() / ".cache") / "leafclinic"


def user_kernel_folder() -> Path:
    """Within it, the folder of compiled kernels, those of the CPU and those of the GPU."""
    return user_cache_folder() / "kernels"
