"""Times of the kernels of a training step: the roofline, and a table."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QWidget

from app.theme import Theme
from app.translation import tr
from app.viewmodels.row_order import Column
from app.viewmodels.rows_model import RowsModel
from app.widgets.bars import BarDelegate
from app.widgets.chart import draw_roof, make_chart, paint_chart, set_decades
from app.widgets.layouts import TAB, column, row, splitter, stack
from app.widgets.parts import EmptyPlace, card, label
from app.widgets.table_view import sorted_view
from core.device import KernelTime
from core.percent import percent

SHARE: Final = 4
"""Index of the column of shares, with bars."""


@final
@dataclass(frozen=True, slots=True)
class TimedKernel:
    """A kernel's time and share of the step, and whether it is memory-bound."""

    time: KernelTime
    share: float
    bytes_bound: bool = False

    @property
    def gflops(self) -> float:
        return self.time.flops / self.time.milliseconds / 1e6 if self.time.milliseconds > 0 else 0.0

    @property
    def intensity(self) -> float:
        return self.time.flops / self.time.bytes if self.time.bytes > 0 else 0.0

    @property
    def of_peak(self) -> float:
        return self.time.floor_ms / self.time.milliseconds if self.time.milliseconds > 0 else 0.0

    @property
    def from_cache(self) -> bool:
        """Whether it is faster than the memory bandwidth allows: its data were in a cache."""
        return self.bytes_bound and self.of_peak > 1


def timed(times: Sequence[KernelTime]) -> list[TimedKernel]:
    whole = sum(t.milliseconds for t in times) or 1.0
    gflops, _ = roof(times)
    return [TimedKernel(t, t.milliseconds / whole, t.flops < 0.999e6 * gflops * t.floor_ms) for t in times]


def roof(times: Iterable[KernelTime]) -> tuple[float, float]:
    """Peak GFLOP/s and GB/s of the device, from the floors of the kernels of a step.

    A floor is the longer of the times for arithmetic and for bytes: the highest rate over all kernels is the peak, or
    less if no kernel is bound by it.
    """
    floors = [(t.flops / t.floor_ms, t.bytes / t.floor_ms) for t in times if t.floor_ms > 0]
    gflops, gigabytes = (max(rates) / 1e6 for rates in zip(*floors, strict=True)) if floors else (1.0, 1.0)
    return gflops, gigabytes


def columns() -> list[Column]:
    return [
        Column(tr("Layer"), lambda k: k.time.layer),
        Column(tr("Direction"), lambda k: tr(k.time.direction.replace("_", " "))),
        Column(tr("Kernel"), lambda k: k.time.kernel),
        Column("ms", lambda k: f"{k.time.milliseconds:.3f}", lambda k: k.time.milliseconds, right=True),
        Column(tr("Share"), lambda k: percent(k.share), lambda k: k.share, right=True),
        Column("GFLOP/s", lambda k: f"{k.gflops:,.1f}" if k.time.flops else "", lambda k: k.gflops, right=True),
        Column(tr("Of peak"), peak_text, lambda k: k.of_peak, right=True, tip=_peak_tip),
    ]


def peak_text(kernel: TimedKernel) -> str:
    """The share of the device's peak; empty if no work is counted (a border that is cleared)."""
    if kernel.time.floor_ms <= 0:
        return ""
    return tr("from cache") if kernel.from_cache else percent(kernel.of_peak, 0)


def _peak_tip(kernel: TimedKernel) -> str | None:
    if not kernel.from_cache:
        return None
    return tr("Faster than the memory bandwidth allows: the data were in the processor's cache.")  # fmt: skip


SMALLEST: Final = 6
LARGEST: Final = 26
"""Diameters in pixels of a point that takes no time and of one that takes the whole step."""
AXIS_HEIGHT: Final = 44
"""Pixels of the figures and the name of the lower axis."""


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
        self.setLayout(column((self.plot, 1), self.caption))

    def show_kernels(self, kernels: Sequence[TimedKernel], colours: dict[str, str]) -> None:
        """`colours`: of each direction."""
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
        highest = draw_roof(self.plot, x, gflops, gigabytes, theme.text)
        self.plot.addItem(pg.ScatterPlotItem(
            x=across, y=heights, size=[SMALLEST + (LARGEST - SMALLEST) * math.sqrt(k.share) for k in drawn],
            brush=[pg.mkBrush(QColor(colours[k.time.direction])) for k in drawn], pen=pg.mkPen(theme.surface),
            hoverable=True, data=drawn, tip=lambda x, y, data: tip(data), antialias=True,
        ))  # fmt: skip
        low, high = min(heights) - 0.3, max(*heights, highest) + 0.3
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
        set_decades(self.plot, *self._ranges, self.plot.height() - AXIS_HEIGHT)


def tip(kernel: TimedKernel) -> str:
    return (f"{kernel.time.layer}, {tr(kernel.time.direction.replace('_', ' '))}\n"
            f"{kernel.time.milliseconds:.3f} ms, {kernel.gflops:,.1f} GFLOP/s, {peak_text(kernel)}")


@final
class KernelTimesPane(QWidget):
    """The step that was timed last."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._times: Sequence[KernelTime] = ()
        self.model = RowsModel(columns(), self)
        self.table = sorted_view(self.model, tr("Kernel times"), stretch=0)
        self.table.setTextElideMode(Qt.TextElideMode.ElideLeft)  # layers differ at their end
        self._bars = BarDelegate(theme)
        self.table.setItemDelegateForColumn(SHARE, self._bars)
        self._legend = label("")
        self._legend.setTextFormat(Qt.TextFormat.RichText)
        self._total = label("", "muted")
        self.roofline = StepRoofline(theme)
        title = label(tr("Roofline"), "heading")
        title.setToolTip(tr("The limits set by memory bandwidth and arithmetic, with each kernel as a point"))
        chart = card(row((title, 1), self._total), self._legend, (self.roofline, 1))
        split = splitter(chart, self.table, sizes=(340, 220), upright=True)
        split.setChildrenCollapsible(False)
        empty = EmptyPlace(theme, "kernels", tr("No kernel has been timed yet"),
                           tr("Once per epoch, each kernel of one step is timed. The times appear here."))
        self._stack = stack(empty, split)
        self.setLayout(column(self._stack, margins=TAB))
        theme.changed.connect(self._draw)

    def show_times(self, times: Sequence[KernelTime]) -> None:
        if times is self._times:
            return
        self._times = times
        self.model.show_rows(timed(times))
        self._bars.highest = max((kernel.share for kernel in self.model.rows), default=1.0)
        self._stack.setCurrentIndex(1 if times else 0)
        self._draw()

    def _draw(self) -> None:
        curves = self._theme.colours.curves
        directions = dict.fromkeys(time.direction for time in self._times)
        chosen = {direction: curves[at % len(curves)] for at, direction in enumerate(directions)}
        self.roofline.show_kernels(self.model.rows, chosen)
        self._legend.setText("&nbsp; &nbsp; ".join(
            f"<span style='color: {colour}'>■ {html.escape(tr(direction.replace('_', ' ')))}</span>"
            for direction, colour in chosen.items()
        ))  # fmt: skip
        total = sum(time.milliseconds for time in self._times)
        self._total.setText(tr("one step: {total} ms in kernels", total=f"{total:.1f}"))
