"""A static chart: the mouse moves nothing, colours follow the theme."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QSizePolicy

from app.theme import Colours
from app.widgets.parts import named

SIDES: Final = ("left", "bottom")
MINIMUM_HEIGHT: Final = 96
"""Pixels of a chart in a low window: two ticks and the axis."""
TICK_HEIGHT: Final = 16
"""Pixels between two tick labels, so that they do not overlap."""


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


def draw_roof(chart: pg.PlotWidget, x: np.ndarray, gflops: float, gigabytes: float, colour: str) -> float:
    """Draw the roofline (Williams et al., 2009) of a device over log10 FLOP per byte `x`; returns its highest log10."""
    roof = np.minimum(math.log10(gflops), math.log10(gigabytes) + x)
    chart.plot(x, roof, pen=pg.mkPen(colour, width=2), antialias=True)
    return float(roof.max())


def set_decades(chart: pg.PlotWidget, x: tuple[float, float], y: tuple[float, float], height: float) -> None:
    """Set the ranges of two log10 axes, with powers of ten as ticks; `height` in pixels."""
    for side, (low, high), room in (("bottom", x, math.inf), ("left", y, height)):
        powers = range(math.ceil(low), math.floor(high) + 1)
        chart.getAxis(side).setTicks([power_ticks(powers, room)])
    chart.setXRange(*x, padding=0)
    chart.setYRange(*y, padding=0)


def power_ticks(powers: Iterable[int], pixels: float) -> list[tuple[int, str]]:
    """Powers of ten as tick labels, as many as fit."""
    known = list(powers)
    step = 1
    while step < len(known) and len(known) / step * TICK_HEIGHT > pixels:
        step += 1
    return [(power, f"{10.0**power:,.10g}") for power in known if power % step == 0]


@final
@dataclass(frozen=True, slots=True)
class Name:
    """A text and its height in pixels from the bottom."""

    at: float
    text: str


def place_names(wanted: Sequence[tuple[float, str]], room: float, height: float) -> list[Name]:
    """Names near the desired heights (pixels, within `room`), in ascending order, `height` pixels apart.

    If there are too many, the nearest neighbours share a line.
    """
    groups = [(at, [text]) for at, text in sorted(wanted, key=lambda name: name[0])]
    while len(groups) > max(int(room // height), 1):
        near = min(range(len(groups) - 1), key=lambda n: groups[n + 1][0] - groups[n][0])
        (low, names), (high, more) = groups[near : near + 2]
        groups[near : near + 2] = [((low * len(names) + high * len(more)) / len(names + more), names + more)]
    places: list[float] = []
    for at, _ in groups:  # upwards, without overlaps
        places.append(max(at, places[-1] + height if places else height / 2))
    ceiling = room - height / 2
    for number in reversed(range(len(places))):  # and down again from the top edge
        places[number] = ceiling = min(places[number], ceiling)
        ceiling -= height
    return [Name(at, ", ".join(reversed(names))) for at, (_, names) in zip(places, groups, strict=True)]
