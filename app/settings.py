"""What the program stores between two starts: preferences, last folders, recent projects, geometry."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, final

from PySide6.QtCore import QByteArray, QObject, QSettings, Signal

RECENT: Final = 8
FIRST_PAGE: Final = "diagnose"
"""Shown by the first start: most people come with a photo and a question."""


@final
class Settings(QObject):
    """Typed access to one QSettings store. `changed` names the preference that changed."""

    changed = Signal(str)

    def __init__(self, store: QSettings, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store = store

    def text(self, name: str, default: str = "") -> str:
        return str(self._store.value(name, default))

    def flag(self, name: str, default: bool = False) -> bool:
        return self.text(name, "true" if default else "false") == "true"

    def set(self, name: str, value: str | bool) -> None:
        """Store a value; booleans are stored as words, because INI files have no booleans."""
        value = str(value).lower() if isinstance(value, bool) else value
        if value != self.text(name):
            self._store.setValue(name, value)
            self.changed.emit(name)

    def bytes(self, name: str) -> QByteArray:
        value = self._store.value(name)
        return value if isinstance(value, QByteArray) else QByteArray()

    def set_bytes(self, name: str, value: QByteArray) -> None:
        self._store.setValue(name, value)

    def recent(self) -> list[str]:
        """Recently opened folders that still exist, newest first."""
        return self.paths("recent")

    def add_recent(self, path: str) -> None:
        rest = [p for p in self.recent() if p != path]
        self.set_paths("recent", [path, *rest][:RECENT])

    def paths(self, name: str) -> list[str]:
        """A list of files and folders, those that still exist."""
        value: Any = self._store.value(name, [])
        known = [value] if isinstance(value, str) else list(value or [])
        return [p for p in known if Path(p).exists()]

    def set_paths(self, name: str, paths: list[str]) -> None:
        self._store.setValue(name, paths)
        self.changed.emit(name)

    def sync(self) -> None:
        self._store.sync()
