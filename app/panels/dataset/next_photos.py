"""The unlabelled photos that are worth labelling next, as a list that can be saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import final

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QListWidget, QVBoxLayout, QWidget

from app.crash import sentence
from app.save_file import ask_target
from app.translation import tr
from app.viewmodels.thumbnails import Thumbnails
from app.widgets.naming import named
from app.widgets.parts import button, fit, label, row
from app.widgets.photo_view import PhotoView
from core.errors import StorageError
from core.storage import write_file
from core.text import csv_text


@final
class NextPhotosDialog(QDialog):
    """Photos to label next, the most informative first. `fail(sentence, details)` shows why a list was not saved."""

    def __init__(
        self, parent: QWidget, pictures: Thumbnails, paths: Sequence[str], fail: Callable[[str, str], None]
    ) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(tr("What to label next"))
        fit(self, 760, 560)
        self._pictures, self._paths, self._fail = pictures, list(paths), fail
        self.photo = PhotoView(tr("Photo to label"))
        self.list = named(QListWidget(), tr("Photos to label next"))
        self.list.addItems([Path(path).name for path in paths])
        self.list.currentRowChanged.connect(lambda at: self.photo.wish(pictures, self._paths[at]))
        self.save = button(tr("Save list…"), self._on_save)
        layout = QVBoxLayout(self)
        reason = tr("Labels of these photos teach the model most: it is unsure about them, and they differ from one "
                    "another. The first ones matter most.")  # fmt: skip
        layout.addWidget(label(reason, "muted", wrap=True))
        beside = row(self.list, self.photo)
        beside.setStretch(1, 1)
        layout.addLayout(beside, 1)
        layout.addLayout(row(self.save, None, button(tr("Close"), self.close)))
        self.list.setCurrentRow(0)

    def _on_save(self) -> None:
        start = str(Path.home() / "label-next.csv")
        chosen, _ = ask_target(self, tr("Save list"), start, "CSV (*.csv)")
        if chosen:
            try:
                write_file(Path(chosen), csv_text([["path"], *([path] for path in self._paths)]))
            except StorageError as error:
                self._fail(sentence(error), "")
