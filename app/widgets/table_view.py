"""A table view of sorted rows, as used on every page."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from PySide6.QtCore import QItemSelectionModel, QModelIndex, QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QMenu, QTableView

from app.translation import tr
from app.viewmodels.rows_model import ROW, RowsModel

Move, Mode = QAbstractItemView.CursorAction, QAbstractItemView.SelectionMode
MAX_COLUMN_WIDTH: Final = 300
"""Pixels: a long file name must not push the other columns away."""


class Table(QTableView):
    """Sorted by a click on a header or by its context menu; column `stretch` takes the spare width. It keeps the
    current row, and its visibility, when other rows are shown; the first row if it is gone."""

    def __init__(self, rows: RowsModel, name: str, stretch: int = 0, several: bool = False) -> None:
        super().__init__()
        self.rows, sorting = rows, rows.sorting
        self._place, self._seen, self._height = -1, False, 0
        self.setModel(rows)
        self.setAccessibleName(name)
        self.setAlternatingRowColors(True)
        self.setShowGrid(False)
        self.setWordWrap(False)  # a long text is cut at a letter, not at a word
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)  # names of photos and classes differ at either end
        self.setTabKeyNavigation(False)
        self.setSelectionMode(Mode.ExtendedSelection if several else Mode.SingleSelection)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.verticalHeader().hide()
        self.verticalHeader().setDefaultSectionSize(self.fontMetrics().height() + 14)
        head = self.horizontalHeader()
        head.setSelectionModel(QItemSelectionModel(rows, self))  # it would ask of every selected cell
        self.setSortingEnabled(True)
        head.setSortIndicatorClearable(True)
        head.setSortIndicatorShown(False)  # needs space in every header; ours is text
        self.sortByColumn(*sorting)  # of a window in another language; else none
        head.setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        head.setHighlightSections(False)
        head.setResizeContentsPrecision(30)  # rows that are measured; all would take a second
        head.setMaximumSectionSize(MAX_COLUMN_WIDTH)
        head.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        head.setSectionResizeMode(stretch, QHeaderView.ResizeMode.Stretch)
        menu = QMenu(tr("Sort by"), self)
        menu.aboutToShow.connect(partial(self._list_columns, menu))
        self.addAction(menu.menuAction())
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.ActionsContextMenu)
        rows.narrowing.connect(self._on_narrowing)
        rows.narrowed.connect(self._on_narrowed)

    def selected(self) -> Any | None:
        index = self.currentIndex()
        return index.data(ROW) if index.isValid() else None

    def selected_rows(self) -> list[Any]:
        """All selected rows. Qt's own list makes an index of each, which takes half a second for 20,000."""
        ranges = self.selectionModel().selection().toList()  # they overlap if a column was moved
        chosen = {at for part in ranges for at in range(part.top(), part.bottom() + 1)}
        return [self.rows.rows[self.rows.place(at)] for at in sorted(chosen)]

    def sizeHint(self) -> QSize:  # noqa: N802 (Qt's names here and below)
        """Qt's layouts would give it its preferred 192 pixels beside wrapped texts and squeeze what is above."""
        return self.minimumSizeHint().expandedTo(self.minimumSize())

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: N802
        """Qt would keep the width of a stretched column that has no room left."""
        head = self.horizontalHeader()
        for at in range(head.count()):
            if head.sectionResizeMode(at) == QHeaderView.ResizeMode.Stretch:
                head.resizeSection(at, head.minimumSectionSize())
        super().resizeEvent(event)

    def moveCursor(self, action: QAbstractItemView.CursorAction, keys: Qt.KeyboardModifier) -> QModelIndex:  # noqa: N802
        """Home and End go to the first and last row: whole rows are selected, not cells."""
        ends = {Move.MoveHome: 0, Move.MoveEnd: self.rows.rowCount() - 1}
        return self.rows.index(ends[action], 0) if action in ends else super().moveCursor(action, keys)

    def _list_columns(self, menu: QMenu) -> None:
        """Fill a menu with what a click on each header does, for the keyboard."""
        menu.clear()
        for at, column in enumerate(self.rows.columns):
            if not self.isColumnHidden(at):
                down = self.rows.sorting == (at, Qt.SortOrder.AscendingOrder)
                menu.addAction(column.title, partial(self.sortByColumn, at, Qt.SortOrder(int(down))))

    def _on_narrowing(self) -> None:
        index = self.currentIndex()
        if index.isValid() or self.rows.rowCount():  # an empty result of a search does not forget the row
            self._place = self.rows.place(index.row()) if index.isValid() else -1
        self._seen = self.viewport().rect().intersects(self.visualRect(index))
        self._height = self.verticalScrollBar().value()

    def _on_narrowed(self) -> None:
        if self._place < 0 or not self.rows.rowCount():
            return
        self.selectRow(max(self.rows.row_of(self._place), 0))
        if not self._seen:
            self.verticalScrollBar().setValue(self._height)
