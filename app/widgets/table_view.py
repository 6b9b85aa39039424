"""A table view of sorted rows, as used on every page."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from PySide6.QtCore import QItemSelectionModel, QModelIndex, QObject, QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QMenu, QTableView

from app.translation import tr
from app.viewmodels.rows_model import ROW, RowsModel

Move = QAbstractItemView.CursorAction
MAX_COLUMN_WIDTH: Final = 300
"""Pixels: a long file name must not push the other columns away."""


class Table(QTableView):
    """Qt's layouts would give it its preferred 192 pixels beside wrapped texts and squeeze what is above."""

    def sizeHint(self) -> QSize:  # noqa: N802 (Qt's name)
        return self.minimumSizeHint().expandedTo(self.minimumSize())

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: N802 (Qt's name)
        """Qt would keep the width of a stretched column that has no room left."""
        head = self.horizontalHeader()
        for at in range(head.count()):
            if head.sectionResizeMode(at) == QHeaderView.ResizeMode.Stretch:
                head.resizeSection(at, head.minimumSectionSize())
        super().resizeEvent(event)

    def moveCursor(self, action: Move, keys: Qt.KeyboardModifier) -> QModelIndex:  # noqa: N802 (Qt's name)
        """Home and End go to the first and last row: whole rows are selected, not cells."""
        rows = {Move.MoveHome: 0, Move.MoveEnd: self.model().rowCount() - 1}
        return self.model().index(rows[action], 0) if action in rows else super().moveCursor(action, keys)

    def list_sorting(self, menu: QMenu) -> None:
        """Fill a menu with what a click on each header does, for the keyboard."""
        rows = self.model()
        assert isinstance(rows, RowsModel)
        menu.clear()
        for at, column in enumerate(rows.columns):
            if not self.isColumnHidden(at):
                down = rows.sorting == (at, Qt.SortOrder.AscendingOrder)
                menu.addAction(column.title, partial(self.sortByColumn, at, Qt.SortOrder(int(down))))


def sorted_view(rows: RowsModel, name: str, stretch: int = 0) -> QTableView:
    """A table view of the rows, sorted by a click on a header or its context menu; column `stretch` takes the spare width."""
    view, sorting = Table(), rows.sorting
    view.setModel(rows)
    view.horizontalHeader().setSelectionModel(QItemSelectionModel(rows, view))  # it would ask of every selected cell
    KeptPlace(view, rows)
    view.setAccessibleName(name)
    view.setSortingEnabled(True)
    view.horizontalHeader().setSortIndicatorClearable(True)
    view.horizontalHeader().setSortIndicatorShown(False)  # needs space in every header; ours is text
    view.sortByColumn(*sorting)  # of a window in another language; else none
    view.setAlternatingRowColors(True)
    view.setShowGrid(False)
    view.setWordWrap(False)  # a long text is cut at a letter, not at a word
    view.setTextElideMode(Qt.TextElideMode.ElideMiddle)  # names of photos and classes differ at either end
    view.setTabKeyNavigation(False)
    view.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
    view.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
    menu = QMenu(tr("Sort by"), view)
    menu.aboutToShow.connect(partial(view.list_sorting, menu))
    view.addAction(menu.menuAction())
    view.setContextMenuPolicy(Qt.ContextMenuPolicy.ActionsContextMenu)
    view.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
    view.verticalHeader().hide()
    view.verticalHeader().setDefaultSectionSize(view.fontMetrics().height() + 14)
    view.horizontalHeader().setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
    view.horizontalHeader().setHighlightSections(False)
    view.horizontalHeader().setResizeContentsPrecision(30)  # rows that are measured; all would take a second
    view.horizontalHeader().setMaximumSectionSize(MAX_COLUMN_WIDTH)
    view.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
    view.horizontalHeader().setSectionResizeMode(stretch, QHeaderView.ResizeMode.Stretch)
    return view


def selected(view: QTableView) -> Any | None:
    index = view.currentIndex()
    return index.data(ROW) if index.isValid() else None


def selected_rows(view: QTableView) -> list[Any]:
    """All selected rows. Qt's own list makes an index of each, which takes half a second for 20,000."""
    ranges, rows = view.selectionModel().selection().toList(), view.model()  # ranges overlap if a column was moved
    assert isinstance(rows, RowsModel)
    chosen = {at for part in ranges for at in range(part.top(), part.bottom() + 1)}
    return [rows.rows[rows.place(at)] for at in sorted(chosen)]


class KeptPlace(QObject):
    """Keeps the current row, and its visibility, when other rows are shown; the first row if it is gone."""

    def __init__(self, view: QTableView, rows: RowsModel) -> None:
        super().__init__(view)
        self._view, self._rows = view, rows
        self._place, self._seen, self._height = -1, False, 0
        rows.narrowing.connect(self._on_narrowing)
        rows.narrowed.connect(self._on_narrowed)

    def _on_narrowing(self) -> None:
        index = self._view.currentIndex()
        if index.isValid() or self._rows.rowCount():  # an empty result of a search does not forget the row
            self._place = self._rows.place(index.row()) if index.isValid() else -1
        self._seen = self._view.viewport().rect().intersects(self._view.visualRect(index))
        self._height = self._view.verticalScrollBar().value()

    def _on_narrowed(self) -> None:
        if self._place < 0 or not self._rows.rowCount():
            return
        self._view.selectRow(max(self._rows.row_of(self._place), 0))
        if not self._seen:
            self._view.verticalScrollBar().setValue(self._height)
