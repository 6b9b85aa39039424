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
    """Up to three lines: class, probability, bar.

    If no class is diagnosed, no bar is coloured, and a mark shows the minimum confidence.
    """

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._top: Sequence[tuple[str, float]] = ()
        self._given, self._threshold = True, 0.0
        self.setMinimumHeight(3 * LINE)
        theme.changed.connect(self.update)

    def show_top(self, top: Sequence[tuple[str, float]], given: bool = True, threshold: float = 0.0) -> None:
        """`given`: the first class is the diagnosis; `threshold`: the minimum confidence, 0 for no mark."""
        self._top, self._given, self._threshold = top, given, threshold
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
                painter.setPen(QColor(colours.text if at == 0 else colours.muted))
                width = area.width() - 64
                text = painter.fontMetrics().elidedText(disease_name(name), Qt.TextElideMode.ElideRight, width)
                painter.drawText(area, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, text)
                painter.drawText(area, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, stated(share))
                bar = QRect(0, at * LINE + 22, self.width(), 7)
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(QColor(colours.raised))
                painter.drawRoundedRect(bar, 3, 3)
                painter.setBrush(QColor(colours.accent if at == 0 and self._given else colours.muted))
                if share >= LEAST:
                    painter.drawRoundedRect(QRect(bar.topLeft(), QSize(max(int(bar.width() * share), 4), 7)), 3, 3)
                if at == 0 and not self._given and self._threshold > share:
                    mark = int(bar.width() * min(self._threshold, 1.0)) - 2
                    painter.fillRect(bar.left() + mark, bar.top() - 3, 2, bar.height() + 6, QColor(colours.warning))
