"""The Kernels page: the kernels of an op as bars and table, verified, with their source; and the plan of a network."""

from __future__ import annotations

from typing import Final

from PySide6.QtGui import QFontDatabase
from PySide6.QtWidgets import QCheckBox, QHeaderView, QPlainTextEdit, QWidget

from app.theme import current_theme
from app.translation import sentence, tr
from app.viewmodels.kernel_benchmark import BenchmarkedKernel, KernelBenchmark, plan_columns, summary
from app.viewmodels.rows_model import RowsModel
from app.widgets.bars import BarDelegate
from app.widgets.fields import ComboBox, SpinBox
from app.widgets.layouts import GAP, PAGE, Flow, column, holding, row, splitter
from app.widgets.notice import Notice
from app.widgets.parts import button, captioned, card, header, label, named, tabs
from app.widgets.roofline import Point, Roof, Roofline
from app.widgets.table_view import Table

SPEED, VERDICT = 2, 4
"""Indices of the columns of GFLOP/s, with bars, and of verdicts."""
POINT: Final = 9
"""Diameter in pixels of a kernel in the roofline."""


class KernelsPanel(QWidget):
    """Choose op, direction and shape; run; read."""

    def __init__(self, model: KernelBenchmark) -> None:
        super().__init__()
        self._model = model
        self.notice = Notice()
        self.op, self.direction, self.shape = ComboBox(), ComboBox(), ComboBox()
        for box in (self.op, self.direction, self.shape):
            box.setSizeAdjustPolicy(ComboBox.SizeAdjustPolicy.AdjustToContents)
        self.run = button(tr("Run benchmark"), self._on_run, "primary", tr("Verify and time every kernel") + " (F5)")
        self.run.setShortcut("F5")
        self.stop = button(tr("Cancel"), model.cancel)
        self.devices = label(tr("Listing the kernels for this computer…"), "muted", wrap=True)
        self.table = Table(model.rows, tr("Kernels"), stretch=5)
        head = self.table.horizontalHeader()
        head.setSectionResizeMode(VERDICT, QHeaderView.ResizeMode.Interactive)  # reasons are long
        head.resizeSection(VERDICT, 200)
        self._bars = BarDelegate(self.table, SPEED)
        self.chart = Roofline()
        current_theme().changed.connect(self._draw)
        self.place = label("", "heading")
        self.source = named(QPlainTextEdit(readOnly=True, tabChangesFocus=True), tr("Source of the kernel"))
        self.source.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.source.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        self._lay_out()
        self._connect()
        self._on_ended()
        model.list()
        if model.kernels:  # listed for the window of another language
            self._on_listed()

    def _lay_out(self) -> None:
        lower = splitter(card(self.chart), card(self.place, (self.source, 1)), sizes=(420, 640))
        choices = row(
            captioned(tr("Operation"), self.op), captioned(tr("Direction"), self.direction),
            captioned(tr("Shape"), self.shape), None, spacing=18,
        )  # fmt: skip
        ready = row((self.devices, 1), self.stop, self.run)
        compared = column(choices, ready, (self.table, 3), (lower, 4), spacing=GAP, margins=(0, GAP, 0, 0))
        self.plan = PlanPanel(self._model)
        self.tabs = tabs(tr("Kernels"), (holding(compared), tr("One operation")), (self.plan, tr("A whole network")))
        subtitle = tr("Compare the implementations of an operation, from plain loops to the fastest kernel.")
        head = header(tr("Kernels"), subtitle)
        self.setLayout(column(head, self.notice, (self.tabs, 1), spacing=GAP, margins=PAGE))

    def _connect(self) -> None:
        model = self._model
        model.listed.connect(self._on_listed)
        model.changed.connect(self._draw)
        model.ended.connect(self._on_ended)
        model.failed.connect(self.notice.alarm)
        model.explained.connect(self.notice.hide_alarm)
        self.op.currentIndexChanged.connect(lambda _: self._on_op())
        for box in (self.direction, self.shape):  # results are of one shape
            box.currentIndexChanged.connect(lambda _: self._on_direction())
        self.table.selectionModel().currentChanged.connect(lambda *_: self._on_selected())

    def _on_listed(self) -> None:
        names = dict.fromkeys(result.op for result in self._model.kernels)
        self.op.fill(((name.replace("_", " "), name) for name in names), self.op.currentData() or "conv2d")
        states = [f"{name}: {sentence(state) or tr('ready')}" for name, state in self._model.devices.items()]
        self.devices.setText("    ".join(states))
        self._on_op()
        self._on_ended()

    def _on_op(self) -> None:
        op = self.op.currentData()
        names = dict.fromkeys(result.direction for result in self._model.kernels if result.op == op)
        self.direction.fill(((tr(name.replace("_", " ")), name) for name in names), self.direction.currentData())
        self.shape.fill(((sentence(name), name) for name in self._model.shapes.get(op, [])), self.shape.currentData())
        self._on_direction()

    def _on_direction(self) -> None:
        self._model.show(self.op.currentData() or "", self.direction.currentData() or "")
        self.table.selectRow(0)

    def _on_run(self) -> None:
        self._model.run(self.op.currentData(), self.direction.currentData(), self.shape.currentData())
        self._on_ended()

    def _on_ended(self) -> None:
        self.run.setEnabled(bool(self._model.kernels) and not self._model.running)
        self.stop.setVisible(self._model.running)
        for box in (self.op, self.direction, self.shape):
            box.setEnabled(not self._model.running)

    def _on_selected(self) -> None:
        result: BenchmarkedKernel | None = self.table.selected()
        if result is not None:
            self.place.setText(result.place)
            self.source.setPlainText(result.source)

    def _draw(self) -> None:
        model, colours = self._model, current_theme().colours
        self._bars.highest = max((kernel.gflops for kernel in model.rows.rows), default=0.0)
        shades = {device: colours.curves[int(device != "cpu")] for device in model.devices}
        kernels = [kernel for kernel in model.rows.rows if kernel.milliseconds]
        if not (kernels and model.intensity > 0 and model.roofs):
            self.chart.show_points((), (), tr("Press “Run benchmark” to measure the kernels."))
            return
        several = len({kernel.device for kernel in kernels}) > 1
        names = [tr(k.algorithm.replace("_", " ")) + f" ({k.device})" * several for k in kernels]
        points = [Point(model.intensity, k.gflops, shades[k.device] if k.right else colours.danger, POINT, name, name)
                  for k, name in zip(kernels, names, strict=True)]  # fmt: skip
        devices = [tr("{device}: {gflops} GFLOP/s, {gigabytes} GB/s", device=device, gflops=f"{gflops:,.0f}",
                   gigabytes=f"{gigabytes:,.0f}") for device, (gflops, gigabytes) in model.roofs.items()]  # fmt: skip
        text = tr("FLOP per byte: {n}. Roof: {roofs}.", n=f"{model.intensity:.1f}", roofs="; ".join(devices))
        roofs = [Roof(gflops, gigabytes, shades[device]) for device, (gflops, gigabytes) in model.roofs.items()]
        self.chart.show_points(points, roofs, text)


