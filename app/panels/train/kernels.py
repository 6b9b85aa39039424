"""Times of the kernels of a training step: the roofline, and a table."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from app.theme import current_theme
from app.translation import tr
from app.viewmodels.row_order import Column
from app.viewmodels.rows_model import RowsModel
from app.widgets.bars import BarDelegate
from app.widgets.layouts import TAB, column, splitter, stack
from app.widgets.parts import EmptyPlace, card
from app.widgets.roofline import Point, Roof, Roofline
from app.widgets.table_view import Table
from core.device import KernelTime
from core.percent import percent

SHARE: Final = 4
"""Index of the column of shares, with bars."""


@dataclass(frozen=True, slots=True)
class TimedKernel:
    """A kernel's time, its share of the step, and whether it is memory-bound."""

    time: KernelTime
    share: float
    bytes_bound: bool

    @property
    def from_cache(self) -> bool:
        """Whether it is faster than the memory bandwidth allows: its data were in a cache."""
        return self.bytes_bound and self.time.of_peak > 1


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
        Column(tr("Layer"), lambda k: k.time.layer, tip=lambda k: k.time.layer),
        Column(tr("Direction"), lambda k: tr(k.time.direction.replace("_", " "))),
        Column(tr("Kernel"), lambda k: k.time.kernel),
        Column("ms", lambda k: f"{k.time.milliseconds:.3f}", lambda k: k.time.milliseconds, right=True),
        Column(tr("Share"), lambda k: percent(k.share), lambda k: k.share, right=True),
        Column("GFLOP/s", lambda k: f"{k.time.gflops:,.1f}" if k.time.flops else "", lambda k: k.time.gflops,
               right=True),
        Column(tr("Of peak"), peak_text, lambda k: k.time.of_peak, right=True,
               tip=lambda k: tr("Faster than the memory bandwidth allows: the data were in the processor's cache.")
               if k.from_cache else None),
    ]


def peak_text(kernel: TimedKernel) -> str:
    """The share of the device's peak; empty if no work is counted (a border that is cleared)."""
    if kernel.time.floor_ms <= 0:
        return ""
    return tr("from cache") if kernel.from_cache else percent(kernel.time.of_peak, 0)


SMALLEST: Final = 6
LARGEST: Final = 26
"""Diameters in pixels of a point that takes no time and of one that takes the whole step."""


def tip(kernel: TimedKernel) -> str:
    return (f"{kernel.time.layer}, {tr(kernel.time.direction.replace('_', ' '))}\n"
            f"{kernel.time.milliseconds:.3f} ms, {kernel.time.gflops:,.1f} GFLOP/s, {peak_text(kernel)}")


class KernelTimesPane(QWidget):
    """The step that was timed last."""

    def __init__(self) -> None:
        super().__init__()
        self._times: Sequence[KernelTime] = ()
        self.model = RowsModel(columns(), self)
        self.table = Table(self.model, tr("Kernel times"), stretch=0)
        self.table.horizontalHeader().setMinimumSectionSize(70)
        self.table.setTextElideMode(Qt.TextElideMode.ElideLeft)  # layers differ at their end
        self._bars = BarDelegate(self.table, SHARE)
        self.roofline = Roofline()
        self.roofline.caption.setTextFormat(Qt.TextFormat.RichText)
        split = splitter(card(self.roofline), self.table, sizes=(340, 220), upright=True)
        split.setChildrenCollapsible(False)
        empty = EmptyPlace("kernels", tr("No kernel has been timed yet"),
                           tr("Once per epoch, each kernel of one step is timed. The times appear here."))
        self._stack = stack(empty, split)
        self.setLayout(column(self._stack, margins=TAB))
        current_theme().changed.connect(self._draw)

    def show_times(self, times: Sequence[KernelTime]) -> None:
        if times is self._times:
            return
        self._times = times
        self.model.show_rows(timed(times))
        self._bars.highest = max((kernel.share for kernel in self.model.rows), default=1.0)
        self._stack.setCurrentIndex(1 if times else 0)
        self._draw()

    def _draw(self) -> None:
        curves = current_theme().colours.curves
        directions = dict.fromkeys(time.direction for time in self._times)
        chosen = {direction: curves[at % len(curves)] for at, direction in enumerate(directions)}
        drawn = [kernel for kernel in self.model.rows if kernel.time.gflops > 0 and kernel.time.intensity > 0]
        points = [Point(kernel.time.intensity, kernel.time.gflops, chosen[kernel.time.direction],
                        SMALLEST + (LARGEST - SMALLEST) * math.sqrt(kernel.share), tip(kernel))
                  for kernel in drawn]  # fmt: skip
        peak = Roof(*roof(kernel.time for kernel in drawn), current_theme().colours.text)
        text = tr(
            "The roof is the peak of this device: {gflops} GFLOP/s, {gigabytes} GB/s. Each point is a kernel; its size "
            "shows its share of the step time.", gflops=f"{peak.gflops:,.0f}", gigabytes=f"{peak.gigabytes:,.0f}",
        )  # fmt: skip
        if any(kernel.from_cache for kernel in drawn):
            text += " " + tr("Points above the bandwidth line read their data from the processor's cache.")
        legend = [f"<span style='color: {colour}'>■</span> {html.escape(tr(direction.replace('_', ' ')))}"
                  for direction, colour in chosen.items()]  # fmt: skip
        total = tr("one step: {total} ms in kernels", total=f"{sum(time.milliseconds for time in self._times):.1f}")
        caption = f"{'&nbsp; &nbsp; '.join([*legend, html.escape(total)])}<br>{html.escape(text)}"
        self.roofline.show_points(points, [peak], caption if drawn else "")
