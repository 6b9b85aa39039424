"""A grid of photos in which only visible photos use resources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import takewhile
from typing import Final, cast

import numpy as np
from PySide6.QtCore import QItemSelection, QModelIndex, QPersistentModelIndex, QPoint, QRect, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPainterPath, QPaintEvent, QPen, QRegion, QResizeEvent
from PySide6.QtWidgets import QInputDialog, QListView, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from app.cards import disease_name
from app.theme import current_theme
from app.translation import tr
from app.viewmodels.photos import EXCLUDED, MARK, PATH
from app.viewmodels.thumbnails import Thumbnails
from core.ops.contract import Array

PHOTO: Final = 112
CELL: Final = QSize(PHOTO + 16, PHOTO + 38)


class CellSize(QStyledItemDelegate):
    """A photo and its space take the whole cell: a click beside the photo selects it."""

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:  # noqa: N802 (Qt's names here and below)
        return cast(PhotoGrid, self.parent()).gridSize()


class PhotoGrid(QListView):
    """Cells of equal size; Qt measures one. A double click or Enter activates a photo."""

    def __init__(self, thumbnails: Thumbnails, name: str) -> None:
        super().__init__(flow=QListView.Flow.LeftToRight, isWrapping=True, resizeMode=QListView.ResizeMode.Adjust,
                         uniformItemSizes=True)  # fmt: skip
        self._thumbnails = thumbnails
        self.setAccessibleName(name)
        self.setItemDelegate(CellSize(self))
        self.setEditTriggers(QListView.EditTrigger.NoEditTriggers)
        self.setSelectionMode(QListView.SelectionMode.ExtendedSelection)
        self.setVerticalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.verticalScrollBar().setSingleStep(CELL.height() // 3)
        thumbnails.ready.connect(self._on_ready)  # not a lambda: pictures may arrive after the grid was deleted
        current_theme().changed.connect(self.viewport().update)

    def _on_ready(self, path: str) -> None:
        self.viewport().update()

    def selected_rows(self) -> Array:
        """Selected positions in the model, int64, ascending, from Qt's selection ranges."""
        chosen = np.zeros(self.model().rowCount(), bool)
        for stretch in self.selectionModel().selection().toList():
            chosen[stretch.top() : stretch.bottom() + 1] = True
        return np.flatnonzero(chosen)

    def moveCursor(self, action: QListView.CursorAction, keys: Qt.KeyboardModifier) -> QModelIndex:  # noqa: N802
        """Left and right continue in the next line; Qt would stop at its end."""
        step = {QListView.CursorAction.MoveLeft: -1, QListView.CursorAction.MoveRight: 1}.get(action, 0)
        beside = self.model().index(self.currentIndex().row() + step, 0)
        return beside if step and beside.isValid() else super().moveCursor(action, keys)

    def visualRegionForSelection(self, selection: QItemSelection) -> QRegion:  # noqa: N802
        return QRegion(self.viewport().rect())

    def reset(self) -> None:
        super().reset()
        self.scrollToTop()

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: N802
        """Spread the photos over the width that Qt's layout uses, beside the scroll bar."""
        bar = self.style().pixelMetric(QStyle.PixelMetric.PM_ScrollBarExtent, None, self.verticalScrollBar())
        room = max(self.maximumViewportSize().width() - bar - 1, CELL.width())  # Qt leaves one pixel
        self.setGridSize(QSize(room // (room // CELL.width()), CELL.height()))
        super().resizeEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: N802
        if self.model() is None:
            return
        with QPainter(self.viewport()) as painter:
            painter.setRenderHints(QPainter.RenderHint.Antialiasing | QPainter.RenderHint.SmoothPixmapTransform)
            bottom, first = self.viewport().height(), max(self.indexAt(QPoint(0, 0)).row(), 0)
            below = (self.model().index(row, 0) for row in range(first, self.model().rowCount()))
            # Drawn in reverse order: the newest request is decoded first, so the top left comes first.
            for index in reversed(list(takewhile(lambda index: self.visualRect(index).top() < bottom, below))):
                self._paint_cell(painter, index)

    def _paint_cell(self, painter: QPainter, index: QModelIndex) -> None:
        colours, cell = current_theme().colours, self.visualRect(index)
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
        picture = self._thumbnails.get(str(index.data(PATH)))
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
        colours, mark = current_theme().colours, index.data(MARK)
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
