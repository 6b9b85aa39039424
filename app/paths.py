"""Folders of the program's own files: settings, projects, logs, runs. Never in a folder of photos."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from PySide6.QtCore import QSettings, QStandardPaths

from core.storage import storage_error

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
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(path, error) from error
    return path


def settings_store() -> QSettings:
    """Window state and preferences, in one readable file in the data folder."""
    return QSettings(str(folder("settings") / "leafclinic.ini"), QSettings.Format.IniFormat)
