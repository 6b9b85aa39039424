"""The kernels of one operation in a roofline (Williams et al., 2009)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, final

import numpy as np
import pyqtgraph as pg
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QWidget

from app.theme import Theme
from app.translation import tr
from app.viewmodels.kernel_benchmark import BenchmarkedKernel
from app.widgets.chart import SIDES, Name, draw_roof, make_chart, paint_chart, place_names, set_decades
from app.widgets.layouts import column
from app.widgets.parts import label

NAME_HEIGHT: Final = 17
"""Pixels between the names of two kernels."""
DECADES: Final = (1.0, 2.2)
"""Powers of ten of FLOP per byte drawn left and right of the operation; the names are on its right."""


@final
class KernelChart(QWidget):
    """The limits set by memory bandwidth and arithmetic, with each kernel as a point."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._results: list[BenchmarkedKernel] = []
        self._intensity = 0.0
        self._roofs: Mapping[str, Sequence[float]] = {}
        self._height = 0
        self.names: list[Name] = []
        self.plot = make_chart(tr("Roofline"))
        self.plot.getViewBox().sigResized.connect(lambda _: self._on_resized())
        self.caption = label("", "caption", wrap=True)
        head = label(tr("Roofline"), "heading")
        head.setToolTip(tr("The limits set by memory bandwidth and arithmetic, with each kernel as a point"))
        self.setLayout(column(head, (self.plot, 1), self.caption))
        theme.changed.connect(self.draw)
        self.draw()  # pyqtgraph's default background is black

    def show_results(
        self, results: Sequence[BenchmarkedKernel], intensity: float, roofs: Mapping[str, Sequence[float]]
    ) -> None:
        """`intensity`: FLOP per byte of the operation; `roofs`: device to GFLOP/s and GB/s."""
        self._results = [result for result in results if result.milliseconds]
        self._intensity, self._roofs = intensity, roofs
        self.draw()

    def draw(self) -> None:
        self.plot.clear()
        paint_chart(self.plot, self._theme.colours)
        self._height = self.plot.height()
        if self._results and self._intensity > 0 and self._roofs:
            self._draw_roofline()
            return
        for side in SIDES:
            self.plot.getAxis(side).setTicks([[]])
        self.caption.setText(tr("Press “Run benchmark” to measure the kernels."))

    def _on_resized(self) -> None:
        """Place the names again: they depend on the height."""
        if self.plot.height() != self._height:
            self.draw()

    def _shade(self, result: BenchmarkedKernel) -> QColor:
        colours = self._theme.colours
        return QColor(colours.danger if not result.right else colours.curves[0 if result.device == "cpu" else 1])

    def _draw_roofline(self) -> None:
        """Draw the roofline; both axes are logarithmic, and the points of one operation are above each other."""
        middle = math.log10(self._intensity)
        x = np.linspace(middle - DECADES[0], middle + DECADES[1], 200)
        heights = [math.log10(max(result.gflops, 1e-6)) for result in self._results]
        shades = {device: self._theme.colours.curves[0 if device == "cpu" else 1] for device in self._roofs}
        roofs = [draw_roof(self.plot, x, gflops, gigabytes, shades[device])
                 for device, (gflops, gigabytes) in self._roofs.items()]  # fmt: skip
        self.plot.addItem(pg.ScatterPlotItem(
            x=[middle] * len(heights), y=heights, size=9, antialias=True,
            brush=[pg.mkBrush(self._shade(result)) for result in self._results],
            pen=pg.mkPen(self._theme.colours.surface),
        ))  # fmt: skip
        low, high = min(heights) - 0.3, max(*heights, *roofs) + 0.3
        set_decades(self.plot, (x[0], x[-1]), (low, high), self._room())
        self._draw_names(heights, middle + 0.06, low, high)
        devices = [tr("{device}: {gflops} GFLOP/s, {gigabytes} GB/s", device=device, gflops=f"{gflops:,.0f}",
                   gigabytes=f"{gigabytes:,.0f}") for device, (gflops, gigabytes) in self._roofs.items()]  # fmt: skip
        text = tr("Horizontal axis: FLOP per byte, here {n}. Roof: {roofs}.", n=f"{self._intensity:.1f}",
                  roofs="; ".join(devices))  # fmt: skip
        self.caption.setText(text)

    def _draw_names(self, heights: Sequence[float], left: float, low: float, high: float) -> None:
        """Draw the names of the kernels without overlaps; in a low chart, neighbours share a line."""
        colours = self._theme.colours
        per_pixel = (high - low) / self._room()
        self.names = place_names(
            [((y - low) / per_pixel, self._named(result)) for y, result in zip(heights, self._results, strict=True)],
            self._room(), NAME_HEIGHT,
        )  # fmt: skip
        for name in self.names:
            text = pg.TextItem(name.text, color=colours.text, anchor=(0, 0.5), fill=pg.mkBrush(colours.surface))
            text.setPos(left, low + name.at * per_pixel)
            self.plot.addItem(text)

    def _room(self) -> float:
        """The height in pixels that is available for points and names."""
        return max(float(self.plot.getViewBox().height()), 2.0 * NAME_HEIGHT)

    def _named(self, result: BenchmarkedKernel) -> str:
        """The name of a kernel, with its device if there are several."""
        name = tr(result.algorithm.replace("_", " "))
        return f"{name} ({result.device})" if len({r.device for r in self._results}) > 1 else name
