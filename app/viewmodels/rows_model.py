"""Rows of plain data as a Qt table; columns state how a row is shown and sorted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, Qt

SORT = Qt.ItemDataRole.UserRole
ROW = Qt.ItemDataRole.UserRole + 1
ANSWERED = frozenset(
    int(role) for role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole, Qt.ItemDataRole.TextAlignmentRole,
                           SORT, ROW)
)  # fmt: skip
"""Roles with a value. A view asks for seven others per cell."""
NOWHERE = QModelIndex()
LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


@final
@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    title, help: of the header; text: of a row; sort: the number to sort by (the text if None); right: right-aligned;
    tip: tooltip of a row; searched: a search looks into this column.
    """

    title: str
    text: Callable[[Any], str]
    sort: Callable[[Any], float] | None = None
    right: bool = False
    tip: Callable[[Any], str | None] | None = None
    searched: bool = False
    help: str | None = None


@final
class RowsModel(QAbstractTableModel):
    """A list of rows with columns. `append` keeps the selection and the scroll position."""

    def __init__(self, columns: Sequence[Column], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.columns = tuple(columns)
        self.rows: list[Any] = []

    def show_rows(self, rows: Sequence[Any]) -> None:
        self.beginResetModel()
        self.rows = list(rows)
        self.endResetModel()

    def set_columns(self, columns: Sequence[Column]) -> None:
        """Replace the columns by the same ones in another language."""
        self.columns = tuple(columns)
        self.headerDataChanged.emit(Qt.Orientation.Horizontal, 0, len(self.columns) - 1)

    def append(self, rows: Sequence[Any]) -> None:
        if rows:
            self.beginInsertRows(NOWHERE, len(self.rows), len(self.rows) + len(rows) - 1)
            self.rows += rows
            self.endInsertRows()

    def replace(self, at: int, row: Any) -> None:
        self.rows[at] = row
        self.dataChanged.emit(self.index(at, 0), self.index(at, len(self.columns) - 1))

    def replace_all(self, rows: Sequence[Any]) -> None:
        """Replace all rows by as many new ones, keeping selection and scroll position."""
        self.rows = list(rows)
        if rows:
            self.dataChanged.emit(self.index(0, 0), self.index(len(rows) - 1, len(self.columns) - 1))

    def rowCount(self, parent: QModelIndex = NOWHERE) -> int:  # noqa: N802 (Qt's names here and below)
        return 0 if parent.isValid() else len(self.rows)

    def columnCount(self, parent: QModelIndex = NOWHERE) -> int:  # noqa: N802
        return 0 if parent.isValid() else len(self.columns)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = 0) -> Any:  # noqa: N802
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return RIGHT if self.columns[section].right else LEFT
        column = self.columns[section]
        return {Qt.ItemDataRole.DisplayRole: column.title, Qt.ItemDataRole.ToolTipRole: column.help}.get(role)  # type: ignore[call-overload]

    def data(self, index: QModelIndex, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        return self.value(index.row(), index.column(), role) if role in ANSWERED else None

    def value(self, at: int, column_at: int, role: int) -> Any:
        """The value of a row in a column for a Qt role."""
        row, column = self.rows[at], self.columns[column_at]
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return column.text(row)
            case Qt.ItemDataRole.ToolTipRole:
                return column.tip(row) if column.tip else None
            case Qt.ItemDataRole.TextAlignmentRole:
                return RIGHT if column.right else LEFT
        if role == SORT:
            return column.sort(row) if column.sort else column.text(row)
        return row if role == ROW else None
