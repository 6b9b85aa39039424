"""The photos of a cell of the confusion matrix, most confident mistake first; labels can be corrected here."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from app.cards import disease_name
from app.project import photo_folder
from app.translation import count, tr
from app.viewmodels.diagnosis import DiagnosisModel
from app.viewmodels.document import Document
from app.viewmodels.photos import PhotoModel
from app.viewmodels.result import PhotoResult
from app.viewmodels.thumbnails import Thumbnails
from app.widgets.bars import ProbabilityBars
from app.widgets.fields import Slider
from app.widgets.layouts import column, holding, row, splitter
from app.widgets.notice import Notice
from app.widgets.parts import Dialog, button, label
from app.widgets.photo_grid import PhotoGrid, ask_class
from app.widgets.photo_view import PhotoView
from core.data.dataset import VALIDATION
from core.data.manifest import open_manifest
from core.percent import stated
from core.training.run_folder import SPLIT


class GalleryDialog(Dialog):
    """Validation photos of one true class that the network predicts as another (or correctly).

    The best model of the run predicts them (`held_out`) again, so that each has a probability and a class map. Signal:
    `train_asked` after labels were changed.
    """

    train_asked = Signal()

    def __init__(
        self, parent: QWidget, document: Document, pictures: tuple[Thumbnails, Thumbnails], model: Path,
        photos: list[str], truth: str, predicted: str,
    ) -> None:  # fmt: skip
        names = {"truth": disease_name(truth), "predicted": disease_name(predicted)}
        taken = tr("{truth}, predicted as {predicted}", **names)
        title = tr("{truth}, correct", **names) if truth == predicted else taken
        super().__init__(parent, title, 1080, 720)
        self._document, self._predicted, self._pictures, self._asked = document, predicted, pictures[1], photos
        self._results: dict[int, PhotoResult] = {}
        self._model = DiagnosisModel(self)
        self._model.crop = False  # the matrix counts predictions for whole photos
        self.photos = PhotoModel()
        self.grid = PhotoGrid(pictures[0], tr("Photos of this cell"))
        self.grid.setModel(self.photos)
        self.notice = Notice()
        self.state = label("", "muted", wrap=True)
        self.photo = PhotoView(tr("Photo only"))
        self.photo.set_strength(0.55)
        self.bars = ProbabilityBars()
        self.slider = Slider(tr("Opacity of the class map"), value=55)
        self.slider.valueChanged.connect(lambda value: self.photo.set_strength(value / 100))
        self.slider.hide()
        self.reclass = button(tr("Move to class…"), self._on_move)
        self.exclude = button(tr("Exclude photos"), lambda: document.exclude(self._selected(), True))
        self.undo = button(tr("Undo"), document.undo.undo)
        self.train = button(tr("Train again"), self._on_train, "primary")
        self._lay_out()
        self._connect()
        self._model.load(str(model))
        self._model.add(self._asked)
        self._refresh()

    def _lay_out(self) -> None:
        right = holding(column((self.photo, 1), self.slider, self.bars))
        title = label(self.windowTitle(), "heading")
        self.setLayout(column(
            title, self.state, self.notice, (splitter(self.grid, right, sizes=(640, 400)), 1),
            row(self.reclass, self.exclude, self.undo, None, self.train, button(tr("Close"), self.close)), margins=None,
        ))  # fmt: skip

    def _connect(self) -> None:
        self._model.result.connect(self._on_result)
        self._model.failed.connect(self.notice.alarm)
        self._model.busy.connect(lambda waiting, total: self._on_busy())
        self.grid.selectionModel().currentChanged.connect(lambda *_: self._on_current())
        self.grid.selectionModel().selectionChanged.connect(lambda *_: self._on_selection())
        self._document.opened.connect(self.close)  # the rows are of the photos before
        self._document.changed.connect(self._refresh)
        self._document.undo.canUndoChanged.connect(self.undo.setEnabled)
        self.undo.setEnabled(self._document.undo.canUndo())
        self._on_selection()

    def _on_result(self, result: PhotoResult) -> None:
        at = self._document.row_of(result.path)
        if at is not None and result.top and result.top[0][0] == self._predicted:
            self._results[at] = result
            self._refresh()
            if result.maps:
                self._on_current()

    def _refresh(self) -> None:
        if self._document.table is None:
            return
        order = sorted(self._results, key=lambda at: -self._results[at].probability)
        marks = {at: stated(self._results[at].probability) for at in order}
        chosen = set(self._selected().tolist())
        self.photos.show(self._document.table, np.array(order, np.int64), marks)
        for at, row_ in enumerate(order):
            if row_ in chosen:
                self.grid.setCurrentIndex(self.photos.index(at))
        self._refresh_state()

    def _on_busy(self) -> None:
        """Show the first photo when all photos are there."""
        self._refresh_state()
        if not self._model.working and len(self.photos.rows) and not self.grid.currentIndex().isValid():
            self.grid.setCurrentIndex(self.photos.index(0))

    def _refresh_state(self) -> None:
        looking = self._model.working or not self._model.ready
        text = count(len(self._results), "{n} photo", "{n} photos") + tr(", most confident first.")
        waiting = tr("Evaluating the {n} validation photos of this class with the best model…", n=len(self._asked))
        self.state.setText(waiting if looking else text)

    def _selected(self) -> np.ndarray:
        return self.photos.rows[self.grid.selected_rows()]

    def _on_selection(self) -> None:
        some = self.grid.selectionModel().hasSelection()
        self.reclass.setEnabled(some)
        self.exclude.setEnabled(some)

    def _on_current(self) -> None:
        index = self.grid.currentIndex()
        if not index.isValid():
            return
        result = self._results[int(self.photos.rows[index.row()])]
        self.photo.request(self._pictures, result.path)
        if self._predicted not in result.maps:
            self._model.request_map(result, self._predicted)
        self.photo.show_map(result.maps.get(self._predicted))
        self.slider.setVisible(self._predicted in result.maps)
        self.bars.show_top(result.top)

    def _on_move(self) -> None:
        table = self._document.table
        if table is not None and (name := ask_class(self, table.classes)):
            self._document.move(self._selected(), name)

    def _on_train(self) -> None:
        self.close()
        self.train_asked.emit()


def held_out(folder: Path, data: str, truth: str) -> tuple[list[str], list[str]]:
    """Files and SHA-256 of the validation photos of a class, from the split file of the run, which was trained on
    `data`. Raises DataError."""
    photos, root = open_manifest(folder / SPLIT, label="label", columns=("sha256",)), photo_folder(data)
    rows = [row for row in np.flatnonzero(photos.splits == VALIDATION).tolist() if photos.label(row) == truth]
    contents = [photos.columns["sha256"][row] for row in rows]
    return [os.path.normpath(os.path.join(root, photos.paths[row])) for row in rows], contents
