"""The photos of the open dataset that pass the filter."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, final

import numpy as np
from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QStringListModel, Qt

from app.cards import disease_name
from app.project import EditedDataset
from core.ops.contract import Array

PATH: Final = Qt.ItemDataRole.UserRole
EXCLUDED: Final = Qt.ItemDataRole.UserRole + 1
MARK: Final = Qt.ItemDataRole.UserRole + 2


@final
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
