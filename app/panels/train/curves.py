"""The live curves of loss, accuracy and learning rate, with export and zoom."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle
from pathlib import Path

from PySide6.QtWidgets import QWidget

from app.translation import tr
from app.viewmodels.runs import Curve, RunView
from app.widgets.curve_plot import CurvePlot
from app.widgets.layouts import TAB, column, holding, row, splitter, stack
from app.widgets.notice import Notice, show_written
from app.widgets.parts import EmptyPlace, ask_target, button, card, label
from core.errors import StorageError
from core.storage import unused


class CurvesPane(QWidget):
    """Three plots over the epochs; earlier runs can be compared with them."""

    def __init__(self, notice: Notice) -> None:
        super().__init__()
        self._notice = notice
        self.plots = {
            "loss": CurvePlot(tr("Loss")),
            "accuracy": CurvePlot(tr("Accuracy")),
            "rate": CurvePlot(tr("Learning rate")),
        }
        self.compared: dict[str, RunView] = {}
        """Earlier runs by name, drawn with their validation curve."""
        self._turns = cycle(self.plots)
        empty = EmptyPlace("train", tr("No curves yet"), tr(
            "Choose the settings on the left and press “Start training”. Loss and accuracy are plotted here during "
            "training."))  # fmt: skip
        self._stack = stack(empty, self._page())
        self.setLayout(column(self._stack, margins=TAB))

    def _page(self) -> QWidget:
        split = splitter(card(self.plots["loss"]), card(self.plots["accuracy"]))
        split.setChildrenCollapsible(False)
        about = tr("Drag or arrow keys: move. Wheel, plus or minus: zoom. Click a name: hide it.")
        reset = button(tr("Whole curve"), self.reset_zoom, "flat", tr("Reset the zoom"))
        export = button(tr("Export…"), self._on_export, "flat", tr("Save the visible curves as PNG, SVG or CSV"))
        tools = row((label(about, "caption", wrap=True), 1), reset, export)
        return holding(column((split, 3), (card(self.plots["rate"]), 2), tools, spacing=8))

    def show_next(self, view: RunView) -> None:
        """Update one plot, another at each call: three at once would block the window."""
        self.show_run(view, [next(self._turns)])

    def show_run(self, view: RunView, which: Iterable[str] = ("loss", "accuracy", "rate")) -> None:
        """Update the plots with the run and the runs compared with it."""
        self._stack.setCurrentIndex(1 if view.started is not None or self.compared else 0)
        self.plots["accuracy"].title.setText(tr("Accuracy at threshold 0.5") if view.several else tr("Accuracy"))
        for what in which:
            curves = view.curves(what) if view.started is not None else []
            for name, other in self.compared.items():
                last = other.curves(what)[-1]
                curves.append(Curve(name, last.x, last.y))
            self.plots[what].show_curves(curves)

    def reset_zoom(self) -> None:
        for plot in self.plots.values():
            plot.reset_zoom()

    def export(self, path: Path) -> list[Path]:
        """Write one new file per plot, named after the given one; returns the files. Raises StorageError."""
        written = []
        for name, plot in self.plots.items():
            place = unused(path.with_name(f"{path.stem}-{name}{path.suffix}"))
            plot.export(place)
            written.append(place)
        return written

    def _on_export(self) -> None:
        kinds = "PNG (*.png);;SVG (*.svg);;CSV (*.csv)"
        if name := ask_target(self, tr("Export curves"), "curves.png", kinds):
            try:
                written = self.export(Path(name))
                show_written(self._notice, [str(path) for path in written])
            except StorageError as error:
                self._notice.alarm(str(error))
