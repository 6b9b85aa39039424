"""A roofline (Williams et al., 2009): the limits of memory bandwidth and arithmetic, with each kernel as a point."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor

from app.theme import current_theme
from app.translation import tr
from app.widgets.chart import SIDES, make_chart, paint_chart
from app.widgets.layouts import Wrapping, column
from app.widgets.parts import label

NAME_HEIGHT: Final = 17
"""Pixels between the names of two kernels."""
NAME_DECADES: Final = 2.2
"""Powers of ten of FLOP per byte right of kernels with names."""
TICK_HEIGHT: Final = 16
"""Pixels between two tick labels, so that they do not overlap."""


@dataclass(frozen=True, slots=True)
class Point:
    """A kernel; intensity: FLOP per byte; size: diameter in pixels; name: drawn on its right, "" for none."""

    intensity: float
    gflops: float
    colour: str
    size: float
    tip: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Roof:
    """The peak rates of a device."""

    gflops: float
    gigabytes: float
    colour: str


class Roofline(Wrapping):
    """Both axes are logarithmic; the mouse moves nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._points: Sequence[Point] = ()
        self._roofs: Sequence[Roof] = ()
        self.names: list[tuple[float, str]] = []
        self.plot = make_chart(tr("Roofline"))
        self.plot.setLabel("bottom", tr("FLOP per byte"))
        self.plot.setLabel("left", "GFLOP/s")
        self.plot.getViewBox().sigResized.connect(lambda _: self._draw())  # names and ticks depend on the size
        self.heading = label(tr("Roofline"), "heading")
        self.heading.setToolTip(tr("The limits set by memory bandwidth and arithmetic, with each kernel as a point"))
        self.caption = label("", "caption", wrap=True)
        self.setLayout(column(self.heading, (self.plot, 1), self.caption))
        self._draw()  # pyqtgraph's default background is black

    def show_points(self, points: Sequence[Point], roofs: Sequence[Roof], caption: str) -> None:
        """Show these kernels; again with its colours after the theme has changed."""
        self._points, self._roofs = points, roofs
        self.caption.setText(caption)
        self._draw()

    def _draw(self) -> None:
        points = self._points
        self.plot.clear()
        paint_chart(self.plot, current_theme().colours)
        if not points:
            for side in SIDES:
                self.plot.getAxis(side).setTicks([[]])
            return
        across = [math.log10(point.intensity) for point in points]
        heights = [math.log10(max(point.gflops, 1e-6)) for point in points]
        ridges = [math.log10(roof.gflops / roof.gigabytes) for roof in self._roofs]
        left, right = math.floor(min([*across, *ridges])), float(math.ceil(max([*across, *ridges])))
        if any(point.name for point in points):
            right = max(right, max(across) + NAME_DECADES)
        peaks = [math.log10(roof.gflops) for roof in self._roofs]
        for roof, peak, ridge in zip(self._roofs, peaks, ridges, strict=True):
            pen = pg.mkPen(roof.colour, width=2)
            self.plot.plot([left, ridge, right], [peak + left - ridge, peak, peak], pen=pen, antialias=True)
        self.plot.addItem(pg.ScatterPlotItem(
            x=across, y=heights, size=[point.size for point in points], antialias=True,
            brush=[pg.mkBrush(QColor(point.colour)) for point in points], pen=pg.mkPen(current_theme().colours.surface),
            hoverable=True, data=points, tip=lambda x, y, data: data.tip,
        ))  # fmt: skip
        low, high = min(heights) - 0.3, max([*heights, *peaks]) + 0.3
        room = max(float(self.plot.getViewBox().height()), 2.0 * NAME_HEIGHT)
        set_decades(self.plot, (left, right), (low, high), room)
        wanted = [((y - low) * room / (high - low), p.name) for y, p in zip(heights, points, strict=True) if p.name]
        self.names, begin = place_names(wanted, room, NAME_HEIGHT), max(across) + 0.06
        for at, name in self.names:
            width = int(self.plot.getViewBox().width() * (right - begin) / (right - left)) - NAME_HEIGHT // 2
            shown = self.fontMetrics().elidedText(name, Qt.TextElideMode.ElideRight, width)
            text = pg.TextItem(shown, color=current_theme().colours.text, anchor=(0, 0.5),
                               fill=pg.mkBrush(current_theme().colours.surface))  # fmt: skip
            text.setPos(begin, low + at * (high - low) / room)
            self.plot.addItem(text)


def set_decades(chart: pg.PlotWidget, x: tuple[float, float], y: tuple[float, float], height: float) -> None:
    """Set the ranges of two log10 axes, with powers of ten as ticks; `height` in pixels."""
    for side, (low, high), room in (("bottom", x, math.inf), ("left", y, height)):
        edge = (high - low) * TICK_HEIGHT / 2 / room  # nearer to the edge a label would be cut
        powers = range(math.ceil(low + edge), math.floor(high - edge) + 1)
        chart.getAxis(side).setTicks([power_ticks(powers, room)])
    chart.setXRange(*x, padding=0)
    chart.setYRange(*y, padding=0)


def power_ticks(powers: Iterable[int], pixels: float) -> list[tuple[int, str]]:
    """Powers of ten as tick labels, as many as fit."""
    known = list(powers)
    step = min(math.ceil(len(known) * TICK_HEIGHT / pixels), len(known)) or 1
    return [(power, f"{10.0**power:,.10g}") for power in known if power % step == 0]


def place_names(wanted: Sequence[tuple[float, str]], room: float, height: float) -> list[tuple[float, str]]:
    """Names near the desired heights (pixels from the bottom, within `room`), ascending, `height` pixels apart.

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
    return [(at, ", ".join(reversed(names))) for at, (_, names) in zip(places, groups, strict=True)]
