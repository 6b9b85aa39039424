"""The most probable classes with their probabilities as bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.cards import disease_name
from app.theme import Theme
from core.percent import stated

LEAST: Final = 0.0005
"""What is written as 0.0 % has no bar."""
LINE: Final = 36
"""Pixels of a class: its name, its bar, and the room to the next."""


@final
class ProbabilityBars(QWidget):
    """A line for each class: its name, probability and bar.

    If no class is diagnosed, no bar is coloured, and a mark shows the minimum confidence. Where a photo may have
    several labels, each bar has the mark of its threshold, and those that reach it are coloured.
    """

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._top: Sequence[tuple[str, float]] = ()
        self._given = True
        self._limits: Sequence[float] = ()
        self.setMinimumHeight(3 * LINE)
        theme.changed.connect(self.update)

    def show_top(self, top: Sequence[tuple[str, float]], given: bool = True, limits: Sequence[float] = ()) -> None:
        """`given`: there is a diagnosis, the first class or all that reach their limit; `limits`: of the marks."""
        self._top, self._given, self._limits = top, given, limits
        self.setMinimumHeight(max(3, len(top)) * LINE)
        self.setToolTip("\n".join(name for name, _ in top))
        self.setAccessibleName(", ".join(f"{disease_name(name)} {stated(share)}" for name, share in top))
        self.update()

    def sizeHint(self) -> QSize:  # noqa: N802 (Qt's names here and below)
        return QSize(240, 3 * LINE)

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: N802
        colours = self._theme.colours
        with QPainter(self) as painter:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            for at, (name, share) in enumerate(self._top):
                area = QRect(0, at * LINE, self.width(), 20)
                limit = self._limits[at] if at < len(self._limits) else 0.0
                mine = self._given and (share >= limit if len(self._limits) > 1 else at == 0)
                painter.setPen(QColor(colours.text if mine or at == 0 else colours.muted))
                width = area.width() - 64
                text = painter.fontMetrics().elidedText(disease_name(name), Qt.TextElideMode.ElideRight, width)
                painter.drawText(area, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, text)
                painter.drawText(area, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, stated(share))
                bar = QRect(0, at * LINE + 22, self.width(), 7)
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(QColor(colours.raised))
                painter.drawRoundedRect(bar, 3, 3)
                painter.setBrush(QColor(colours.accent if mine else colours.muted))
                if share >= LEAST:
                    painter.drawRoundedRect(QRect(bar.topLeft(), QSize(max(int(bar.width() * share), 4), 7)), 3, 3)
                if limit:
                    mark = int(bar.width() * min(limit, 1.0)) - 2
                    painter.fillRect(bar.left() + mark, bar.top() - 3, 2, bar.height() + 6, QColor(colours.warning))
