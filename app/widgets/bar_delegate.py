"""A table cell with a bar behind its number."""

from __future__ import annotations

from typing import final

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QSize, Qt
from PySide6.QtGui import QColor, QPainter
from PySide6.QtWidgets import QStyledItemDelegate, QStyleOptionViewItem

from app.theme import Theme
from app.viewmodels.rows_model import SORT


@final
class BarDelegate(QStyledItemDelegate):
    """The length of the bar is the cell's sort value divided by `highest`."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.highest = 1.0

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        share = min(float(index.data(SORT) or 0) / (self.highest or 1.0), 1.0)
        area: QRect = option.rect.adjusted(4, 6, -4, -6)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(self._theme.colours.raised))
        painter.drawRoundedRect(area, 4, 4)
        colour = QColor(self._theme.colours.accent)
        colour.setAlpha(110)
        painter.setBrush(colour)
        if share > 0:
            area_used = QRect(area.topLeft(), QSize(max(int(area.width() * share), 6), area.height()))
            painter.drawRoundedRect(area_used, 4, 4)
        painter.setPen(QColor(self._theme.colours.text))
        painter.drawText(area.adjusted(6, 0, -6, 0), Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter,
                         str(index.data()))  # fmt: skip
        painter.restore()
