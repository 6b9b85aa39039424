"""The photos of the open dataset that pass the filter, and the search in their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from PySide6.QtCore import QModelIndex, QObject, QPersistentModelIndex, QStringListModel, Qt, Signal

from app.cards import disease_name
from app.project import EditedDataset
from app.task import Task
from core.data.string_array import StringArray
from core.ops.contract import Array

PATH: Final = Qt.ItemDataRole.UserRole
EXCLUDED: Final = Qt.ItemDataRole.UserRole + 1
MARK: Final = Qt.ItemDataRole.UserRole + 2


class PhotoModel(QStringListModel):
    """`rows` are rows of the dataset. `marks` are short texts on top of photos (a probability, a reason).

    A list of blanks, so that Qt counts without calling Python, as its views do for every row.
    """

    def __init__(self) -> None:
        super().__init__()
        self.table: EditedDataset | None = None
        self.rows: Array = np.empty(0, np.int64)
        self._marks: dict[int, str] = {}

    def show(self, table: EditedDataset | None, rows: Array, marks: dict[int, str] | None = None) -> None:
        same = table is self.table and len(rows) == len(self.rows) and bool(np.array_equal(rows, self.rows))
        if same and (marks or {}) == self._marks:
            if len(rows):
                self.dataChanged.emit(self.index(0), self.index(len(rows) - 1))
            return
        self.table, self.rows, self._marks = table, rows, marks or {}
        self.setStringList([""] * len(rows))

    def data(self, index: QModelIndex | QPersistentModelIndex, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        assert self.table is not None
        row = int(self.rows[index.row()])
        match role:
            case Qt.ItemDataRole.DisplayRole | Qt.ItemDataRole.AccessibleTextRole:
                return disease_name(self.table.label(row))
            case Qt.ItemDataRole.ToolTipRole:
                return f"{self.table.dataset.paths[row]}\n{self.table.label(row)}"
        if role == PATH:
            return Path(self.table.dataset.path(row))  # Qt would change a text that is not UTF-8
        if role == EXCLUDED:
            return bool(self.table.excluded[row])
        return self._marks.get(row) if role == MARK else None


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
            self._task = Task(lambda report, cancelled: texts.holding(wanted, cancelled), self, done=self._on_done)
        return self._mask

    def forget(self) -> None:
        """Cancel the search and release the texts."""
        self._asked = self._mask = None
        if self._task is not None:
            self._task.cancel()

    def _on_done(self, mask: Array) -> None:
        self._mask = mask
        self.found.emit()
