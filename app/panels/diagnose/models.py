"""The list of models to diagnose with: choose, rename, import."""

from __future__ import annotations

from pathlib import Path
from typing import final

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QDialog, QFileDialog, QInputDialog, QVBoxLayout, QWidget

from app import paths
from app.settings import Settings
from app.theme import Theme
from app.translation import sentence, tr
from app.viewmodels.model_list import IMPORTED, SHIPPED, KnownModel, columns, forget_import, keep_import, list_models
from app.viewmodels.rows_model import RowsModel
from app.viewmodels.sorted_rows import SortedRows
from app.widgets.notice import Notice
from app.widgets.parts import button, fit, label, row
from app.widgets.table_view import selected, sorted_view
from core.diagnosis.model_identity import read_identity, rename_model
from core.errors import LeafClinicError


@final
class ModelsDialog(QDialog):
    """Signals: `chosen(path)`, `renamed(ModelIdentity)`."""

    chosen = Signal(str)
    renamed = Signal(object)

    def __init__(self, parent: QWidget, settings: Settings, theme: Theme, in_use: str) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("Models"))
        fit(self, 760, 420)
        self._settings = settings
        self.rows = RowsModel(columns(), self)
        self.shown = SortedRows(self.rows)
        self.table = sorted_view(self.shown, tr("Models"))
        self.table.selectionModel().currentChanged.connect(lambda *_: self._on_selection())
        self.table.activated.connect(lambda _: self._on_use())
        self.notice = Notice(theme)
        self.purpose = label("", "muted", wrap=True)
        self._use = button(tr("Diagnose with this model"), self._on_use, "primary")
        self._use.setDefault(True)
        self._rename = button(tr("Rename…"), self._on_rename)
        self._forget = button(tr("Remove from the list"), self._on_forget, tip=tr("The file stays where it is"))
        importing = button(tr("Import a model file…"), self._on_import)
        layout = QVBoxLayout(self)
        about = tr("The models that came with the program, models you trained, and model files you received.")
        layout.addWidget(label(about, "muted", wrap=True))
        layout.addWidget(self.notice)
        layout.addWidget(self.table, 1)
        layout.addWidget(self.purpose)
        layout.addLayout(row(importing, self._rename, self._forget, None, button(tr("Close"), self.reject), self._use))
        self._refresh(in_use)

    def _refresh(self, path: str) -> None:
        """Read the list again and select this file."""
        models = list_models(self._settings)
        self.rows.show_rows(models)
        at = next((number for number, model in enumerate(models) if model.path == path), 0)
        self.table.selectRow(max(self.shown.row_of(at), 0))
        self._on_selection()

    def _one(self) -> KnownModel | None:
        found: KnownModel | None = selected(self.table)
        return found

    def _on_selection(self) -> None:
        one = self._one()
        self.purpose.setText(sentence(one.purpose) if one is not None else "")
        self._use.setEnabled(one is not None)
        self._rename.setEnabled(one is not None and one.origin != SHIPPED)
        self._forget.setEnabled(one is not None and one.origin == IMPORTED)

    def _on_use(self) -> None:
        one = self._one()
        if one is not None:
            self.accept()
            self.chosen.emit(one.path)

    def _on_rename(self) -> None:
        one = self._one()
        if one is None:
            return
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
        found, _ = QFileDialog.getOpenFileName(self, tr("Import a model file"), str(paths.folder("runs")), kinds)
        if not found:
            return
        try:
            read_identity(Path(found))
        except LeafClinicError as error:
            self.notice.alarm(str(error))
            return
        keep_import(self._settings, found)
        self._refresh(found)

    def _on_forget(self) -> None:
        one = self._one()
        if one is not None:
            forget_import(self._settings, one.path)
            self._refresh("")
