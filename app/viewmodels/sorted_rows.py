"""Rows as a view shows them: sorted and filtered; 100,000 of them without a delay."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Final, final

import numpy as np
from PySide6.QtCore import QAbstractTableModel, QModelIndex, Qt, QTimer, Signal

from app.task import Task
from app.viewmodels.row_order import Wish, arrange
from app.viewmodels.rows_model import ANSWERED, RowsModel
from core.ops.contract import Array

NOWHERE = QModelIndex()
MANY: Final = 2000
"""Rows that are arranged at once; more are arranged beside the event loop."""
REST: Final = 10
"""Changing rows are sorted again after this multiple of the time that sorting takes."""
CALM_MS: Final = 25
"""Before rows are arranged in a thread: a click on a heading makes Qt ask for 2,200 texts and more, to measure the
columns and to draw, and beside a thread that computes each may wait for its turn."""
NAP_MS: Final = 100


@final
class SortedRows(QAbstractTableModel):
    """A sorted and filtered view of `source`; it uses only the texts and numbers of the columns.

    Qt's own proxy calls Python 3.4 million times for the sort keys of 100,000 rows, which takes seven seconds.
    `narrowing()` and `narrowed()` are emitted before and after the shown rows change, so that a view can keep its
    position.
    """

    narrowing = Signal()
    narrowed = Signal()

    def __init__(self, source: RowsModel) -> None:
        super().__init__(source)
        self.source = source
        self._wish = Wish()
        self._order: Array | None = None  # None: all, in original order
        self._ranking: tuple[Wish, Array] | None = None  # order of all rows, until they change
        self._task: Task | None = None
        self._again = False
        self._begun, self._rest = 0.0, 0
        self._later = QTimer(self, singleShot=True)
        self._later.timeout.connect(self._on_later)
        self._soon = QTimer(self, singleShot=True)
        self._soon.timeout.connect(self._begin)
        source.rowsAboutToBeInserted.connect(self._on_inserting)
        source.rowsInserted.connect(self._on_inserted)
        source.dataChanged.connect(self._on_data)
        source.modelAboutToBeReset.connect(self._on_resetting)
        source.modelReset.connect(self._on_reset)

    def rows(self) -> list[Any]:
        """The rows to show, in order, also if the order is not computed yet."""
        rows = self.source.rows
        if self._later.isActive() or self.arranging:
            return [rows[at] for at in arrange(rows, self.source.columns, self._wish).tolist()]
        return list(rows) if self._order is None else [rows[at] for at in self._order.tolist()]

    @property
    def arranging(self) -> bool:
        """Whether another order is being computed."""
        return self._soon.isActive() or self._task is not None

    def place(self, row: int) -> int:
        """The source row of a shown row."""
        return row if self._order is None else int(self._order[row])

    def row_of(self, place: int) -> int:
        """The shown row of a source row, -1 if it is not shown."""
        if self._order is None:
            return place
        found = np.flatnonzero(self._order == place)
        return int(found[0]) if len(found) else -1

    def set_filter(self, text: str) -> None:
        """Show only rows that contain this text in a searched column."""
        self._change(replace(self._wish, text=text.strip()), 0)

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        self._change(replace(self._wish, column=column, descending=order == Qt.SortOrder.DescendingOrder))
        self.headerDataChanged.emit(Qt.Orientation.Horizontal, 0, self.columnCount() - 1)

    def close(self) -> None:
        """End the thread."""
        self._later.stop()
        self._soon.stop()
        if self._task is not None:
            self._task.dispose()
            self._task = None

    def rowCount(self, parent: QModelIndex = NOWHERE) -> int:  # noqa: N802 (Qt's names here and below)
        if parent.isValid():
            return 0
        return len(self.source.rows) if self._order is None else len(self._order)

    def columnCount(self, parent: QModelIndex = NOWHERE) -> int:  # noqa: N802
        return self.source.columnCount(parent)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = 0) -> Any:  # noqa: N802
        title = self.source.headerData(section, orientation, role)
        if role == Qt.ItemDataRole.DisplayRole and title and section == self._wish.column:
            title += " ↓" if self._wish.descending else " ↑"
        return title

    def data(self, index: QModelIndex, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if role not in ANSWERED:
            return None
        return self.source.value(self.place(index.row()), index.column(), role)

    def _change(self, wish: Wish, calm_ms: int = CALM_MS) -> None:
        if wish != self._wish:
            self._wish = wish
            self._arrange(calm_ms)

    def _arrange(self, calm_ms: int = CALM_MS) -> None:
        """Compute the requested order: now, or soon in a thread that is cancelled by a newer request."""
        self._later.stop()
        self._soon.stop()
        wish, rows, columns = self._wish, self.source.rows, self.source.columns
        if self._task is not None:
            self._again = True
            self._task.cancel()  # its end starts the next one; waiting would block the window
        elif wish.column < 0 and not wish.text:
            self._take(None)
        elif len(rows) <= MANY:
            self._take(arrange(rows, columns, wish))
        else:
            self._soon.start(calm_ms)

    def _begin(self) -> None:
        if self._task is None:
            wish, columns = self._wish, self.source.columns
            now, self._begun = list(self.source.rows), time.perf_counter()
            known = self._ranking[1] if self._ranking and self._ranking[0] == replace(wish, text="") else None
            self._task = Task(lambda report, cancelled: (wish, arrange(now, columns, wish, cancelled, known)), self)
            self._task.done.connect(self._on_arranged)
            self._task.finished.connect(self._on_finished)
            self._task.start()

    def _on_arranged(self, found: tuple[Wish, Array]) -> None:
        if self.sender() is self._task and found[0] == self._wish and not self._again:
            self._rest = int(1000 * REST * (time.perf_counter() - self._begun))
            if not found[0].text and not self._later.isActive():
                self._ranking = found
            self._take(found[1])

    def _on_finished(self) -> None:
        if self._task is None or self.sender() is not self._task:
            return
        self._task.dispose()
        self._task, again, self._again = None, self._again, False
        if again:
            self._arrange()

    def _take(self, order: Array | None) -> None:
        """Show this order; the selection stays if the rows are the same."""
        whole = np.arange(len(self.source.rows))
        before, after = (whole if o is None else o for o in (self._order, order))
        if np.array_equal(before, after):
            self._order = order
        elif same_rows(before, after):
            self._reorder(before, after, order)
        else:
            self.narrowing.emit()
            self.beginResetModel()
            self._order = order
            self.endResetModel()
            self.narrowed.emit()

    def _reorder(self, before: Array, after: Array, order: Array | None) -> None:
        self.layoutAboutToBeChanged.emit()
        row_of = np.empty(len(self.source.rows), np.int64)
        row_of[after] = np.arange(len(after))
        held = self.persistentIndexList()
        self._order = order
        moved = [self.index(int(row_of[before[index.row()]]), index.column()) for index in held]
        self.changePersistentIndexList(held, moved)
        self.layoutChanged.emit()

    def _stale(self) -> None:
        """Rows have changed: compute the order again, soon."""
        self._ranking = None
        if (self._order is not None or self.arranging) and not self._later.isActive():
            self._later.start(0 if len(self.source.rows) <= MANY else self._rest)

    def _on_later(self) -> None:
        if not self.arranging:
            self._arrange()
        else:  # cancelled for every changed row, it would never finish
            self._later.start(NAP_MS)

    def _on_inserting(self, parent: QModelIndex, first: int, last: int) -> None:
        if not self._wish.text:  # a filter may not let them pass
            at = self.rowCount()
            self.beginInsertRows(NOWHERE, at, at + last - first)

    def _on_inserted(self, parent: QModelIndex, first: int, last: int) -> None:
        """Show new rows at the end at once, and in their place when the order is computed."""
        self._ranking = None
        if not self._wish.text:
            if self._order is not None:
                self._order = np.concatenate((self._order, np.arange(first, last + 1)))
            self.endInsertRows()
        if self._order is not None or self.arranging:
            self._arrange()

    def _on_data(self, first: QModelIndex, last: QModelIndex) -> None:
        shown = first.row(), last.row()
        self._stale()
        if self._order is not None:
            one = self.row_of(first.row()) if first.row() == last.row() else None
            shown = (0, len(self._order) - 1) if one is None else (one, one)
        if 0 <= shown[0] <= shown[1]:
            self.dataChanged.emit(self.index(shown[0], 0), self.index(shown[1], self.columnCount() - 1))

    def _on_resetting(self) -> None:
        self._ranking = None
        self.beginResetModel()

    def _on_reset(self) -> None:
        """Show new rows: sorted at once if few, otherwise in original order until the order is computed."""
        rows = self.source.rows
        few = len(rows) <= MANY
        if self._order is not None:
            self._order = arrange(rows, self.source.columns, self._wish if few else Wish())
        self.endResetModel()
        if self.arranging or (self._order is not None and not few):
            self._arrange()


def same_rows(one: Array, other: Array) -> bool:
    """Whether two orders contain the same positions, each once."""
    held = np.zeros(max(one.max(initial=-1), other.max(initial=-1)) + 1, bool)
    held[one] = True
    return len(one) == len(other) and bool(held[other].all())
