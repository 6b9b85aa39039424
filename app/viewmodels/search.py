"""Searches the names of photos in the background: a million names take half a second."""

from __future__ import annotations

from typing import final

from PySide6.QtCore import QObject, Signal

from app.task import Task
from core.data.string_array import StringArray
from core.ops.contract import Array


@final
class Search(QObject):
    """`mask` returns a known result at once; otherwise it searches, and `found` says when to ask again."""

    found = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._asked: tuple[StringArray, str] | None = None
        self._mask: Array | None = None
        self._task: Task | None = None

    def mask(self, texts: StringArray, wanted: str) -> Array | None:
        """Bool ``(N,)``: the strings that contain `wanted`, ignoring case; None while the search runs."""
        if self._asked is None or self._asked[0] is not texts or self._asked[1] != wanted:
            self.forget()
            self._asked = (texts, wanted)
            self._task = Task(lambda report, cancelled: texts.holding(wanted, cancelled), self)
            self._task.done.connect(self._on_done)
            self._task.start()
        return self._mask

    def forget(self) -> None:
        """Cancel the search and release the texts."""
        task, self._task = self._task, None
        self._asked = self._mask = None
        if task is not None:
            task.dispose()

    def _on_done(self, mask: Array) -> None:
        if self.sender() is self._task:
            self._mask = mask
            self.found.emit()
