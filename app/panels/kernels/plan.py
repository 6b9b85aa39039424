"""The tab of a network's plan: which kernel each step runs on a GPU, and why."""

from __future__ import annotations

from typing import Final, final

from PySide6.QtWidgets import QCheckBox, QVBoxLayout, QWidget

from app.translation import tr
from app.viewmodels.kernel_benchmark import KernelBenchmark
from app.viewmodels.plan_choices import columns, rows_of, summary
from app.viewmodels.rows_model import RowsModel
from app.widgets.fields import ComboBox, SpinBox
from app.widgets.naming import named
from app.widgets.parts import GAP, button, label, row
from app.widgets.table_view import sorted_view

BATCHES: Final = (1, 4096, 32)
"""Smallest, largest and first batch size."""
REASON: Final = 7
"""The column of reasons."""


@final
class PlanPanel(QWidget):
    """Choose a network, a batch and a GPU; read every candidate of every step."""

    def __init__(self, model: KernelBenchmark) -> None:
        super().__init__()
        self._model = model
        self.network, self.precision, self.gpu = (
            named(ComboBox(), name) for name in (tr("Model"), tr("Precision"), tr("GPU"))
        )
        self.batch = named(SpinBox(), tr("Batch size"))
        self.batch.setRange(*BATCHES[:2])
        self.batch.setValue(BATCHES[2])
        self.training, self.chosen = QCheckBox(tr("Training step")), QCheckBox(tr("Chosen kernels only"))
        self.ask = button(tr("Show choices"), self._on_asked, "primary")
        self.rows = RowsModel(columns(), self)
        self.table = sorted_view(self.rows, tr("Kernels of the plan"), stretch=REASON)
        about = tr("Shows every kernel that was considered for each step. No GPU is needed.")
        self.summary = label(about, "muted", wrap=True)
        self._lay_out()
        model.listed.connect(self._on_listed)
        model.explained.connect(self._show)
        model.failed.connect(lambda *_: self.ask.setEnabled(True))
        self.chosen.toggled.connect(lambda _: self._show())
        self._on_listed()

    def _lay_out(self) -> None:
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, GAP, 0, 0)
        layout.setSpacing(GAP)
        layout.addLayout(row(
            label(tr("Model"), "muted"), self.network, label(tr("Batch size"), "muted"), self.batch,
            label(tr("GPU"), "muted"), self.gpu, None,
        ))  # fmt: skip
        layout.addLayout(row(label(tr("Precision"), "muted"), self.precision, self.training, None, self.ask))
        layout.addLayout(row(self.summary, None, self.chosen))
        layout.addWidget(self.table, 1)

    def _on_listed(self) -> None:
        """What there is to choose from is known once the process has started."""
        if not self.network.count():
            self.network.addItems(self._model.networks)
            self.precision.addItems(self._model.precisions)
            for name, capability in self._model.gpus:
                self.gpu.addItem(f"{tr(name)} {capability}".strip(), capability)
        self.ask.setEnabled(bool(self._model.networks))

    def _on_asked(self) -> None:
        self.ask.setEnabled(False)
        self.summary.setText(tr("Comparing the kernels of each step…"))
        self._model.explain(
            model=self.network.currentText(), batch=self.batch.value(), precision=self.precision.currentText(),
            training=self.training.isChecked(), capability=self.gpu.currentData(),
        )  # fmt: skip

    def _show(self) -> None:
        answer = self._model.explanation
        self.ask.setEnabled(True)
        if answer:
            self.rows.show_rows(rows_of(answer["explained"], self.chosen.isChecked()))
            self.summary.setText(summary(answer))
