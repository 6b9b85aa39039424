"""What an installation adds: an entry with icon in the desktop's menu (freedesktop.org), and shell completion."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Final

import shtab

from app import resources
from core.config import settings
from core.storage import create_folder, write_file
from core.training.presets import PRESETS

ENTRY: Final = """[Desktop Entry]
Type=Application
Version=1.5
Name=LeafClinic
Comment=Learns leaf diseases from photos and diagnoses new ones, on this computer
Comment[vi]=Học bệnh lá cây từ ảnh và chẩn đoán ảnh mới, ngay trên máy này
Exec={command} %F
Icon=leafclinic
Terminal=false
Categories=Science;Education;
MimeType=inode/directory;image/jpeg;image/png;image/webp;
StartupWMClass=leafclinic
"""


def install() -> int:
    """Write the entry and the icon for this user, and print their paths. Returns the exit code; raises StorageError."""
    if not sys.platform.startswith("linux"):
        sys.stderr.write("Desktop entries are for Linux; on this system make a shortcut to leafclinic-gui.\n")
        return 1
    base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    icon = base / "icons" / "hicolor" / "scalable" / "apps" / "leafclinic.svg"
    entry = base / "applications" / "leafclinic.desktop"
    text = ENTRY.format(command=command()).encode()
    for path, content in ((icon, resources.data("icons/leafclinic.svg")), (entry, text)):
        create_folder(path.parent)
        write_file(path, content)
        sys.stdout.write(f"wrote {path}\n")
    return 0


def command() -> str:
    """The installed command, or this interpreter, in the quotes that paths with spaces require."""
    if getattr(sys, "frozen", False):
        return f'"{sys.executable}"'
    beside = Path(sys.executable).with_name("leafclinic")
    found = str(beside) if beside.exists() else shutil.which("leafclinic")
    return f'"{found}"' if found else f'"{sys.executable}" -m app'


PATH_NAMES: Final = ("FILE", "FOLDER", "MODEL", "OUT", "PATH", "PHOTO", "RUN")
"""Beginnings of the metavars of options that are paths."""


def write_script(commands: Mapping[str, tuple[str, str]], shell: str) -> str:
    """Return the script for `shell`; `commands` names the module of each command and its purpose."""
    parser = argparse.ArgumentParser("leafclinic")
    parser.add_argument("--version", action="store_true", help="print the version")
    subparsers = parser.add_subparsers()
    for name, (module, purpose) in commands.items():
        made = import_module(module).make_parser()
        subparsers.add_parser(name, parents=[made], add_help=False, help=purpose)
    _add_values(parser)
    return str(shtab.complete(parser, shell))


def _add_values(parser: argparse.ArgumentParser) -> None:
    """Declare the values of each option: the choices of a setting, or a file."""
    known = settings()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for nested in action.choices.values():
                _add_values(nested)
        elif action.nargs == 0:
            continue
        elif action.dest == "preset":
            action.choices = tuple(PRESETS)
        elif action.dest in known and known[action.dest][1].choices:
            action.choices = known[action.dest][1].choices
        elif str(action.metavar).startswith(PATH_NAMES):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
