"""Folders whose content is trusted: only this user and root can have put it there.

Compiled kernels are run as they are found, and a second start hands photo paths to whoever listens. On Windows, where
folders of a user's profile inherit the user's rights, a folder is only made.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from core.errors import InputError

if os.name != "nt":
    import grp
    import pwd


def make_private_folder(path: Path) -> Path:
    """The folder, absolute, made with mode 0700 where it is missing, as are those above it.

    Raises InputError where another user than root owns it or can write to it, or to a folder above it; OSError where it
    cannot be made.
    """
    whole = Path(os.path.abspath(path))
    missing = [folder for folder in (whole, *whole.parents) if not os.path.lexists(folder)]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    if os.name == "nt":
        return whole
    real = whole.resolve(strict=True)
    for folder in sorted({whole, real, *whole.parents, *real.parents}):
        _check(folder, whole, own=folder == real)
    return whole


def _check(folder: Path, whole: Path, own: bool) -> None:
    """Raise InputError where another user can change what `folder`, or the link of this name, holds.

    own: it must be this user's; a folder above may be root's, too, and may be written by all where entries can be
    renamed and removed by their owners alone (the sticky bit, as of /tmp).
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
    """Whether the group is the one that many systems make for each user alone, with the user's name (umask 002)."""
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
