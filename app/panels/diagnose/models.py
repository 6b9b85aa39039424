"""The list of models: choose, rename, adapt or import one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFileDialog, QInputDialog, QWidget

from app import paths
from app.panels.diagnose.adaptation import AdaptationDialog
from app.paths import Settings
from app.translation import sentence, tr
from app.viewmodels.model_list import IMPORTED, SHIPPED, KnownModel, columns, forget_import, keep_import, list_models
from app.viewmodels.rows_model import RowsModel
from app.widgets.layouts import column, row
from app.widgets.notice import Notice
from app.widgets.parts import Dialog, button, label
from app.widgets.table_view import Table
from core.diagnosis.model_identity import read_identity, rename_model
from core.errors import LeafClinicError


class ModelsDialog(Dialog):
    """Signals: `chosen(path)`, `renamed(ModelIdentity)`."""

    chosen = Signal(str)
    renamed = Signal(object)

    def __init__(self, parent: QWidget, settings: Settings, in_use: str) -> None:
        super().__init__(parent, tr("Models"), 760, 420)
        self._settings = settings
        self.rows = RowsModel(columns(), self)
        self.table = Table(self.rows, tr("Models"))
        self.table.selectionModel().currentChanged.connect(lambda *_: self._on_selection())
        self.notice = Notice()
        self.purpose = label("", "muted", wrap=True)
        use = self._with_selected(lambda one: self._choose(one.path))
        self._use = button(tr("Diagnose with this model"), use, "primary")
        self._use.setDefault(True)
        self.table.activated.connect(self._use.click)
        self._rename = button(tr("Rename…"), self._with_selected(self._on_rename))
        self._forget = button(tr("Remove from the list"), self._with_selected(self._on_forget),
                              tip=tr("The file stays where it is"))  # fmt: skip
        self._adapt = button(tr("Adapt to my farm…"), self._with_selected(self._on_adapt),
                             tip=tr("From about 10 photos of each class"))  # fmt: skip
        importing = button(tr("Import a model file…"), self._on_import)
        close = button(tr("Close"), self.reject)
        self.setLayout(column(
            self.notice, (self.table, 1), self.purpose,
            row(importing, self._rename, self._forget, None), row(self._adapt, None, close, self._use), margins=None,
        ))  # fmt: skip
        self._refresh(in_use)
        self.table.setFocus()  # for the arrow keys; Enter chooses from there, too

    def _refresh(self, path: str) -> None:
        self.notice.hide()
        models = list_models(self._settings)
        self.rows.show_rows(models)
        at = next((number for number, model in enumerate(models) if model.path == path), 0)
        self.table.selectRow(max(self.rows.row_of(at), 0))
        self._on_selection()

    def _on_selection(self) -> None:
        one: KnownModel | None = self.table.selected()
        self.purpose.setText(sentence(one.purpose) if one is not None else "")
        self._use.setEnabled(one is not None)
        self._adapt.setEnabled(one is not None)
        self._rename.setEnabled(one is not None and one.origin != SHIPPED)
        self._forget.setEnabled(one is not None and one.origin == IMPORTED)

    def _with_selected(self, act: Callable[[KnownModel], object]) -> Callable[[], object]:
        return lambda: act(one) if (one := self.table.selected()) is not None else None

    def _on_adapt(self, one: KnownModel) -> None:
        dialog = AdaptationDialog(self, self._settings, one)
        dialog.adapted.connect(self._refresh)
        dialog.chosen.connect(self._choose)
        dialog.open()

    def _choose(self, path: str) -> None:
        self.accept()
        self.chosen.emit(path)

    def _on_rename(self, one: KnownModel) -> None:
        text = tr("Name of the model, as diagnoses and reports show it:")
        name, fine = QInputDialog.getText(self, tr("Rename the model"), text, text=one.identity.name)
        if not fine:
            return
        try:
            rename_model(Path(one.path), name)
        except LeafClinicError as error:
            self.notice.alarm(str(error))
            return
        self.renamed.emit(read_identity(Path(one.path)))
        self._refresh(one.path)

    def _on_import(self) -> None:
        kinds = tr("Models (*.safetensors)")
        found, _ = QFileDialog.getOpenFileName(self, tr("Import a model file"), str(paths.home() / "runs"), kinds)
        if not found:
            return
        try:
            read_identity(Path(found))
        except LeafClinicError as error:
            self.notice.alarm(str(error))
            return
        keep_import(self._settings, found)
        self._refresh(found)

    def _on_forget(self, one: KnownModel) -> None:
        forget_import(self._settings, one.path)
        self._refresh("")