BATCHES: Final = (1, 4096, 32)
"""Smallest, largest and initial batch size."""
REASON: Final = 7
"""Index of the column of reasons."""


class PlanPanel(QWidget):
    """Choose a network, a batch and a GPU; read every candidate of every step."""

    def __init__(self, model: KernelBenchmark) -> None:
        super().__init__()
        self._model = model
        self.network, self.precision, self.gpu, self.batch = ComboBox(), ComboBox(), ComboBox(), SpinBox()
        self.batch.setRange(*BATCHES[:2])
        self.batch.setValue(BATCHES[2])
        self.training, self.chosen = QCheckBox(tr("Training step")), QCheckBox(tr("Chosen kernels only"))
        self.ask = button(tr("Show choices"), self._on_asked, "primary")
        self.rows = RowsModel(plan_columns(), self)
        self.table = Table(self.rows, tr("Kernels of the plan"), stretch=REASON)
        self.summary = label("", "muted", wrap=True)
        self._lay_out()
        model.listed.connect(self._on_listed)
        model.explained.connect(self._show)
        model.failed.connect(self._show)  # a failed search can be asked for again
        self.chosen.toggled.connect(lambda _: self._show())
        self._on_listed()

    def _lay_out(self) -> None:
        what = row(captioned(tr("Model"), self.network), captioned(tr("Batch size"), self.batch),
                   captioned(tr("GPU"), self.gpu), None)  # fmt: skip
        how = row((Flow(holding(captioned(tr("Precision"), self.precision)), self.training), 1), self.ask)
        shown = row((self.summary, 1), self.chosen)
        self.setLayout(column(what, how, shown, (self.table, 1), spacing=GAP, margins=(0, GAP, 0, 0)))

    def _on_listed(self) -> None:
        """What there is to choose from is known once the process has started."""
        if not self.network.count():
            self.network.addItems(self._model.networks)
            self.precision.fill((tr(name), name) for name in self._model.precisions)
            self.gpu.fill((f"{tr(name)} {capability}".strip(), capability) for name, capability in self._model.gpus)
        self._show()

    def _on_asked(self) -> None:
        self.ask.setEnabled(False)
        self.summary.setText(tr("Comparing the kernels of each step…"))
        self._model.explain(
            model=self.network.currentText(), batch=self.batch.value(), precision=self.precision.currentData(),
            training=self.training.isChecked(), capability=self.gpu.currentData(),
        )  # fmt: skip

    def _show(self) -> None:
        answer, every = self._model.explanation, not self.chosen.isChecked()
        self.ask.setEnabled(bool(self._model.networks))
        self.rows.show_rows([row for row in answer.get("explained", ()) if every or row["chosen"]])
        about = tr("Shows every kernel that was considered for each step. No GPU is needed.")
        self.summary.setText(summary(answer) if answer else about)
