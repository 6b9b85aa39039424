"""Rows of plain data as a Qt table: each column says how to show and how to sort a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QSortFilterProxyModel, Qt
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableView

SORT = Qt.ItemDataRole.UserRole
ROW = Qt.ItemDataRole.UserRole + 1
NOWHERE = QModelIndex()
WIDEST = 300
"""Pixels of the widest column that follows its contents: a long file name may not push the others away."""


@final
@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, the text of a row, what to sort by (the text when None), numbers stand right."""

    title: str
    text: Callable[[Any], str]
    sort: Callable[[Any], Any] | None = None
    right: bool = False
    tip: Callable[[Any], str] | None = None


@final
class RowsModel(QAbstractTableModel):
    """A list of rows behind columns. `append` adds without disturbing selection or scrolling."""

    def __init__(self, columns: Sequence[Column], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.columns = tuple(columns)
        self.rows: list[Any] = []

    def show_rows(self, rows: Sequence[Any]) -> None:
        self.beginResetModel()
        self.rows = list(rows)
        self.endResetModel()

    def append(self, rows: Sequence[Any]) -> None:
        if rows:
            self.beginInsertRows(NOWHERE, len(self.rows), len(self.rows) + len(rows) - 1)
            self.rows += rows
            self.endInsertRows()

    def replace(self, at: int, row: Any) -> None:
        self.rows[at] = row
        self.dataChanged.emit(self.index(at, 0), self.index(at, len(self.columns) - 1))

    def replace_all(self, rows: Sequence[Any]) -> None:
        """As many rows as before, all of them anew; selection and scrolling stay."""
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
            return _side(self.columns[section])
        return self.columns[section].title if role == Qt.ItemDataRole.DisplayRole else None

    def data(self, index: QModelIndex, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        row, column = self.rows[index.row()], self.columns[index.column()]
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return column.text(row)
            case Qt.ItemDataRole.ToolTipRole:
                return column.tip(row) if column.tip else None
            case Qt.ItemDataRole.TextAlignmentRole:
                return _side(column)
        if role == SORT:
            return column.sort(row) if column.sort else column.text(row)
        return row if role == ROW else None


def _side(column: Column) -> Qt.AlignmentFlag:
    return (Qt.AlignmentFlag.AlignRight if column.right else Qt.AlignmentFlag.AlignLeft) | Qt.AlignmentFlag.AlignVCenter


def sorted_view(model: RowsModel, name: str, stretch: int = 0) -> tuple[QTableView, QSortFilterProxyModel]:
    """A table view over the rows, sorted by a click on a heading; column `stretch` takes the spare width."""
    proxy = QSortFilterProxyModel(model)
    proxy.setSourceModel(model)
    proxy.setSortRole(SORT)
    proxy.setFilterKeyColumn(-1)
    proxy.setFilterCaseSensitivity(Qt.CaseSensitivity.CaseInsensitive)
    view = QTableView()
    view.setModel(proxy)
    view.setAccessibleName(name)
    view.setSortingEnabled(True)
    view.horizontalHeader().setSortIndicatorClearable(True)
    view.sortByColumn(-1, Qt.SortOrder.AscendingOrder)
    view.setAlternatingRowColors(True)
    view.setShowGrid(False)
    view.setWordWrap(False)  # a text too long ends where the room does, not at its last word that fits
    view.setTabKeyNavigation(False)
    view.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
    view.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
    view.verticalHeader().hide()
    view.verticalHeader().setDefaultSectionSize(28)
    view.horizontalHeader().setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
    view.horizontalHeader().setHighlightSections(False)
    view.horizontalHeader().setResizeContentsPrecision(30)  # rows measured for a width; all of them cost a second
    view.horizontalHeader().setMaximumSectionSize(WIDEST)
    view.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
    view.horizontalHeader().setSectionResizeMode(stretch, QHeaderView.ResizeMode.Stretch)
    return view, proxy


def selected(view: QTableView) -> Any | None:
    """The row under the current index, or None."""
    index = view.currentIndex()
    return index.data(ROW) if index.isValid() else None
