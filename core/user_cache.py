"""The user's cache folder (decoded photos, compiled kernels), and folders that only this user can write to.

Compiled kernels are executed as they are found, and a second start of the window sends photo paths to whoever listens.
On Windows, where folders of a user's profile inherit the user's rights, a private folder is only created.
"""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from core.errors import InputError, StorageError

if os.name != "nt":
    import grp
    import pwd

KERNEL_DAYS: Final = 1.0
"""Compiled kernels younger than this are kept when caches are cleared: a running program may be using them."""
REMEDY: Final = "Set XDG_CACHE_HOME to a writable folder."


def user_cache_folder() -> Path:
    """The user's cache folder for LeafClinic, by the system's convention; it may not exist yet."""
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "LeafClinic" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "LeafClinic"
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(chosen):
        return Path(chosen) / "leafclinic"
    try:
        return Path.home() / ".cache" / "leafclinic"
    except RuntimeError as error:  # a container's user that its system does not know
        raise StorageError(f"This user has no home folder. {REMEDY}") from error


def find_writable(find: Callable[[], Path]) -> Path | None:
    """The folder that `find` returns; None where there is none, or it is not writable."""
    try:
        folder = find()
        return folder if os.access(folder, os.W_OK | os.X_OK) else None
    except (OSError, StorageError):
        return None


def make_temporary_folder() -> Path:
    """A new folder that is removed when this process ends. Its name is random: compiled code in it is executed, so
    another user must not be able to prepare it."""
    folder = Path(tempfile.mkdtemp(prefix="leafclinic-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def user_kernel_folder() -> Path:
    """The private folder of compiled kernels in the cache folder. Raises as `make_kernel_folder`."""
    return make_kernel_folder(user_cache_folder() / "kernels")


def make_kernel_folder(folder: Path) -> Path:
    """Make a private folder. Raises InputError where others can write there, StorageError where that fails."""
    try:
        return make_private_folder(folder)
    except InputError as error:
        raise InputError(f"{error}\nCompiled kernels are saved there and executed, so other users must not be able to "
                         "change them. To use another folder, set XDG_CACHE_HOME.") from error
    except OSError as error:
        raise StorageError(f"{folder} cannot be made: {error.strerror}. {REMEDY}") from error


def kernel_bytes() -> int:
    return sum(_newest_and_size(entry)[1] for entry in _kernel_entries())


def remove_old_kernels() -> None:
    """Remove compiled kernels that were last written KERNEL_DAYS ago; each program version has its own."""
    for entry in _kernel_entries():
        if _newest_and_size(entry)[0] < time.time() - 86400 * KERNEL_DAYS:
            shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)


def _kernel_entries() -> list[Path]:
    """One folder per instruction set and version for the CPU, one file per kernel for the GPU."""
    folder = user_cache_folder() / "kernels"
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _newest_and_size(entry: Path) -> tuple[float, int]:
    """When something in it was last written (seconds since 1970), and its bytes."""
    files = [entry, *entry.rglob("*")] if entry.is_dir() else [entry]
    found = [path.stat() for path in files if path.exists()]
    return max((file.st_mtime for file in found), default=0.0), sum(file.st_size for file in found)


def create_private_folder(path: Path) -> Path:
    """Return the absolute folder; it and its missing parents are created with mode 0700. Raises OSError."""
    whole = Path(os.path.abspath(path))
    missing = [folder for folder in (whole, *whole.parents) if not os.path.lexists(folder)]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    return whole


def make_private_folder(path: Path) -> Path:
    """`create_private_folder`; raises InputError where others than root own it, or can write to it or above it."""
    whole = create_private_folder(path)
    if os.name == "nt":
        return whole
    real = whole.resolve()
    for folder in sorted({whole, real, *whole.parents, *real.parents}):
        _check(folder, whole, own=folder == real)
    return whole


def _check(folder: Path, whole: Path, own: bool) -> None:
    """Raise InputError where another user can change the content of `folder`, or the link of this name.

    own: it must belong to this user; a folder above may also belong to root, and may be writable for all where only
    their owners can rename and remove entries (the sticky bit, as of /tmp).
    """
    status = folder.lstat()
    if status.st_uid != os.geteuid() and (own or status.st_uid):
        raise InputError(f"{whole} is not used: {folder} belongs to {_user_name(status.st_uid)}, who could change "
                         "what is kept there.")
    sticky = not own and status.st_mode & stat.S_ISVTX
    if stat.S_ISLNK(status.st_mode) or sticky:
        return
    group = status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid)
    if group or status.st_mode & stat.S_IWOTH:
        then = "" if folder == whole else f", then run: chmod go-w {folder}"
        raise InputError(f"{whole} is not used: other users may write to {folder}. Remove {whole}{then}")


def _is_private_group(gid: int) -> bool:
    """Whether the group is the one that many systems create for each user, with the user's name (umask 002)."""
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return os.geteuid() != 0 and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _user_name(uid: int) -> str:
    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"another user ({uid})"
