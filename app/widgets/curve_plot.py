"""A plot of growing curves: hidden one by one, zoomed, exported; colours and line styles that all can tell apart."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

import numpy as np
import pyqtgraph as pg
from pyqtgraph.exporters import ImageExporter, SVGExporter
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QCheckBox, QGraphicsItem, QHBoxLayout, QVBoxLayout, QWidget

from app.theme import Theme
from app.translation import tr
from app.viewmodels.run_view import Curve
from app.widgets.parts import label

STYLES: Final = (
    Qt.PenStyle.SolidLine,
    Qt.PenStyle.DashLine,
    Qt.PenStyle.DotLine,
    Qt.PenStyle.DashDotLine,
)
SYMBOLS: Final = ("o", "t", "s", "d", "+", "x", "star", "p")
IMAGE_WIDTH: Final = 1600


@final
class CurvePlot(QWidget):
    """Curves by name; `show_curves` brings the drawing up to date and keeps what the user hid or zoomed."""

    def __init__(self, theme: Theme, title: str, unit: str = "", log: bool = False) -> None:
        super().__init__()
        self._theme, self._title = theme, title
        self._lines: dict[str, pg.PlotDataItem] = {}
        self._boxes: dict[str, QCheckBox] = {}
        self.curves: list[Curve] = []
        self.plot = pg.PlotWidget()
        self.plot.setAccessibleName(title)
        self.plot.setLabel("left", unit)
        self.plot.setLabel("bottom", tr("epoch"))
        self.plot.setLogMode(y=log)
        self.plot.setMouseEnabled(x=True, y=True)
        self.plot.hideButtons()
        self.plot.setMenuEnabled(False)
        self._widest = 0.0
        self._zoomed = False
        self.plot.getViewBox().sigRangeChangedManually.connect(self._on_zoomed)
        for side in ("left", "bottom"):
            # An axis is a recorded picture whose fonts are looked up at every playing: 3 ms each, 36 ms a redraw.
            self.plot.getAxis(side).setCacheMode(QGraphicsItem.CacheMode.DeviceCoordinateCache)
        self._legend = QHBoxLayout()
        self._legend.setSpacing(9)
        head = QHBoxLayout()
        head.addWidget(label(title, "heading"))
        head.addStretch(1)
        head.addLayout(self._legend)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        layout.addLayout(head)
        layout.addWidget(self.plot, 1)
        theme.changed.connect(self._paint)
        self._paint()

    def show_curves(self, curves: Sequence[Curve]) -> None:
        """Draw these curves; others that were there go."""
        self.curves = list(curves)
        for name in set(self._lines) - {c.name for c in curves}:
            self.plot.removeItem(self._lines.pop(name))
            box = self._boxes.pop(name)
            self._legend.removeWidget(box)
            box.deleteLater()
        for curve in curves:
            if curve.name not in self._lines:
                self._add(curve.name)
            line = self._lines[curve.name]
            line.setData(curve.x, curve.y)
            few = 0 < len(curve.x) <= 60 and curve.name not in ("each step", "learning rate")
            line.setSymbol(self._symbol(curve.name) if few else None)
        self._fit(max((float(c.x[-1]) for c in curves if len(c.x)), default=0.0))

    def reset_zoom(self) -> None:
        self._zoomed, self._widest = False, 0.0
        self.plot.enableAutoRange(axis="y")
        self._fit(max((float(c.x[-1]) for c in self.curves if len(c.x)), default=0.0))

    def _fit(self, last: float) -> None:
        """The x axis ends at a whole epoch (a tenth within the first): redrawing it for every step would cost most."""
        wide = math.ceil(last) if last > 1 else max(math.ceil(10 * last) / 10, 0.1)
        if not self._zoomed and wide != self._widest:
            self._widest = wide
            self.plot.setXRange(0.0, wide, padding=0.02)

    def _on_zoomed(self) -> None:
        self._zoomed = True

    def export(self, path: Path) -> None:
        """Write the visible curves as the file's ending says: .png, .svg or .csv."""
        if path.suffix.lower() == ".csv":
            self._export_csv(path)
        elif path.suffix.lower() == ".svg":
            SVGExporter(self.plot.plotItem).export(str(path))
        else:
            exporter = ImageExporter(self.plot.plotItem)
            exporter.parameters()["background"] = QColor(self._theme.colours.surface)
            exporter.parameters()["width"] = IMAGE_WIDTH
            exporter.export(str(path))

    def is_shown(self, name: str) -> bool:
        return name in self._boxes and self._boxes[name].isChecked()

    def box(self, name: str) -> QCheckBox:
        """The switch that hides or shows a curve."""
        return self._boxes[name]

    def _export_csv(self, path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["curve", "epoch", self._title])
            for curve in self.curves:
                if self.is_shown(curve.name):
                    rows = np.column_stack([curve.x, curve.y]).tolist()
                    writer.writerows([curve.name, *values] for values in rows)

    def _add(self, name: str) -> None:
        line = self.plot.plot([], [], name=name, connect="finite")
        line.setDownsampling(auto=True, method="peak")
        line.setClipToView(True)
        self._lines[name] = line
        box = QCheckBox(tr(name))
        box.setChecked(True)
        box.setToolTip(tr("Show or hide this curve"))
        box.toggled.connect(line.setVisible)
        self._boxes[name] = box
        self._legend.addWidget(box)
        self._style(name)

    def _style(self, name: str) -> None:
        place = list(self._lines).index(name)
        colours = self._theme.colours.curves
        colour = QColor(colours[place % len(colours)])
        faint = name == "each step"
        if faint:
            colour = QColor(self._theme.colours.muted)
            colour.setAlpha(110)
        pen = pg.mkPen(colour, width=1 if faint else 2, style=STYLES[0 if faint else (place + 3) % len(STYLES)])
        if name == "training" or place == 0:
            pen.setStyle(Qt.PenStyle.SolidLine)
        self._lines[name].setPen(pen)
        self._lines[name].setSymbolPen(pg.mkPen(colour))
        self._lines[name].setSymbolBrush(pg.mkBrush(colour))
        self._lines[name].setSymbolSize(6)
        self._boxes[name].setStyleSheet(f"QCheckBox {{ color: {colour.name()}; font-weight: 600; }}")

    def _symbol(self, name: str) -> str:
        return SYMBOLS[list(self._lines).index(name) % len(SYMBOLS)]

    def _paint(self) -> None:
        colours = self._theme.colours
        self.plot.setBackground(colours.surface)
        for side in ("left", "bottom"):
            axis = self.plot.getAxis(side)
            axis.setPen(pg.mkPen(colours.border))
            axis.setTextPen(pg.mkPen(colours.muted))
        self.plot.showGrid(x=True, y=True, alpha=0.12)
        for name in self._lines:
            self._style(name)
