"""Bars for shares: of probable classes, and behind the numbers of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QHeaderView, QStyledItemDelegate, QStyleOptionViewItem, QTableView, QWidget

from app.cards import disease_name
from app.theme import Colours, current_theme
from app.translation import tr
from app.viewmodels.rows_model import LEFT, RIGHT, SORT
from core.percent import percent, stated

SMALLEST_SHARE: Final = 0.0005
"""Share below which a probability is written as 0.0 % and has no bar."""
BAR: Final = 22
"""Pixels of a class below its name: its bar and the gaps."""
BAR_CELL: Final = 7
"""Width of a table's column with bars, in heights of its text."""


def draw_bar(painter: QPainter, area: QRect, share: float, colour: QColor, colours: Colours, least: int = 6) -> None:
    """Draw a rounded bar on its background; a share above 0 is at least `least` pixels wide."""
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen)
    radius = min(area.height() // 2, 4)
    for width, brush in ((area.width(), QColor(colours.raised)), (max(int(area.width() * share), least), colour)):
        painter.setBrush(brush)
        if width == area.width() or share > 0:
            painter.drawRoundedRect(QRect(area.topLeft(), QSize(width, area.height())), radius, radius)


class ProbabilityBars(QWidget):
    """A line for each class: its name, probability and bar.

    If no class is diagnosed, no bar is coloured, and a mark shows the minimum confidence. Where a photo may have
    several labels, each bar has the mark of its threshold, and those that reach it are coloured.
    """

    def __init__(self) -> None:
        super().__init__()
        self._top: Sequence[tuple[str, float]] = ()
        self._given = True
        self._limits: Sequence[float] = ()
        self.setMinimumHeight(3 * self.line)
        current_theme().changed.connect(self.update)

    @property
    def line(self) -> int:
        """Pixels of a class."""
        return self.fontMetrics().height() + BAR

    def show_top(self, top: Sequence[tuple[str, float]], given: bool = True, limits: Sequence[float] = ()) -> None:
        """`given`: there is a diagnosis, the first class or all that reach their limit; `limits`: of the marks."""
        self._top, self._given, self._limits = top, given, limits
        self.setMinimumHeight(max(3, len(top)) * self.line)
        marks = [f" ({tr('Minimum confidence: {share}', share=percent(limit))})" for limit in limits] + [""] * len(top)
        self.setToolTip("\n".join(name + mark for (name, _), mark in zip(top, marks, strict=False)))
        self.setAccessibleName(", ".join(f"{disease_name(name)} {stated(share)}{mark}"
                                         for (name, share), mark in zip(top, marks, strict=False)))
        self.update()

    def sizeHint(self) -> QSize:  # noqa: N802 (Qt's names here and below)
        return QSize(240, 3 * self.line)

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: N802
        colours, line = current_theme().colours, self.line
        with QPainter(self) as painter:
            for at, (name, share) in enumerate(self._top):
                limit = self._limits[at] if at < len(self._limits) else 0.0
                mine = self._given and (share >= limit if len(self._limits) > 1 else at == 0)
                area = QRect(0, at * line, self.width(), line - BAR + 6)
                bar = QRect(0, area.bottom() + 3, self.width(), 7)
                painter.setPen(QColor(colours.text if mine or at == 0 else colours.muted))
                metrics, value = painter.fontMetrics(), stated(share)
                room = area.width() - metrics.horizontalAdvance(value) - metrics.height()
                painter.drawText(area, LEFT, metrics.elidedText(disease_name(name), Qt.TextElideMode.ElideMiddle, room))
                painter.drawText(area, RIGHT, value)
                colour = QColor(colours.accent if mine else colours.muted)
                draw_bar(painter, bar, share if share >= SMALLEST_SHARE else 0.0, colour, colours, 4)
                if limit:
                    mark = int(bar.width() * min(limit, 1.0)) - 2
                    painter.fillRect(bar.left() + mark, bar.top() - 3, 2, bar.height() + 6, QColor(colours.warning))


class BarDelegate(QStyledItemDelegate):
    """The cells of a table's column with a bar behind each number: its sort value divided by `highest`."""

    def __init__(self, table: QTableView, column: int) -> None:
        super().__init__(table)
        self.highest = 1.0
        table.setItemDelegateForColumn(column, self)
        table.horizontalHeader().setSectionResizeMode(column, QHeaderView.ResizeMode.Fixed)
        table.setColumnWidth(column, BAR_CELL * table.fontMetrics().height())

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        colours, area = current_theme().colours, option.rect.adjusted(4, 6, -4, -6)
        colour = QColor(colours.accent)
        colour.setAlpha(110)
        painter.save()
        if index.data():  # else there is nothing to compare
            draw_bar(painter, area, min(float(index.data(SORT)) / (self.highest or 1.0), 1.0), colour, colours)
        painter.setPen(QColor(colours.text))
        painter.drawText(area.adjusted(6, 0, -6, 0), RIGHT, str(index.data()))
        painter.restore()
