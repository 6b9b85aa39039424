"""Folders of the program's own files, which are never in a folder of photos, and its settings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from PySide6.QtCore import QByteArray, QSettings, QStandardPaths

from core.storage import create_folder

OTHER: Final = "another folder with the environment variable LEAFCLINIC_HOME"
PHOTO_FOLDERS: Final[set[str]] = set()
"""Photos that were opened since the start of the program: nothing is written into these folders."""


def home() -> Path:
    """The program's data folder; the environment variable LEAFCLINIC_HOME sets it (tests, portable use)."""
    chosen = os.environ.get("LEAFCLINIC_HOME")
    if chosen:
        return Path(chosen)
    place = QStandardPaths.StandardLocation.GenericDataLocation
    return Path(QStandardPaths.writableLocation(place)) / "leafclinic"


def folder(name: str) -> Path:
    """`home()/name`, created if missing. Raises StorageError."""
    path = home() / name
    create_folder(path)
    return path


def settings_store() -> QSettings:
    """Window state and preferences, in one readable file in the data folder."""
    return QSettings(str(folder("settings") / "leafclinic.ini"), QSettings.Format.IniFormat)


RECENT: Final = 8
FIRST_PAGE: Final = "diagnose"
"""Shown by the first start: most people come with a photo and a question."""


class Settings:
    """Typed access to one QSettings store: preferences, last folders, recent projects, geometry."""

    def __init__(self, store: QSettings) -> None:
        self._store = store

    def text(self, name: str, default: str = "") -> str:
        return str(self._store.value(name, default))

    def set(self, name: str, value: str | bool | QByteArray | list[str]) -> None:
        """Store a value; booleans are stored as words, because INI files have no booleans."""
        self._store.setValue(name, str(value).lower() if isinstance(value, bool) else value)

    def bytes(self, name: str) -> QByteArray:
        value = self._store.value(name)
        return value if isinstance(value, QByteArray) else QByteArray()

    def add_recent(self, path: str) -> None:
        rest = [p for p in self.paths("recent") if p != path]
        self.set("recent", [path, *rest][:RECENT])

    def paths(self, name: str) -> list[str]:
        """A list of files and folders, those that still exist and can be reached."""
        value: Any = self._store.value(name, [])
        known = value if isinstance(value, list) else [value or ""]
        return [p for p in map(str, known) if os.path.exists(p)]

    def sync(self) -> None:
        self._store.sync()
