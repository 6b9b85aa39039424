"""Starts the process that diagnoses before Qt and the window are imported, which takes a second."""

from __future__ import annotations

from app.processes.entry import Child, command, open_child
from core.errors import StorageError


def start_early() -> Child | None:
    """The process, if the window will open on the Diagnose page; otherwise it starts when that page is opened."""
    try:
        child = open_child(command("diagnose"))
        if _first_page() == "diagnose":
            return child
        child.close()
    except (OSError, StorageError):
        return None  # the window will report it; the process ends with its input
    return None


def _first_page() -> str:
    """The page that the window will open on. Qt is imported here, while the process starts."""
    from app import paths
    from app.settings import FIRST_PAGE, Settings

    return Settings(paths.settings_store()).text("page") or FIRST_PAGE
