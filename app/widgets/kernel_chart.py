"""The kernels of one operation as bars, or under the roof of what the machine can do (Williams et al., 2009)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, final

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.theme import Theme
from app.translation import tr
from app.viewmodels.ladder import Rung
from app.widgets.parts import label, row, switch

NAME_HEIGHT: Final = 17
"""Pixels from the name of one kernel to the next."""
DECADES: Final = 1.5
"""Powers of ten of FLOP per byte that are drawn to each side of the operation."""


@final
class KernelChart(QWidget):
    """Bars of GFLOP/s, or the roofline: how far each kernel lies under memory and arithmetic."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._rungs: list[Rung] = []
        self._intensity = 0.0
        self._roofs: Mapping[str, Sequence[float]] = {}
        self.plot = pg.PlotWidget()
        self.plot.setAccessibleName(tr("GFLOP/s per kernel"))
        self.plot.setMenuEnabled(False)
        self.plot.hideButtons()
        self.plot.setMouseEnabled(x=False, y=False)
        self.switch, buttons = switch(
            (tr("Bars"), tr("GFLOP/s per kernel")),
            (tr("Roofline"), tr("What memory and arithmetic of this machine allow, and where each kernel lies")),
        )  # fmt: skip
        self.switch.idToggled.connect(lambda _, on: self.draw() if on else None)
        self.said = label("", "caption", wrap=True)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addLayout(row(label("GFLOP/s", "heading"), None, *buttons, spacing=0))
        layout.addWidget(self.plot, 1)
        layout.addWidget(self.said)
        theme.changed.connect(self.draw)
        self.draw()  # pyqtgraph's own ground is black

    def show_rungs(self, rungs: Sequence[Rung], intensity: float, roofs: Mapping[str, Sequence[float]]) -> None:
        """`intensity`: FLOP per byte of the operation; `roofs`: device to GFLOP/s and GB/s."""
        self._rungs = [rung for rung in rungs if rung.milliseconds]
        self._intensity, self._roofs = intensity, roofs
        self.draw()

    def draw(self) -> None:
        colours = self._theme.colours
        self.plot.clear()
        self.plot.setBackground(colours.surface)
        for side in ("left", "bottom"):
            axis = self.plot.getAxis(side)
            axis.setStyle(tickLength=0)
            axis.setPen(pg.mkPen(colours.border))
            axis.setTextPen(pg.mkPen(colours.muted))
            axis.setTicks(None if self._rungs else [[]])
        self.said.setText("" if self._rungs else tr("“Run the ladder” fills this."))
        self.said.setVisible(bool(self.said.text()))
        roofline = self.switch.checkedId() == 1
        self.plot.invertY(not roofline)
        if self._rungs and roofline and self._intensity > 0 and self._roofs:
            self._draw_roofline()
        elif not roofline:
            self._draw_bars()

    def _shade(self, rung: Rung) -> QColor:
        colours = self._theme.colours
        return QColor(colours.danger if not rung.right else colours.curves[0 if rung.device == "cpu" else 1])

    def _draw_bars(self) -> None:
        rungs = self._rungs
        self.plot.getAxis("left").setTicks([list(enumerate(named(rung) for rung in rungs))])
        if rungs:
            self.plot.addItem(pg.BarGraphItem(
                x0=0, width=[r.gflops for r in rungs], y=list(range(len(rungs))), height=0.6,
                brushes=[self._shade(rung) for rung in rungs], pen=pg.mkPen(None),
            ))  # fmt: skip
            self.plot.setXRange(0, 1.05 * max(r.gflops for r in rungs), padding=0)
            self.plot.setYRange(-0.6, max(len(rungs), 4) - 0.4, padding=0)

    def _draw_roofline(self) -> None:
        """Both axes are powers of ten; the points of one operation stand above each other."""
        colours, middle = self._theme.colours, math.log10(self._intensity)
        x = np.linspace(middle - DECADES, middle + DECADES, 200)
        heights = [math.log10(max(rung.gflops, 1e-6)) for rung in self._rungs]
        lowest, highest = min(heights), max(heights)
        said = []
        for device, (gflops, gigabytes) in self._roofs.items():
            roof = np.minimum(math.log10(gflops), math.log10(gigabytes) + x)
            shade = colours.curves[0 if device == "cpu" else 1]
            self.plot.plot(x, roof, pen=pg.mkPen(shade, width=2, style=Qt.PenStyle.SolidLine))
            highest = max(highest, float(roof.max()))
            said.append(tr("{device}: {gflops} GFLOP/s, {gigabytes} GB/s", device=device, gflops=f"{gflops:,.0f}",
                           gigabytes=f"{gigabytes:,.0f}"))  # fmt: skip
        self.plot.addItem(pg.ScatterPlotItem(
            x=[middle] * len(self._rungs), y=heights, size=9,
            brush=[pg.mkBrush(self._shade(rung)) for rung in self._rungs], pen=pg.mkPen(colours.surface),
        ))  # fmt: skip
        lines = max(self.plot.getViewBox().height() / NAME_HEIGHT, 2)
        names = spread(self._rungs, (highest - lowest + 0.6) / lines)
        highest = max(highest, names[-1][0])
        for y, rung in names:
            text = pg.TextItem(named(rung), color=colours.text, anchor=(0, 0.5))
            text.setPos(middle + 0.05, y)
            self.plot.addItem(text)
        for side, low, high in (("bottom", x[0], x[-1]), ("left", lowest - 0.3, highest + 0.3)):
            powers = range(math.floor(low), math.ceil(high) + 1)
            self.plot.getAxis(side).setTicks([[(p, f"{10.0**p:g}") for p in powers]])
        self.plot.setXRange(x[0], x[-1], padding=0)
        self.plot.setYRange(lowest - 0.3, highest + 0.3, padding=0)
        text = tr("Across: FLOP per byte, here {n}. The roof: {roofs}.", n=f"{self._intensity:.1f}",
                  roofs="; ".join(said))  # fmt: skip
        self.said.setText(text)
        self.said.show()


def named(rung: Rung) -> str:
    return f"{tr(rung.algorithm.replace('_', ' '))} ({rung.device})"


def spread(rungs: Sequence[Rung], least: float) -> list[tuple[float, Rung]]:
    """Heights for the names, from the lowest up, at least `least` apart so that none covers another."""
    found: list[tuple[float, Rung]] = []
    for rung in sorted(rungs, key=lambda r: r.gflops):
        y = math.log10(max(rung.gflops, 1e-6))
        found.append((max(y, found[-1][0] + least) if found else y, rung))
    return found
