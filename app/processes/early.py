"""Starts the process that diagnoses before the window is imported and built, which takes a second."""

from __future__ import annotations

from app import paths
from app.processes.entry import Child, command, open_child
from app.settings import FIRST_PAGE, Settings
from core.errors import StorageError


def start_early() -> Child | None:
    """The process, if the window will open on the Diagnose page; otherwise it starts when that page is opened."""
    try:
        page = Settings(paths.settings_store()).text("page") or FIRST_PAGE
        return open_child(command("diagnose")) if page == "diagnose" else None
    except (OSError, StorageError):
        return None  # the window will report it
