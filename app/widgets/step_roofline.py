"""The roofline of a whole step's kernels on this device (Williams et al., 2009)."""

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
from app.viewmodels.kernel_times import TimedKernel, peak_text, roof
from app.widgets.chart import make_chart, paint_chart, power_ticks
from app.widgets.parts import label

SMALLEST: Final = 6
LARGEST: Final = 26
"""Pixels across of a point that takes no time, and of one that takes the whole step."""
MARGIN: Final = 44
"""Pixels under the chart: figures and name of its lower axis."""


@final
class StepRoofline(QWidget):
    """One point per kernel, sized by its share of the step; the mouse moves nothing."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.plot = make_chart(tr("Roofline"))
        self.plot.getViewBox().sigResized.connect(lambda _: self._draw_ticks())
        self.plot.setLabel("bottom", tr("FLOP per byte"))
        self.plot.setLabel("left", "GFLOP/s")
        self.caption = label("", "caption", wrap=True)
        self._ranges = ((0.0, 1.0), (0.0, 1.0))
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.plot, 1)
        layout.addWidget(self.caption)

    def show_kernels(self, kernels: Sequence[TimedKernel], colours: dict[str, str]) -> None:
        """`colours`: of each direction, as in the bars."""
        theme = self._theme.colours
        self.plot.clear()
        paint_chart(self.plot, theme)
        drawn = [k for k in kernels if k.gflops > 0 and k.intensity > 0]
        if not drawn:
            self.caption.setText("")
            return
        gflops, gigabytes = roof(k.time for k in drawn)
        across = [math.log10(k.intensity) for k in drawn]
        heights = [math.log10(k.gflops) for k in drawn]
        left, right = math.floor(min(across)), max(math.ceil(max(across)), math.ceil(math.log10(gflops / gigabytes)))
        x = np.linspace(left, right, 200)
        limit = np.minimum(math.log10(gflops), math.log10(gigabytes) + x)
        self.plot.plot(x, limit, pen=pg.mkPen(theme.text, width=2), antialias=True)
        self.plot.addItem(pg.ScatterPlotItem(
            x=across, y=heights, size=[SMALLEST + (LARGEST - SMALLEST) * math.sqrt(k.share) for k in drawn],
            brush=[pg.mkBrush(QColor(colours[k.time.direction])) for k in drawn], pen=pg.mkPen(theme.surface),
            hoverable=True, data=drawn, tip=lambda x, y, data: tip(data), antialias=True,
        ))  # fmt: skip
        low, high = min(heights) - 0.3, max(max(heights), float(limit.max())) + 0.3
        self._ranges = ((left, right), (low, high))
        self._draw_ticks()
        text = tr(
            "The roof is the peak of this device: {gflops} GFLOP/s, {gigabytes} GB/s. Each point is a kernel; its size "
            "shows its share of the step time.", gflops=f"{gflops:,.0f}", gigabytes=f"{gigabytes:,.0f}",
        )  # fmt: skip
        if any(k.from_cache for k in drawn):
            text += " " + tr("Points above the bandwidth line read their data from the processor's cache.")
        self.caption.setText(text)

    def _draw_ticks(self) -> None:
        """Draw powers of ten, as many as fit."""
        across, upwards = self._ranges
        for side, (low, high), room in (("bottom", across, math.inf), ("left", upwards, self.plot.height() - MARGIN)):
            powers = range(math.floor(low), math.ceil(high) + 1)
            self.plot.getAxis(side).setTicks([power_ticks(powers, room)])
        self.plot.setXRange(*across, padding=0)
        self.plot.setYRange(*upwards, padding=0)


def tip(kernel: TimedKernel) -> str:
    return (f"{kernel.time.layer}, {tr(kernel.time.direction.replace('_', ' '))}\n"
            f"{kernel.time.milliseconds:.3f} ms, {kernel.gflops:,.1f} GFLOP/s, {peak_text(kernel)}")
