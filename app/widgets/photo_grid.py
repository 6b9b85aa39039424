"""A grid of photos in which only visible photos use resources: 50,000 scroll like fifty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, final

import numpy as np
from PySide6.QtCore import QItemSelection, QItemSelectionModel, QModelIndex, QPoint, QRect, QSize, Qt, Signal
from PySide6.QtGui import QColor, QPainter, QPainterPath, QPaintEvent, QPen, QRegion, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QInputDialog, QWidget

from app.cards import disease_name
from app.theme import Theme
from app.translation import tr
from app.viewmodels.photos import EXCLUDED, MARK, PATH
from app.viewmodels.thumbnails import Thumbnails
from core.ops.contract import Array

PHOTO: Final = 112
CELL: Final = QSize(PHOTO + 16, PHOTO + 38)
ROOT = QModelIndex()


@final
class PhotoGrid(QAbstractItemView):
    """Cells of equal size: positions are computed, nothing is laid out. `opened(row)`: a double click or Enter."""

    opened = Signal(int)

    def __init__(self, theme: Theme, thumbnails: Thumbnails, name: str) -> None:
        super().__init__()
        self._theme, self._thumbnails = theme, thumbnails
        self.setAccessibleName(name)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.verticalScrollBar().setSingleStep(CELL.height() // 3)
        thumbnails.ready.connect(self._on_ready)  # not a lambda: pictures may arrive after the grid was deleted
        theme.changed.connect(self.viewport().update)
        self.activated.connect(lambda index: self.opened.emit(index.row()))

    def _on_ready(self, path: str) -> None:
        self.viewport().update()

    @property
    def columns(self) -> int:
        return max(self.viewport().width() // CELL.width(), 1)

    @property
    def step(self) -> int:
        """Pixels from one column to the next, including the space left over between the photos."""
        return max(self.viewport().width() // self.columns, CELL.width())

    def selected_rows(self) -> Array:
        """Selected positions in the model, int64, ascending, from Qt's selection ranges."""
        chosen = np.zeros(self.model().rowCount(), bool)
        for stretch in self.selectionModel().selection().toList():
            chosen[stretch.top() : stretch.bottom() + 1] = True
        return np.flatnonzero(chosen)

    def visualRect(self, index: QModelIndex) -> QRect:  # noqa: N802 (Qt's names here and below)
        if not index.isValid():
            return QRect()
        line, column = divmod(index.row(), self.columns)
        corner = QPoint(column * self.step, line * CELL.height() - self.verticalOffset())
        return QRect(corner, QSize(self.step, CELL.height()))

    def indexAt(self, point: QPoint) -> QModelIndex:  # noqa: N802
        column, line = point.x() // self.step, (point.y() + self.verticalOffset()) // CELL.height()
        row = line * self.columns + column
        if self.model() is None or column >= self.columns or not 0 <= row < self.model().rowCount():
            return QModelIndex()
        return self.model().index(row, 0)

    def scrollTo(self, index: QModelIndex, hint: QAbstractItemView.ScrollHint = None) -> None:  # type: ignore[assignment]  # noqa: N802
        area = self.visualRect(index)
        bar = self.verticalScrollBar()
        if area.top() < 0:
            bar.setValue(bar.value() + area.top())
        elif area.bottom() > self.viewport().height():
            bar.setValue(bar.value() + area.bottom() - self.viewport().height())

    def horizontalOffset(self) -> int:  # noqa: N802
        return 0

    def verticalOffset(self) -> int:  # noqa: N802
        return self.verticalScrollBar().value()

    def isIndexHidden(self, index: QModelIndex) -> bool:  # noqa: N802
        return False

    def moveCursor(  # noqa: N802
        self, action: QAbstractItemView.CursorAction, modifiers: Qt.KeyboardModifier
    ) -> QModelIndex:
        move = QAbstractItemView.CursorAction
        total, at = self.model().rowCount(), max(self.currentIndex().row(), 0)
        page = max(self.viewport().height() // CELL.height(), 1) * self.columns
        steps = {
            move.MoveLeft: -1, move.MovePrevious: -1, move.MoveRight: 1, move.MoveNext: 1,
            move.MoveUp: -self.columns, move.MoveDown: self.columns, move.MovePageUp: -page,
            move.MovePageDown: page, move.MoveHome: -total, move.MoveEnd: total,
        }  # fmt: skip
        return self.model().index(min(max(at + steps[action], 0), total - 1), 0) if total else QModelIndex()

    def setSelection(self, area: QRect, flags: QItemSelectionModel.SelectionFlag) -> None:  # noqa: N802
        """Select the cells that a rectangle touches; a click is a small rectangle."""
        selection = QItemSelection()
        area = area.normalized().translated(0, self.verticalOffset())
        total, columns = self.model().rowCount(), self.columns
        left, right = area.left() // self.step, min(area.right() // self.step, columns - 1)
        for line in range(max(area.top() // CELL.height(), 0), area.bottom() // CELL.height() + 1):
            first, last = line * columns + max(left, 0), min(line * columns + right, total - 1)
            if first <= last:
                selection.select(self.model().index(first, 0), self.model().index(last, 0))
        self.selectionModel().select(selection, flags)

    def visualRegionForSelection(self, selection: QItemSelection) -> QRegion:  # noqa: N802
        return QRegion(self.viewport().rect())

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: N802
        super().resizeEvent(event)
        self.updateGeometries()

    def updateGeometries(self) -> None:  # noqa: N802
        super().updateGeometries()
        total = self.model().rowCount() if self.model() else 0
        lines = -(-total // self.columns)
        bar = self.verticalScrollBar()
        bar.setPageStep(self.viewport().height())
        bar.setRange(0, max(lines * CELL.height() - self.viewport().height(), 0))

    def reset(self) -> None:
        super().reset()
        self.verticalScrollBar().setValue(0)
        self.updateGeometries()

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: N802
        if self.model() is None:
            return
        with QPainter(self.viewport()) as painter:
            painter.setRenderHints(QPainter.RenderHint.Antialiasing | QPainter.RenderHint.SmoothPixmapTransform)
            columns, total = self.columns, self.model().rowCount()
            first = self.verticalOffset() // CELL.height() * columns
            last = ((self.verticalOffset() + self.viewport().height()) // CELL.height() + 1) * columns
            # Drawn in reverse order: the newest request is decoded first, so the top left comes first.
            for row in reversed(range(first, min(last, total))):
                self._paint_cell(painter, self.model().index(row, 0))

    def _paint_cell(self, painter: QPainter, index: QModelIndex) -> None:
        colours, cell = self._theme.colours, self.visualRect(index)
        place = QRect(cell.left() + (cell.width() - PHOTO) // 2, cell.top() + 8, PHOTO, PHOTO)
        area = place.adjusted(-5, -5, 5, 27)
        chosen = self.selectionModel().isSelected(index)
        if chosen or index == self.currentIndex() and self.hasFocus():
            painter.setPen(QPen(QColor(colours.accent), 2 if chosen else 1))
            painter.setBrush(QColor(colours.accent_soft) if chosen else Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(area, 8, 8)
        path = QPainterPath()
        path.addRoundedRect(place, 6, 6)
        painter.save()
        painter.setClipPath(path)
        painter.fillRect(place, QColor(colours.raised))
        picture = self._thumbnails.get(index.data(PATH))
        if picture is not None and not picture.isNull():
            painter.setOpacity(0.25 if index.data(EXCLUDED) else 1.0)
            painter.drawPixmap(place, picture)
        painter.restore()
        painter.setPen(QColor(colours.muted))
        if picture is not None and picture.isNull():
            painter.drawText(place, Qt.AlignmentFlag.AlignCenter, "?")
        if index.data(EXCLUDED):
            painter.setPen(QPen(QColor(colours.danger), 2))
            painter.drawLine(place.topLeft() + QPoint(8, 8), place.bottomRight() - QPoint(8, 8))
        self._paint_texts(painter, index, area, place)

    def _paint_texts(self, painter: QPainter, index: QModelIndex, area: QRect, place: QRect) -> None:
        colours, mark = self._theme.colours, index.data(MARK)
        if mark:
            tag = QRect(place.left(), place.bottom() - 19, PHOTO, 20)
            background = QColor(colours.surface)
            background.setAlpha(225)
            painter.fillRect(tag, background)
            painter.setPen(QColor(colours.text))
            painter.drawText(tag.adjusted(5, 0, -3, 0), Qt.AlignmentFlag.AlignVCenter, mark)
        under = QRect(area.left() + 5, place.bottom() + 2, PHOTO, area.bottom() - place.bottom() - 2)
        painter.setPen(QColor(colours.muted))
        name = painter.fontMetrics().elidedText(str(index.data()), Qt.TextElideMode.ElideMiddle, under.width())
        painter.drawText(under, Qt.AlignmentFlag.AlignCenter, name)


def ask_class(parent: QWidget, classes: Iterable[str], now: str = "") -> str:
    """The class chosen or typed, "" if cancelled; `now` is preselected. Classes shown alike have their own names."""
    known = sorted(classes)
    shown = Counter(map(disease_name, known))
    names = [disease_name(name) if shown[disease_name(name)] == 1 else name for name in known]
    text = tr("Class (a new name creates a class):")
    first = known.index(now) if now in known else 0
    name, fine = QInputDialog.getItem(parent, tr("Move to class"), text, names, first)
    return name if fine else ""
