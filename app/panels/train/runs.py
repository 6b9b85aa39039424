"""Earlier runs: resume, compare curves, diagnose, rename or delete."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QInputDialog, QPushButton, QWidget

from app.translation import count, tr
from app.viewmodels.row_order import Column
from app.viewmodels.rows_model import RowsModel
from app.viewmodels.runs import RunSummary, delete_run, list_runs, rename_run
from app.widgets.layouts import TAB, Flow, column, holding, stack
from app.widgets.parts import EmptyPlace, button, confirm, open_file
from app.widgets.table_view import Table
from core.errors import LeafClinicError, StorageError
from core.percent import percent


class RunsPane(QWidget):
    """Signals: `chosen_over(list)` runs to compare; `resume_asked`, `result_asked` a folder; `diagnose_asked` a model
    file; `refused` a sentence. `going` is the folder of the active run, which cannot be deleted."""

    chosen_over = Signal(list)
    resume_asked = Signal(str)
    result_asked = Signal(str)
    diagnose_asked = Signal(str)
    refused = Signal(str)

    def __init__(self, place: Callable[[], Path], going: Callable[[], str]) -> None:
        super().__init__()
        self._place, self._going = place, going
        self.model = RowsModel(_columns(going), self)
        self.table = Table(self.model, tr("Runs"), stretch=6, several=True)
        self.table.horizontalHeader().setMinimumSectionSize(70)
        self.table.selectionModel().selectionChanged.connect(lambda *_: self._on_selection())
        self._resume = self._button(tr("Resume"), lambda run: self.resume_asked.emit(run.folder))
        self._diagnose = self._button(tr("Diagnose with this model"),
                                      lambda run: self.diagnose_asked.emit(run.model_path))  # fmt: skip
        self._result = self._button(tr("Show its result"), lambda run: self.result_asked.emit(run.folder))
        self._over = button(tr("Compare curves"), self._on_over)
        self._rename = self._button(tr("Rename…"), self._on_rename)
        self._delete = button(tr("Delete…"), self._on_delete)
        self._show = self._button(tr("Open folder"), lambda run: open_file(run.folder), "flat")
        tools = Flow(self._resume, self._result, self._diagnose, self._over, self._rename, self._delete, self._show)
        empty = EmptyPlace("train", tr("No runs yet"), tr(
            "Every training is saved as a run. Runs can be resumed, compared and used for diagnosis here."))
        self._stack = stack(empty, holding(column((self.table, 1), tools)))
        self.setLayout(column(self._stack, margins=TAB))

    def refresh(self, _event: object = None) -> None:
        """Read the folder of runs again. The selection is kept if it has the same runs; else the newest is selected."""
        runs, shown = list_runs(self._place()), [run.folder for run in self.model.rows]
        show = self.model.replace_all if [run.folder for run in runs] == shown else self.model.show_rows
        show(runs)
        if not self.selected_runs():
            self.table.selectRow(self.model.row_of(0))
        self._stack.setCurrentIndex(1 if runs else 0)
        self._on_selection()

    showEvent = refresh  # noqa: N815 (Qt's name): other programs may have started runs, too

    def selected_runs(self) -> list[RunSummary]:
        return self.table.selected_rows()

    def _present_runs(self) -> list[RunSummary]:
        """The selected runs; none, with a message, if another program moved or deleted one of them."""
        runs = self.selected_runs()
        for run in runs:
            if not os.path.isdir(run.folder):
                self.refused.emit(tr("The run {name} was moved or deleted.", name=run.name))
                self.refresh()
                return []
        return runs

    def _button(self, text: str, act: Callable[[RunSummary], object], kind: str = "") -> QPushButton:
        def click() -> None:
            for run in self._present_runs():
                act(run)

        return button(text, click, kind)

    def _on_selection(self) -> None:
        runs: Sequence[RunSummary] = self.selected_runs()
        self._resume.setEnabled(len(runs) == 1 and not runs[0].finished and not self._going())
        self._diagnose.setEnabled(len(runs) == 1 and bool(runs[0].model_path))
        self._result.setEnabled(len(runs) == 1 and runs[0].finished)
        self._over.setEnabled(bool(runs))
        self._rename.setEnabled(len(runs) == 1)
        self._delete.setEnabled(bool(runs) and self._going() not in {run.folder for run in runs})
        self._show.setEnabled(len(runs) == 1)

    def _on_over(self) -> None:
        if runs := self._present_runs():
            self.chosen_over.emit(runs)

    def _on_rename(self, run: RunSummary) -> None:
        name, fine = QInputDialog.getText(self, tr("Rename the run"), tr("Name of the run:"), text=run.name)
        if fine and name.strip():
            try:
                rename_run(Path(run.folder), name)
            except StorageError as error:
                self.refused.emit(str(error))
            self.refresh()

    def _on_delete(self) -> None:
        if not (runs := self._present_runs()):
            return
        many = count(len(runs), "Delete {n} run?", "Delete {n} runs?")
        lost = tr("The model, the report and the curves are deleted permanently. Your photos are kept.")
        if not confirm(self, many, ", ".join(run.name for run in runs) + "\n\n" + lost, tr("Delete")):
            return
        try:
            for run in runs:
                delete_run(Path(run.folder))
        except LeafClinicError as error:
            self.refused.emit(str(error))
        self.refresh()


def _columns(going: Callable[[], str]) -> list[Column]:
    def state(run: RunSummary) -> str:
        if run.folder == going():
            return tr("running")
        return tr("finished") if run.finished else tr("can be resumed")

    return [
        Column(tr("Run"), lambda r: r.name, tip=lambda r: r.folder),
        Column(tr("Dataset"), lambda r: r.dataset),
        Column(tr("Epochs"), lambda r: f"{r.epochs_done} / {r.epochs}", lambda r: r.epochs_done, right=True),
        Column(tr("Validation"), lambda r: percent(r.accuracy), lambda r: r.accuracy or 0.0, right=True,
               help=tr("After the best epoch; of several labels, all must be right at threshold 0.5.")),
        Column(tr("Test"), lambda r: percent(r.test), lambda r: r.test or 0.0, right=True),
        Column(tr("State"), state),
        Column(tr("Network"), lambda r: r.model),
    ]  # fmt: skip
