"""A whole step's kernels under the roof of what this device can do (Williams et al., 2009)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, final

import numpy as np
import pyqtgraph as pg
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.theme import Theme
from app.translation import tr
from app.viewmodels.kernel_times import TimedKernel, roof
from app.widgets.parts import label
from core.percent import percent

SMALLEST: Final = 6
LARGEST: Final = 26
"""Pixels across of a point that takes no time, and of one that takes the whole step."""


@final
class StepRoofline(QWidget):
    """A point a kernel, as large as its share of the step; the wheel and the mouse move nothing."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.plot = pg.PlotWidget()
        self.plot.setAccessibleName(tr("Roofline"))
        self.plot.setMenuEnabled(False)
        self.plot.hideButtons()
        self.plot.setMouseEnabled(x=False, y=False)
        self.plot.setLabel("bottom", tr("FLOP per byte"))
        self.plot.setLabel("left", "GFLOP/s")
        self.said = label("", "caption", wrap=True)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.plot, 1)
        layout.addWidget(self.said)

    def show_kernels(self, kernels: Sequence[TimedKernel], colours: dict[str, str]) -> None:
        """`colours`: of each direction, as in the bars beside."""
        theme = self._theme.colours
        self.plot.clear()
        self.plot.setBackground(theme.surface)
        for side in ("left", "bottom"):
            self.plot.getAxis(side).setStyle(tickLength=0)
            self.plot.getAxis(side).setPen(pg.mkPen(theme.border))
            self.plot.getAxis(side).setTextPen(pg.mkPen(theme.muted))
        drawn = [k for k in kernels if k.gflops > 0 and k.intensity > 0]
        if not drawn:
            self.said.setText("")
            return
        gflops, gigabytes = roof(k.time for k in drawn)
        across = [math.log10(k.intensity) for k in drawn]
        heights = [math.log10(k.gflops) for k in drawn]
        left, right = math.floor(min(across)), max(math.ceil(max(across)), math.ceil(math.log10(gflops / gigabytes)))
        x = np.linspace(left, right, 200)
        limit = np.minimum(math.log10(gflops), math.log10(gigabytes) + x)
        self.plot.plot(x, limit, pen=pg.mkPen(theme.text, width=2))
        self.plot.addItem(pg.ScatterPlotItem(
            x=across, y=heights, size=[SMALLEST + (LARGEST - SMALLEST) * math.sqrt(k.share) for k in drawn],
            brush=[pg.mkBrush(QColor(colours[k.time.direction])) for k in drawn], pen=pg.mkPen(theme.surface),
            hoverable=True, data=drawn, tip=lambda x, y, data: tip(data),
        ))  # fmt: skip
        low, high = min(heights) - 0.3, max(max(heights), float(limit.max())) + 0.3
        for side, first, last in (("bottom", left, right), ("left", low, high)):
            powers = range(math.floor(first), math.ceil(last) + 1)
            self.plot.getAxis(side).setTicks([[(p, f"{10.0**p:,.10g}") for p in powers]])
        self.plot.setXRange(left, right, padding=0)
        self.plot.setYRange(low, high, padding=0)
        self.said.setText(tr(
            "The roof is what this device can do at best: {gflops} GFLOP/s, {gigabytes} GB/s. A point is a kernel, the "
            "larger the more of the step it takes.", gflops=f"{gflops:,.0f}", gigabytes=f"{gigabytes:,.0f}",
        ))  # fmt: skip


def tip(kernel: TimedKernel) -> str:
    return (f"{kernel.time.layer}, {tr(kernel.time.direction.replace('_', ' '))}\n"
            f"{kernel.time.milliseconds:.3f} ms, {kernel.gflops:,.1f} GFLOP/s, {percent(kernel.of_peak, 0)}")
