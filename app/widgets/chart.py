"""A static chart: the mouse moves nothing, colours follow the theme."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyqtgraph as pg
from PySide6.QtCore import Qt

from app.theme import Colours
from app.widgets.naming import named

SIDES: Final = ("left", "bottom")
TICK_HEIGHT: Final = 16
"""Pixels from one figure of an axis to the next, so that none covers another."""


def make_chart(name: str) -> pg.PlotWidget:
    """An empty chart without keyboard focus: a table or text contains the same data."""
    made = pg.PlotWidget()
    made.setMenuEnabled(False)
    made.hideButtons()
    made.setMouseEnabled(x=False, y=False)
    for part in (made, made.viewport()):
        named(part, name).setFocusPolicy(Qt.FocusPolicy.NoFocus)
    return made


def paint_chart(chart: pg.PlotWidget, colours: Colours) -> None:
    """Set the background, axes and figures to the theme's colours; axes have no ticks, only figures."""
    chart.setBackground(colours.surface)
    for side in SIDES:
        axis = chart.getAxis(side)
        axis.setStyle(tickLength=0)
        axis.setPen(pg.mkPen(colours.border))
        axis.setTextPen(pg.mkPen(colours.muted))


def power_ticks(powers: Iterable[int], pixels: float) -> list[tuple[int, str]]:
    """Powers of ten as tick labels, as many as fit."""
    known = list(powers)
    step = 1
    while step < len(known) and len(known) / step * TICK_HEIGHT > pixels:
        step += 1
    return [(power, f"{10.0**power:,.10g}") for power in known if power % step == 0]
