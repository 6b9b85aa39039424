"""The Kernels page: the kernels of an op as bars and table, verified, with their source."""

from __future__ import annotations

from typing import Final, final

from PySide6.QtGui import QFontDatabase
from PySide6.QtWidgets import QHBoxLayout, QHeaderView, QPlainTextEdit, QSplitter, QTabWidget, QVBoxLayout, QWidget

from app.panels.kernels.plan import PlanPanel
from app.theme import Theme
from app.translation import sentence, tr
from app.viewmodels.kernel_benchmark import BenchmarkedKernel, KernelBenchmark
from app.widgets.fields import ComboBox
from app.widgets.kernel_chart import KernelChart
from app.widgets.naming import named
from app.widgets.notice import Notice
from app.widgets.parts import GAP, MARGIN, button, card, header, label, row
from app.widgets.table_view import selected, sorted_view

VERDICT: Final = 4
"""The column of verdicts."""


@final
class KernelsPanel(QWidget):
    """Choose op, direction and shape; run; read."""

    def __init__(self, model: KernelBenchmark, theme: Theme) -> None:
        super().__init__()
        self._model = model
        self.notice = Notice(theme)
        self.op, self.direction, self.shape = (
            named(ComboBox(), name) for name in (tr("Operation"), tr("Direction"), tr("Shape"))
        )
        for box in (self.op, self.direction, self.shape):
            box.setSizeAdjustPolicy(ComboBox.SizeAdjustPolicy.AdjustToContents)
        self.run = button(tr("Run benchmark"), self._on_run, "primary", tr("Verify and time every kernel") + " (F5)")
        self.run.setShortcut("F5")
        self.stop = button(tr("Cancel"), model.cancel)
        self.devices = label(tr("Listing the kernels for this computer…"), "muted", wrap=True)
        self.table = sorted_view(model.rows, tr("Kernels"), stretch=5)
        head = self.table.horizontalHeader()
        head.setSectionResizeMode(VERDICT, QHeaderView.ResizeMode.Interactive)  # reasons are long
        head.resizeSection(VERDICT, 200)
        self.chart = KernelChart(theme)
        self.place = label("", "heading")
        self.source = self._make_source()
        self._lay_out()
        self._connect()
        self._on_ended()
        model.list()

    @staticmethod
    def _make_source() -> QPlainTextEdit:
        made = named(QPlainTextEdit(), tr("Source of the kernel"))
        made.setReadOnly(True)
        made.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        made.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        made.setTabChangesFocus(True)
        return made

    def _lay_out(self) -> None:
        chart, inside = card()
        inside.addWidget(self.chart)
        text, within = card()
        within.addWidget(self.place)
        within.addWidget(self.source, 1)
        lower = QSplitter()
        lower.addWidget(chart)
        lower.addWidget(text)
        lower.setHandleWidth(12)
        lower.setSizes([420, 640])
        compared = QWidget()
        layout = QVBoxLayout(compared)
        layout.setContentsMargins(0, GAP, 0, 0)
        layout.setSpacing(GAP)
        choices = QHBoxLayout()
        for name, box in ((tr("Operation"), self.op), (tr("Direction"), self.direction), (tr("Shape"), self.shape)):
            choices.addLayout(row(label(name, "muted"), box))
            choices.addSpacing(10)
        choices.addStretch(1)
        choices.addLayout(row(self.stop, self.run))
        layout.addLayout(choices)
        layout.addWidget(self.devices)
        layout.addWidget(self.table, 3)
        layout.addWidget(lower, 4)
        self.plan, self.tabs = PlanPanel(self._model), named(QTabWidget(), tr("Kernels"))
        self.tabs.setDocumentMode(True)
        self.tabs.addTab(compared, tr("One operation"))
        self.tabs.addTab(self.plan, tr("A whole network"))
        whole = QVBoxLayout(self)
        whole.setContentsMargins(MARGIN, 16, MARGIN, 14)
        whole.setSpacing(GAP)
        subtitle = tr("Compare the implementations of an operation, from plain loops to the fastest kernel.")
        whole.addWidget(header(tr("Kernels"), subtitle))
        whole.addWidget(self.notice)
        whole.addWidget(self.tabs, 1)

    def _connect(self) -> None:
        model = self._model
        model.listed.connect(self._on_listed)
        model.changed.connect(self._draw)
        model.ended.connect(self._on_ended)
        model.failed.connect(self.notice.alarm)
        self.op.currentIndexChanged.connect(lambda _: self._on_op())
        self.direction.currentIndexChanged.connect(lambda _: self._on_direction())
        self.table.selectionModel().currentChanged.connect(lambda *_: self._on_selected())

    def _on_listed(self) -> None:
        chosen = self.op.currentData()
        self.op.blockSignals(True)
        self.op.clear()
        for name in dict.fromkeys(result.op for result in self._model.kernels):
            self.op.addItem(name.replace("_", " "), name)
        self.op.setCurrentIndex(max(self.op.findData(chosen or "conv2d"), 0))
        self.op.blockSignals(False)
        states = [f"{name}: {sentence(state) or tr('ready')}" for name, state in self._model.devices.items()]
        self.devices.setText("    ".join(states))
        self._on_op()

    def _on_op(self) -> None:
        op, chosen = self.op.currentData(), self.direction.currentData()
        self.direction.blockSignals(True)
        self.direction.clear()
        for name in dict.fromkeys(result.direction for result in self._model.kernels if result.op == op):
            self.direction.addItem(tr(name.replace("_", " ")), name)
        self.direction.setCurrentIndex(max(self.direction.findData(chosen), 0))
        self.direction.blockSignals(False)
        self.shape.clear()
        self.shape.addItems(self._model.shapes.get(op, []))
        self._on_direction()

    def _on_direction(self) -> None:
        self._model.show(self.op.currentData() or "", self.direction.currentData() or "")
        self.table.selectRow(0)

    def _on_run(self) -> None:
        if self.op.currentData():
            self._model.run(self.op.currentData(), self.direction.currentData(), self.shape.currentText())
            self._on_ended()

    def _on_ended(self) -> None:
        self.run.setEnabled(not self._model.running)
        self.stop.setVisible(self._model.running)

    def _on_selected(self) -> None:
        result: BenchmarkedKernel | None = selected(self.table)
        if result is not None:
            self.place.setText(result.place)
            self.source.setPlainText(result.source)

    def _draw(self) -> None:
        self.chart.show_results(self._model.rows.rows, self._model.intensity, self._model.roofs)
