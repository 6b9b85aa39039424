"""`leafclinic --install-desktop`: an entry in the desktop's menu, with the icon (freedesktop.org, XDG folders)."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final

from app import resources

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
    """Write the entry and the icon for this user, and print their paths. Returns the exit code."""
    if not sys.platform.startswith("linux"):
        sys.stderr.write("Desktop entries are for Linux; on this system make a shortcut to leafclinic-gui.\n")
        return 1
    base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    icon = base / "icons" / "hicolor" / "scalable" / "apps" / "leafclinic.svg"
    entry = base / "applications" / "leafclinic.desktop"
    for path, content in ((icon, resources.data("icons/leafclinic.svg")), (entry, entry_text().encode())):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        sys.stdout.write(f"wrote {path}\n")
    return 0


def entry_text() -> str:
    return ENTRY.format(command=_command())


def _command() -> str:
    """The installed command, or this interpreter; paths with spaces are quoted as the specification requires."""
    if getattr(sys, "frozen", False):
        return _quote(sys.executable)
    beside = Path(sys.executable).with_name("leafclinic")
    found = str(beside) if beside.exists() else shutil.which("leafclinic")
    return _quote(found) if found else f"{_quote(sys.executable)} -m app"


def _quote(path: str) -> str:
    return path if path.replace("/", "").replace("-", "").replace("_", "").replace(".", "").isalnum() else f'"{path}"'
