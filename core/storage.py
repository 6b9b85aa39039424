"""Atomic writing of files."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import BinaryIO, Final

from core.errors import DataError, InputError, StorageError

TEMPORARY: Final = ".writing"
"""Suffix of an unfinished file, of an unpredictable name beside it; a crash may leave one, which is never read."""
NO_ROOM: Final = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
"""Errors of a full disk or an exceeded quota."""
PREFIX: Final = 40
"""Characters of another file's name that a new name has: names may have the greatest length already."""


def write_file(path: Path, content: bytes | str) -> None:
    """Replace `path` by `content`: temporary file, fsync, rename, fsync of the folder.

    The file is replaced atomically, also in a crash or with other writers. Text is UTF-8; surrogate escapes of file
    names become their bytes. Raises StorageError.
    """
    with writing(path) as file:
        file.write(content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` at the end of the block, as `write_file` does. Raises StorageError."""
    temporary = path.with_name(f"{path.name[:PREFIX]}.{os.getpid()}.{secrets.token_hex(4)}{TEMPORARY}")
    with saving(path):
        try:
            with open_new(temporary) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            sync_folder(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):  # the original error is reported
                temporary.unlink()
            raise


def refuse_pipe(path: Path) -> None:
    """Raise DataError if `path` is neither a file nor a folder: opening it could wait for ever."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise DataError(f"{path} is a pipe or a device. Choose a file.")


def inside_photos(path: str, photos: Iterable[str]) -> str:
    """A sentence that refuses a file inside one of these photo folders; "" for others. Manifests are no folders."""
    real = os.path.realpath  # unlike Path.resolve it accepts a link to itself
    if path and any(os.path.isdir(folder) and Path(real(path)).is_relative_to(real(folder)) for folder in photos):
        return f"{path} is inside the photo folder, in which nothing is written. Choose another folder."
    return ""


def open_new(path: Path) -> BinaryIO:
    """Create a file for writing, as the umask allows. Symbolic links are not followed: in a folder that others can
    write to, they may lead to another file of this user. Raises FileExistsError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, 0o666), "wb")


def sync_folder(folder: Path) -> None:
    """Flush renames in the folder to the disk; not needed on Windows."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # file systems that sync no folders, such as VirtualBox's shared ones
            raise
    finally:
        os.close(handle)


def create_folder(path: Path) -> None:
    """Create the folder, and those above it, if missing. Raises StorageError."""
    with saving(path):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise StorageError(_no_folder(_nearest(path), "another folder")) from None


@contextlib.contextmanager
def saving(path: Path, other: str = "another folder") -> Iterator[None]:
    """An OSError of the block becomes a StorageError about `path` (`storage_error`), unless nobody reads progress."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise storage_error(path, error, other) from error


def storage_error(path: Path, error: OSError, other: str = "another folder") -> StorageError:
    """The sentence advises to choose `other`."""
    reason = error.strerror or str(error)
    if error.errno in NO_ROOM:
        return StorageError(f"{path} could not be saved: {reason}. Free disk space or choose {other}.")
    return StorageError(f"{path} could not be saved: {reason}. Choose {other}.")


def new_run_folder(place: Path, start: str, model: str) -> Path:
    """A folder name that sorts by time and names the pretrained file, or without one the network."""
    return unused(place / f"{time.strftime('%Y%m%d-%H%M%S')}-{Path(start).stem[:PREFIX] or model}")


def unused(path: Path) -> Path:
    """The path, or with -2, -3 ... appended if it exists: two runs may start in the same second."""
    names = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2))
    return path if not os.path.lexists(path) else next(name for name in names if not os.path.lexists(name))


def create_unused(path: Path) -> Path:
    """Create the folder `unused(path)`. Programs that do so at once get different ones. Raises StorageError."""
    create_folder(path.parent)
    while True:
        with saving(path), contextlib.suppress(FileExistsError):
            (found := unused(path)).mkdir()
            return found


def _no_folder(path: Path, other: str) -> str:
    return f"{path} is a file, or a link that leads nowhere. Choose {other}."


def _nearest(path: Path) -> Path:
    """The path, or the nearest one above it that exists."""
    return next(folder for folder in (path, *path.absolute().parents) if os.path.lexists(folder))


def is_name_too_long(path: str | Path) -> bool:
    """Whether the file system refuses the path for its length."""
    try:
        os.lstat(path)
    except OSError as error:
        return error.errno == errno.ENAMETOOLONG
    return False


def check_writable(path: Path, other: str) -> None:
    """Raise InputError if the folder, or the nearest existing one above it, is none or this user may not write there,
    or its name is too long; the sentence advises to choose `other`."""
    if is_name_too_long(path):
        raise InputError(f"The name {path} is too long. Choose {other}.")
    there = _nearest(path)
    if not os.path.isdir(there):
        raise InputError(_no_folder(there, other))
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"There is no permission to write in {there}. Choose {other}.")
