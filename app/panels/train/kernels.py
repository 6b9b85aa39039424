"""Times of the kernels of a training step: stacked bars per layer or the roofline, and a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QSplitter, QStackedWidget, QVBoxLayout, QWidget

from app.theme import Theme
from app.translation import tr
from app.viewmodels import kernel_times
from app.viewmodels.kernel_times import TimedKernel
from app.viewmodels.rows_model import RowsModel
from app.widgets.chart import make_chart, paint_chart
from app.widgets.parts import EmptyPlace, card, label, row, switch
from app.widgets.step_roofline import StepRoofline
from app.widgets.table_view import sorted_view
from core.device import KernelTime

LAYER_HEIGHT: Final = 19
"""Pixels that a layer needs for its name; the wheel shows the layers that have no room."""


@final
class KernelTimesPane(QWidget):
    """Bars and table of the step that was timed last."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._times: Sequence[KernelTime] = ()
        self._timed: Sequence[TimedKernel] = ()
        self._layers = 0
        self.model = RowsModel(kernel_times.columns(), self)
        self.table = sorted_view(self.model, tr("Kernel times"), stretch=0)
        self.table.setTextElideMode(Qt.TextElideMode.ElideLeft)  # layers differ at their end
        self._make_bars()
        self._legend = row(spacing=14)
        self._total = label("", "muted")
        self.roofline = StepRoofline(theme)
        self._charts = QStackedWidget()
        self._charts.addWidget(self.plot)
        self._charts.addWidget(self.roofline)
        self._lay_out(theme)
        theme.changed.connect(self._draw)

    def _make_bars(self) -> None:
        self.plot = make_chart(tr("Time per layer"))
        self.plot.setMouseEnabled(x=False, y=True)
        self.plot.invertY(True)
        self.plot.getViewBox().sigResized.connect(lambda _: self._fit())
        self.plot.setLabel("bottom", tr("milliseconds"))
        self.plot.getAxis("bottom").enableAutoSIPrefix(False)  # it would count thousandths of milliseconds

    def _lay_out(self, theme: Theme) -> None:
        self.switch, buttons = switch(
            (tr("Bars"), tr("Time per layer")),
            (tr("Roofline"), tr("The limits set by memory bandwidth and arithmetic, with each kernel as a point")),
        )  # fmt: skip
        self.switch.idToggled.connect(lambda at, on: self._charts.setCurrentIndex(at) if on else None)
        frame, inside = card()
        head = row(label(tr("Time per layer"), "heading"), None, self._total, spacing=14)
        head.addLayout(row(*buttons, spacing=0))
        inside.addLayout(head)
        inside.addLayout(self._legend)
        inside.addWidget(self._charts, 1)
        split = QSplitter(Qt.Orientation.Vertical)
        split.addWidget(frame)
        split.addWidget(self.table)
        split.setSizes([340, 220])
        split.setHandleWidth(12)
        split.setChildrenCollapsible(False)
        self._stack = QStackedWidget()
        empty = EmptyPlace(theme, "kernels", tr("No kernel has been timed yet"),
                           tr("Once per epoch, each kernel of one step is timed. The times appear here."))
        self._stack.addWidget(empty)
        self._stack.addWidget(split)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 8, 0, 0)
        layout.addWidget(self._stack)

    def _fit(self) -> None:
        """Show as many layers as fit."""
        shown = max(int(self.plot.getViewBox().height() // LAYER_HEIGHT), 2)
        self.plot.setYRange(-0.6, min(self._layers, shown) - 0.4, padding=0)

    def show_times(self, times: Sequence[KernelTime]) -> None:
        if times is self._times:
            return
        self._times = times
        self._timed = kernel_times.timed(times)
        self.model.show_rows(self._timed)
        self._stack.setCurrentIndex(1 if times else 0)
        self._draw()

    def _draw(self) -> None:
        self.plot.clear()
        while self._legend.count():
            item = self._legend.takeAt(0)
            old = item.widget() if item is not None else None
            if old is not None:
                old.deleteLater()
        colours = self._theme.colours
        paint_chart(self.plot, colours)
        if not self._times:
            return
        layers, bars = kernel_times.stacks(self._times)
        start = [0.0] * len(layers)
        chosen = {direction: colours.curves[at % len(colours.curves)] for at, direction in enumerate(bars)}
        self.roofline.show_kernels(self._timed, chosen)
        for direction, widths in bars.items():
            colour = chosen[direction]
            self.plot.addItem(pg.BarGraphItem(
                x0=start, width=widths, y=list(range(len(layers))), height=0.72,
                brush=QColor(colour), pen=pg.mkPen(colours.surface),
            ))  # fmt: skip
            start = [a + b for a, b in zip(start, widths, strict=True)]
            name = label(f"■ {tr(direction.replace('_', ' '))}")
            name.setStyleSheet(f"color: {colour};")
            self._legend.addWidget(name)
        self._legend.addStretch(1)
        self.plot.getAxis("left").setTicks([list(enumerate(layers))])
        self.plot.setLimits(yMin=-1, yMax=len(layers))
        self._layers = len(layers)
        self._fit()
        self.plot.setXRange(0, max(start) * 1.03, padding=0)
        self._total.setText(tr("one step: {total} ms in kernels", total=f"{sum(start):.1f}"))
