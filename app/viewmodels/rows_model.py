"""Rows of plain data as a Qt table, sorted and filtered; 100,000 of them without a delay."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any, Final

import numpy as np
from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, Qt, QTimer, Signal

from app.task import Task
from app.viewmodels.row_order import Column, Query, arrange
from core.ops.contract import Array

SORT = Qt.ItemDataRole.UserRole
ROW = Qt.ItemDataRole.UserRole + 1
ROLES = frozenset(
    int(role) for role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole, Qt.ItemDataRole.TextAlignmentRole,
                           SORT, ROW)
)  # fmt: skip
"""Roles with a value; a view also asks for seven others per cell."""
ROOT = QModelIndex()
LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
MANY: Final = 2000
"""Rows that are sorted synchronously; more are sorted in a thread."""
RESORT_FACTOR: Final = 10
"""Changed rows are sorted again after this multiple of the time that sorting takes."""
SORT_DELAY_MS: Final = 25
"""Delay before rows are sorted in a thread: after a click on a header Qt asks for 2,200 texts and more to measure and
draw the columns, each of which would wait for the interpreter lock."""
RETRY_MS: Final = 100


class RowsModel(QAbstractTableModel):
    """A list of rows, and the order in which a view shows them; it uses only the texts and numbers of the columns.

    `rows` has all rows by position. Qt's own sorting proxy calls Python 3.4 million times for the sort keys of 100,000
    rows, which takes seven seconds. Signals: `narrowing()` and `narrowed()` before and after other rows are shown, so
    that a view can keep its position.
    """

    narrowing = Signal()
    narrowed = Signal()

    def __init__(self, columns: Sequence[Column], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.columns = tuple(columns)
        self.rows: list[Any] = []
        self._query = Query()
        self._order: Array | None = None  # None: all, in original order
        self._ranking: tuple[Query, Array] | None = None  # an order without a filter, until the rows change
        self._task: Task | None = None
        self._begun, self._resort_ms = 0.0, 0
        self._resort_timer = QTimer(self, singleShot=True)
        self._resort_timer.timeout.connect(self._on_resort)
        self._sort_timer = QTimer(self, singleShot=True)
        self._sort_timer.timeout.connect(self._begin)

    def show_rows(self, rows: Sequence[Any]) -> None:
        """Show other rows: sorted at once if few, otherwise in original order until the order is computed."""
        few = len(rows) <= MANY
        self._ranking = None
        self.beginResetModel()
        self.rows = list(rows)
        if self._order is not None:
            self._order = arrange(self.rows, self.columns, self._query if few else Query())
        self.endResetModel()
        if self.arranging or (self._order is not None and not few):
            self._arrange()

    def set_columns(self, columns: Sequence[Column]) -> None:
        """Replace the columns by the same ones in another language."""
        self.columns = tuple(columns)
        self.headerDataChanged.emit(Qt.Orientation.Horizontal, 0, len(self.columns) - 1)
        self._on_changed(0, -1)  # other texts have another order

    def append(self, rows: Sequence[Any]) -> None:
        """Show new rows at the end at once, and in their place when the order is computed; selections stay."""
        if not rows:
            return
        self._ranking = None
        shown = self._order is None or not self._query.text  # a filter may not let them pass
        first, at = len(self.rows), self.rowCount()
        if shown:
            self.beginInsertRows(ROOT, at, at + len(rows) - 1)
        self.rows += rows
        if shown:
            if self._order is not None:
                self._order = np.concatenate((self._order, np.arange(first, len(self.rows))))
            self.endInsertRows()
        if self._order is not None or self.arranging:
            self._arrange()

    def replace(self, place: int, row: Any) -> None:
        self.rows[place] = row
        at = self.row_of(place)
        self._on_changed(at, at)

    def replace_all(self, rows: Sequence[Any]) -> None:
        """Replace all rows by as many new ones, keeping selection and scroll position."""
        self.rows = list(rows)
        self._on_changed(0, self.rowCount() - 1)

    def change(self, places: Collection[int], change: Callable[[Any], Any]) -> None:
        """Replace the rows at these positions at once: one by one, a sorted table is sorted again for each."""
        for at in places:
            self.rows[at] = change(self.rows[at])
        if places:
            self._on_changed(0, self.rowCount() - 1)

    def _on_changed(self, first: int, last: int) -> None:
        """Report changed rows, and compute the order again, soon."""
        self._ranking = None
        if (self._order is not None or self.arranging) and not self._resort_timer.isActive():
            self._resort_timer.start(0 if len(self.rows) <= MANY else self._resort_ms)
        if 0 <= first <= last:
            self.dataChanged.emit(self.index(first, 0), self.index(last, len(self.columns) - 1))

    @property
    def removed(self) -> frozenset[int]:
        return self._query.removed

    @property
    def present(self) -> list[Any]:
        """The rows without those removed."""
        kept = np.ones(len(self.rows), bool)
        kept[list(self.removed)] = False
        return list(compress(self.rows, kept.tolist())) if self.removed else self.rows

    def remove(self, places: Collection[int]) -> None:
        """Hide the rows at these positions at once; all rows keep their positions."""
        self._query = replace(self._query, removed=self.removed.union(places))
        shown = np.arange(len(self.rows)) if self._order is None else self._order
        self._take(shown[~np.isin(shown, list(places))])
        if self.arranging:  # what is being computed has them
            self._arrange()

    def restore(self, places: Collection[int]) -> None:
        self._change(replace(self._query, removed=self.removed.difference(places)), 0)

    def shown_rows(self) -> list[Any]:
        """The rows to show, in order, also if the order is not computed yet."""
        if self._resort_timer.isActive() or self.arranging:
            return [self.rows[at] for at in arrange(self.rows, self.columns, self._query).tolist()]
        return list(self.rows) if self._order is None else [self.rows[at] for at in self._order.tolist()]

    @property
    def arranging(self) -> bool:
        return self._sort_timer.isActive() or (self._task is not None and self._task.active)

    def place(self, row: int) -> int:
        """The position of a shown row in `rows`."""
        return row if self._order is None else int(self._order[row])

    def row_of(self, place: int) -> int:
        """The shown row of a position in `rows`, -1 if it is not shown."""
        found = [place] if self._order is None else np.flatnonzero(self._order == place)
        return int(found[0]) if len(found) else -1

    def set_filter(self, text: str) -> None:
        self._change(replace(self._query, text=text.strip()), 0)

    @property
    def sorting(self) -> tuple[int, Qt.SortOrder]:
        """The arguments of `sort`."""
        return self._query.column, Qt.SortOrder(int(self._query.descending))

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        self._change(replace(self._query, column=column, descending=order == Qt.SortOrder.DescendingOrder))
        self.headerDataChanged.emit(Qt.Orientation.Horizontal, 0, self.columnCount() - 1)

    def close(self) -> None:
        """Compute no order any more."""
        self._resort_timer.stop()
        self._sort_timer.stop()
        if self._task is not None:
            self._task.cancel()

    def rowCount(self, parent: QModelIndex = ROOT) -> int:  # noqa: N802 (Qt's names here and below)
        return 0 if parent.isValid() else len(self.rows if self._order is None else self._order)

    def columnCount(self, parent: QModelIndex = ROOT) -> int:  # noqa: N802
        return 0 if parent.isValid() else len(self.columns)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = 0) -> Any:  # noqa: N802
        if orientation != Qt.Orientation.Horizontal:
            return None
        column = self.columns[section]
        match role:
            case Qt.ItemDataRole.DisplayRole:
                arrow = " ↓" if self._query.descending else " ↑"
                return column.title + (arrow if section == self._query.column else "")
            case Qt.ItemDataRole.TextAlignmentRole:
                return RIGHT if column.right else LEFT
            case Qt.ItemDataRole.ToolTipRole:
                return column.help
        return None

    def data(self, index: QModelIndex, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        return self.value(self.place(index.row()), index.column(), role) if role in ROLES else None

    def value(self, at: int, column_at: int, role: int) -> Any:
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

    def _change(self, query: Query, delay_ms: int = SORT_DELAY_MS) -> None:
        if query != self._query:
            self._query = query
            self._arrange(delay_ms)

    def _arrange(self, delay_ms: int = SORT_DELAY_MS) -> None:
        """Compute the requested order instead of an earlier one: now, or soon in a thread."""
        self.close()
        if self._query == Query():
            self._take(None)
        elif len(self.rows) <= MANY:
            self._take(arrange(self.rows, self.columns, self._query))
        else:
            self._sort_timer.start(delay_ms)

    def _begin(self) -> None:
        query, columns = self._query, self.columns
        now, self._begun = list(self.rows), time.perf_counter()
        known = self._ranking[1] if self._ranking and self._ranking[0].covers(query) else None
        self._task = Task(lambda report, cancelled: arrange(now, columns, query, cancelled, known), self,
                          done=self._on_arranged)  # fmt: skip

    def _on_arranged(self, order: Array) -> None:
        self._resort_ms = int(1000 * RESORT_FACTOR * (time.perf_counter() - self._begun))
        if not self._query.text and not self._resort_timer.isActive():
            self._ranking = self._query, order
        self._take(order)

    def _take(self, order: Array | None) -> None:
        """Show this order; the selection stays if the rows are the same."""
        whole = np.arange(len(self.rows))
        before, after = (whole if o is None else o for o in (self._order, order))
        if np.array_equal(before, after):
            self._order = order
        elif np.array_equal(np.sort(before), np.sort(after)):
            self._reorder(before, after, order)
        else:
            self.narrowing.emit()
            self.beginResetModel()
            self._order = order
            self.endResetModel()
            self.narrowed.emit()

    def _reorder(self, before: Array, after: Array, order: Array | None) -> None:
        self.layoutAboutToBeChanged.emit()
        row_of = np.empty(len(self.rows), np.int64)
        row_of[after] = np.arange(len(after))
        held = self.persistentIndexList()
        self._order = order
        moved = [self.index(int(row_of[before[index.row()]]), index.column()) for index in held]
        self.changePersistentIndexList(held, moved)
        self.layoutChanged.emit()

    def _on_resort(self) -> None:
        if not self.arranging:
            self._arrange()
        else:  # cancelled for every changed row, it would never finish
            self._resort_timer.start(RETRY_MS)
