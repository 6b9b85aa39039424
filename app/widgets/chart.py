"""A static chart: the mouse moves nothing, colours follow the theme."""

from __future__ import annotations

from typing import Final

import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QSizePolicy

from app.theme import Colours
from app.widgets.parts import named

SIDES: Final = ("left", "bottom")
MINIMUM_HEIGHT: Final = 96
"""Pixels of a chart in a low window: two ticks and the axis."""


def make_chart(name: str) -> pg.PlotWidget:
    """An empty chart without keyboard focus: a table or text contains the same data."""
    made = pg.PlotWidget()
    made.setMenuEnabled(False)
    made.hideButtons()
    made.setMouseEnabled(x=False, y=False)
    made.setMinimumHeight(MINIMUM_HEIGHT)
    made.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Ignored)  # it prefers 480 pixels
    for part in (made, made.viewport()):
        named(part, name).setFocusPolicy(Qt.FocusPolicy.NoFocus)
    return made


def paint_chart(chart: pg.PlotWidget, colours: Colours, ticks: bool = False) -> None:
    """Set the background, axes and figures to the theme's colours; without `ticks` axes have only figures."""
    chart.setBackground(colours.surface)
    for axis in map(chart.getAxis, SIDES):
        if not ticks:
            axis.setStyle(tickLength=0)
        axis.setPen(pg.mkPen(colours.border))
        axis.setTextPen(pg.mkPen(colours.muted))
