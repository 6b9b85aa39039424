"""A plot of growing curves that can be hidden, zoomed and exported; colours and line styles differ for everyone."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pyqtgraph as pg
from pyqtgraph.exporters import ImageExporter
from pyqtgraph.graphicsItems.ScatterPlotItem import drawSymbol
from PySide6.QtCore import QBuffer, QSize, Qt
from PySide6.QtGui import QColor, QIcon, QKeySequence, QPainter, QPen, QPixmap, QShortcut
from PySide6.QtSvg import QSvgGenerator
from PySide6.QtWidgets import QCheckBox, QGraphicsItem

from app.theme import current_theme, mixed
from app.translation import tr
from app.viewmodels.runs import Curve, Floats
from app.widgets.chart import SIDES, make_chart, paint_chart
from app.widgets.layouts import Flow, Wrapping, column
from app.widgets.parts import label
from core.storage import write_file
from core.text import csv_text

STYLES: Final = (Qt.PenStyle.SolidLine, Qt.PenStyle.DashLine, Qt.PenStyle.DotLine, Qt.PenStyle.DashDotLine)
SYMBOLS: Final = ("o", "t", "s", "d", "+", "x", "star", "p")
PLAIN: Final = ("each step", "learning rate")
"""Curves without markers."""
VIEW_KEYS: Final = {
    "+": (0.8, 0, 0), "=": (0.8, 0, 0), "-": (1.25, 0, 0), "Left": (1, -0.1, 0), "Right": (1, 0.1, 0),
    "Up": (1, 0, 0.1), "Down": (1, 0, -0.1),
}  # fmt: skip
"""Factor of the visible range, and shares of it to the right and up."""
WHILE_FOCUSED: Final = Qt.ShortcutContext.WidgetWithChildrenShortcut
SAMPLE: Final = QSize(30, 10)
IMAGE_WIDTH: Final = 1600


class CurvePlot(Wrapping):
    """Curves by name; `show_curves` updates them and keeps what the user hid or zoomed.

    The ranges are set here and seldom change: each change redraws both axes, which costs more than all curves, and
    pyqtgraph's automatic ranging reads every curve twice per redraw.
    """

    def __init__(self, title: str) -> None:
        super().__init__()
        self.title = label(title, "heading")
        self._lines: dict[str, pg.PlotDataItem] = {}
        self._drawn: dict[str, tuple[float, ...]] = {}
        self.boxes: dict[str, QCheckBox] = {}
        self.curves: list[Curve] = []
        self.plot = make_chart(title)
        self.plot.setLabel("bottom", tr("epoch"))
        self.plot.setMouseEnabled(x=True, y=True)
        self.plot.disableAutoRange()
        self._range = (0.0, 0.0, 0.0)
        self._zoomed = False
        self.plot.getViewBox().sigRangeChangedManually.connect(self._on_zoomed)
        self.plot.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        for key, (factor, right, up) in VIEW_KEYS.items():
            QShortcut(QKeySequence(key), self.plot, partial(self._look, factor, right, up), context=WHILE_FOCUSED)
        QShortcut(QKeySequence("0"), self.plot, self.reset_zoom, context=WHILE_FOCUSED)
        for axis in map(self.plot.getAxis, SIDES):
            axis.enableAutoSIPrefix(False)  # a loss of 0.0004 is not 0.4 thousandths
        self._cache_axes(QGraphicsItem.CacheMode.DeviceCoordinateCache)
        self._legend = Flow()
        self.setLayout(column(self.title, self._legend, (self.plot, 1), spacing=4))
        current_theme().changed.connect(self._paint)
        self._paint()

    def hasHeightForWidth(self) -> bool:  # noqa: N802 (Qt's name)
        """False: the legend's lines depend on the width, but the surrounding layout keeps the height."""
        return False

    def show_curves(self, curves: Sequence[Curve]) -> None:
        self.curves = list(curves)
        for name in set(self._lines) - {c.name for c in curves}:
            self.plot.removeItem(self._lines.pop(name))
            self._drawn.pop(name, None)
            box = self.boxes.pop(name)
            self._legend.removeWidget(box)
            box.deleteLater()
        for curve in curves:
            if curve.name not in self._lines:
                self._add(curve.name)
            self._draw(curve)
        self._fit()

    def reset_zoom(self) -> None:
        self._zoomed, self._range = False, (0.0, 0.0, 0.0)
        self._fit()

    def _draw(self, curve: Curve) -> None:
        """Append to a curve; nothing is drawn if its end is unchanged."""
        count = len(curve.x)
        end = (count, float(curve.x[-1]), float(curve.y[-1])) if count else (0,)
        if self._drawn.get(curve.name) == end:
            return
        self._drawn[curve.name] = end
        few = 0 < count <= 60 and curve.name not in PLAIN
        symbol = SYMBOLS[self._place(curve.name) % len(SYMBOLS)]
        self._lines[curve.name].setData(curve.x, curve.y, symbol=symbol if few else None)

    def _fit(self) -> None:
        """Show all visible curves completely, unless the user zoomed."""
        shown = [curve for curve in self.curves if self.is_shown(curve.name) and len(curve.x)]
        if self._zoomed or not shown:
            return
        wanted = (
            rounded_end(max(float(curve.x[-1]) for curve in shown)),
            *rounded_range(np.concatenate([curve.y for curve in shown])),
        )
        if wanted != self._range:
            self._range = wanted
            self.plot.setXRange(0.0, wanted[0], padding=0.02)
            self.plot.setYRange(*wanted[1:], padding=0.06)  # space for a marker and the last value

    def _look(self, factor: float, right: float, up: float) -> None:
        """Show `factor` times the range, moved by shares of it."""
        view, self._zoomed = self.plot.getViewBox(), True
        view.scaleBy((factor, factor))
        view.translateBy(x=right * view.viewRect().width(), y=up * view.viewRect().height())

    def _on_zoomed(self) -> None:
        self._zoomed = True

    def export(self, path: Path) -> None:
        """Write the visible curves in the format of the file name: .png, .svg or .csv. Raises StorageError."""
        buffer, kind = QBuffer(), path.suffix.lower()
        shown = [curve for curve in self.curves if self.is_shown(curve.name)]
        if kind == ".csv":
            rows = [[curve.name, *values] for curve in shown for values in np.column_stack([curve.x, curve.y]).tolist()]
            write_file(path, csv_text([["curve", "epoch", self.title.text()], *rows]))
            return
        self.plot.setTitle("&nbsp; ".join(  # the boxes above are not part of it
            f"<span style='color: {self._lines[curve.name].opts['pen'].color().name()}'>■</span> "
            f"{html.escape(tr(curve.name))}" for curve in shown
        ), color=current_theme().colours.text)  # fmt: skip
        self.plot.plotItem.layout.activate()
        if kind == ".svg":
            self._draw_vectors(buffer)
        else:
            exporter = ImageExporter(self.plot.plotItem)
            exporter.parameters()["background"] = QColor(current_theme().colours.surface)
            exporter.parameters()["width"] = IMAGE_WIDTH
            exporter.export(toBytes=True).save(buffer, "PNG")
        self.plot.setTitle(None)
        write_file(path, bytes(buffer.data().data()))

    def _draw_vectors(self, target: QBuffer) -> None:
        """Draw as SVG by Qt: pyqtgraph's exporter cannot read the closed paths that Qt writes for markers."""
        drawing = QSvgGenerator()
        drawing.setOutputDevice(target)
        drawing.setResolution(self.plot.logicalDpiX())
        drawing.setSize(self.plot.size())
        drawing.setViewBox(self.plot.rect())
        self._cache_axes(QGraphicsItem.CacheMode.NoCache)
        with QPainter(drawing) as painter:
            self.plot.render(painter, self.plot.rect())
        self._cache_axes(QGraphicsItem.CacheMode.DeviceCoordinateCache)

    def _cache_axes(self, mode: QGraphicsItem.CacheMode) -> None:
        """Qt draws cached axes as pixels: an axis is a QPicture whose fonts are resolved on every replay."""
        for axis in map(self.plot.getAxis, SIDES):
            axis.setCacheMode(mode)

    def is_shown(self, name: str) -> bool:
        return name in self.boxes and self.boxes[name].isChecked()

    def _add(self, name: str) -> None:
        line = self.plot.plot([], [], name=name, connect="finite")
        line.setDownsampling(auto=True, method="peak")
        line.setClipToView(True)
        self._lines[name] = line
        metrics = self.fontMetrics()  # runs have long names that begin with their time
        box = QCheckBox(metrics.elidedText(tr(name), Qt.TextElideMode.ElideRight, 12 * metrics.height()))
        box.setChecked(True)
        box.setIconSize(SAMPLE)
        box.setToolTip(f"{tr(name)}: {tr('Show or hide this curve')}")
        box.toggled.connect(line.setVisible)
        box.toggled.connect(lambda _: self._fit())
        box.setProperty("role", "curve")
        self.boxes[name] = box
        self._legend.addWidget(box)
        self._style(name)

    def _place(self, name: str) -> int:
        """Its colour, line and marker; those of a compared run are the same in plots of one and of three own curves."""
        return list(self._lines).index(name) + 2 * (name != PLAIN[1] in self._lines)

    def _style(self, name: str) -> None:
        place = self._place(name)
        colours = current_theme().colours.curves
        colour = QColor(colours[place % len(colours)])
        faint = name == "each step"
        if faint:
            colour = mixed(current_theme().colours.muted, current_theme().colours.surface, 0.43)
        pen = pg.mkPen(colour, width=1 if faint else 2, style=STYLES[0 if faint else (place + 3) % len(STYLES)])
        if name == "training" or place == 0:
            pen.setStyle(Qt.PenStyle.SolidLine)
        self._lines[name].setPen(pen)
        self._lines[name].setSymbolPen(pg.mkPen(colour))
        self._lines[name].setSymbolBrush(pg.mkBrush(colour))
        self._lines[name].setSymbolSize(6)
        self.boxes[name].setIcon(self._sample(pen, "" if name in PLAIN else SYMBOLS[place % len(SYMBOLS)]))

    def _sample(self, pen: QPen, symbol: str) -> QIcon:
        """A piece of a curve, for the legend: names are legible, and colours are not all that tells curves apart."""
        picture = QPixmap(SAMPLE * self.devicePixelRatioF())
        picture.setDevicePixelRatio(self.devicePixelRatioF())
        picture.fill(Qt.GlobalColor.transparent)
        with QPainter(picture) as painter:
            painter.setPen(pen)
            painter.drawLine(0, SAMPLE.height() // 2, SAMPLE.width(), SAMPLE.height() // 2)
            painter.translate(SAMPLE.width() / 2, SAMPLE.height() / 2)
            if symbol:
                drawSymbol(painter, symbol, 6, pg.mkPen(pen.color()), pg.mkBrush(pen.color()))
        return QIcon(picture)

    def _paint(self) -> None:
        colours = current_theme().colours
        paint_chart(self.plot, colours, ticks=True)
        for axis in map(self.plot.getAxis, SIDES):
            axis.setStyle(tickAlpha=1.0, maxTickLevel=1)
            axis.setTickPen(pg.mkPen(mixed(colours.border, colours.surface, 0.5)))
            axis.setZValue(-1000)  # the grid is behind the curves
        self.plot.showGrid(x=True, y=True)
        for name in self._lines:
            self._style(name)


def rounded_end(last: float) -> float:
    """The end of an axis that shows epochs up to `last`: it changes seldom and is at most a quarter too far.

    Whole epochs, from 8 on multiples of 2, from 16 on of 4, and so on; below one epoch a half, a quarter, an eighth.
    """
    if last <= 1:
        return 2.0 ** math.ceil(math.log2(max(last, 1e-3)))
    grain = 2.0 ** max(math.floor(math.log2(last)) - 2, 0)
    return math.ceil(last / grain) * grain


def rounded_range(values: Floats) -> tuple[float, float]:
    """A non-empty range that contains all finite values; its ends are on a grid of an eighth to a quarter of it."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    span = max(high - low, 0.1 * abs(high)) or 1.0
    grain = 2.0 ** (math.floor(math.log2(span)) - 2)
    bottom, top = math.floor(low / grain) * grain, math.ceil(high / grain) * grain
    return (bottom, top) if top > bottom else (bottom - grain, top + grain)
