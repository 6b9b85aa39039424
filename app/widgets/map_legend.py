"""The legend of a class map."""

from __future__ import annotations

from typing import final

from PySide6.QtCore import QRectF, QSize
from PySide6.QtGui import QColor, QLinearGradient, QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.translation import tr
from app.widgets.overlays import RAMP
from app.widgets.parts import label


@final
class MapLegend(QWidget):
    """The colour scale between two words."""

    def __init__(self) -> None:
        super().__init__()
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(6)
        layout.addWidget(label(tr("weak"), "caption"))
        layout.addWidget(_Ramp(), 1)
        layout.addWidget(label(tr("strong"), "caption"))
        self.setToolTip(tr("How strongly each part of the photo supports the class. Each map is scaled to its own "
                           "maximum."))  # fmt: skip


@final
class _Ramp(QWidget):
    def sizeHint(self) -> QSize:  # noqa: N802 (Qt's names here and below)
        return QSize(80, 10)

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: N802
        with QPainter(self) as painter:
            ramp = QLinearGradient(0, 0, self.width(), 0)
            for at, (red, green, blue) in zip((0.0, 0.5, 1.0), RAMP.tolist(), strict=True):
                ramp.setColorAt(at, QColor(int(red), int(green), int(blue)))
            painter.fillRect(QRectF(0, (self.height() - 8) / 2, self.width(), 8), ramp)
