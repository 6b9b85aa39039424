"""Suspicious labels one by one: the photo, the reason, and keys to keep, correct or skip the label."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QFileDialog, QListWidget, QSizePolicy, QWidget

from app.cards import disease_name
from app.translation import count, sentence, tr
from app.viewmodels.review import ReviewModel, SuspectPhoto
from app.viewmodels.thumbnails import Thumbnails
from app.widgets.layouts import TAB, Flow, Wrapping, column, row
from app.widgets.notice import follow_stages
from app.widgets.parts import Dialog, ask_target, button, label, named, progress_bar
from app.widgets.photo_view import PhotoView
from core.diagnosis.label_review import NEIGHBOURS
from core.errors import StorageError
from core.percent import percent, stated
from core.storage import write_file
from core.text import csv_text


class ReviewPane(Wrapping):
    """Signals: `class_asked()` for another class than the suggested one; `skipped()`."""

    class_asked = Signal()
    skipped = Signal()

    def __init__(self, review: ReviewModel, pictures: Thumbnails, model: Callable[[], str]) -> None:
        super().__init__()
        self._review, self._pictures, self._model = review, pictures, model
        self._shown: SuspectPhoto | None = None
        self.state = label("", "muted", wrap=True)
        self.bar = progress_bar(tr("Progress of the review"))
        self.start = button(tr("Review labels"), lambda: review.start(model()), "primary")
        self.stop = button(tr("Cancel"), review.cancel)
        self.next = button(tr("What to label next…"), self._on_next,
                           tip=tr("Chooses from a folder of unlabelled photos those that would teach the model most"))
        self.photo = PhotoView(tr("Suspicious photo"))
        self.photo.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Ignored)  # the buttons stay in sight
        self.reason = label("", wrap=True)
        self.reason.setMinimumWidth(1)  # else a long word widens it beyond the pane
        self.relabel = button("", self._on_relabel, tip=tr("Give the photo the suggested class ({key})", key="R"))
        self.relabel.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)  # names of classes are long
        self.keep = button(tr("Keep label"), self._on_keep, tip=tr("The label is correct ({key})", key="K"))
        self.other = button(tr("Other class…"), self.class_asked.emit,
                            tip=tr("Give the photo another class ({key})", key="O"))  # fmt: skip
        self.skip = button(tr("Skip"), self.skipped.emit, tip=tr("Decide later ({key})", key="S"))
        self.save = button(tr("Save as manifest…"), self._on_save,
                           tip=tr("A CSV file with the corrected labels, to train on elsewhere"))  # fmt: skip
        self._decisions = (self.photo, self.reason, self.relabel, self.keep, self.other, self.skip)
        self._lay_out()
        follow_stages(review, self.bar, self.state)
        review.changed.connect(self.refresh)
        review.chosen.connect(self._on_chosen)
        review.ended.connect(self.refresh)
        self.show_suspect(None)
        self.refresh()

    def _lay_out(self) -> None:
        decide = (self.keep, self.other, self.skip)
        self.setLayout(column(
            self.state, self.bar, Flow(self.start, self.next, self.stop), (self.photo, 1), self.reason,
            self.relabel, Flow(*decide, fill=decide), (None, 0), self.save, margins=TAB,
        ))  # fmt: skip

    def add_keys(self, *places: QWidget) -> None:
        """Let the keys work while one of these, or a widget in it, has the keyboard focus, and this pane is shown."""
        keys = {"R": self.relabel.click, "K": self.keep.click, "O": self.other.click, "S": self.skip.click,
                "U": self._review.undo.undo}  # fmt: skip
        for place in places:
            for key, act in keys.items():
                shortcut = QShortcut(QKeySequence(key), place, context=Qt.ShortcutContext.WidgetWithChildrenShortcut)
                shortcut.activated.connect(lambda act=act: act() if self.isVisible() else None)

    def refresh(self) -> None:
        review = self._review
        for widget, of_work in ((self.start, False), (self.next, False), (self.bar, True), (self.stop, True)):
            widget.setVisible(review.has_process == of_work)
        left = len(review.suspects())
        self.save.setVisible(bool(review.photos))
        if review.has_process:
            return
        if not review.photos:
            self.state.setText(tr("Finds labels that are probably wrong. You keep or correct them one by one."))
            return
        agreement = tr("{share} of {n} photos are predicted as labelled.", share=percent(review.agreement),
                       n=f"{review.photos:,}")  # fmt: skip
        suspects = count(left, "{n} suspicious label is left.", "{n} suspicious labels are left.")
        parts = [agreement, suspects if left else tr("No suspicious label is left."),
                 tr("Training uses the corrections.")]  # fmt: skip
        if review.few:
            parts.append(tr("Not reviewed, because they have too few leaves: {classes}.",
                            classes=", ".join(map(disease_name, review.few))))  # fmt: skip
        if review.learned:
            parts.append(tr("The model was trained on {n} of these photos: fewer wrong labels are found there.",
                            n=f"{review.learned:,}"))  # fmt: skip
        self.state.setText(" ".join(parts))

    def show_suspect(self, suspect: SuspectPhoto | None, path: str = "") -> None:
        """Show a suspect and ask for a decision; None hides both."""
        self._shown = suspect
        for widget in self._decisions:
            widget.setVisible(suspect is not None)
        if suspect is None:
            return
        self.photo.request(self._pictures, path)
        suggested = disease_name(suspect.suggested)
        text = tr("Labelled {label}. Prediction: {suggested}, {probability}. {n} of the {total} most similar photos "
                  "agree with the prediction.")
        self.reason.setText(text.format(label=disease_name(suspect.label), suggested=suggested,
                                        probability=stated(suspect.probability), n=suspect.agreeing, total=NEIGHBOURS))
        verb, elide = tr("Relabel as {name}", name=suggested), Qt.TextElideMode.ElideMiddle
        self.relabel.setText(self.fontMetrics().elidedText(verb, elide, self.width() - 60))  # its margins
        self.relabel.setAccessibleName(verb)

    def _on_next(self) -> None:
        chosen = QFileDialog.getExistingDirectory(self, tr("Unlabelled photos"))
        if chosen:
            self._review.start(self._model(), chosen)

    def _on_chosen(self, paths: list[str]) -> None:
        NextPhotosDialog(self, self._pictures, paths).open()

    def _on_relabel(self) -> None:
        if self._shown is not None:
            self._review.relabel(self._shown.row, self._shown.suggested)

    def _on_keep(self) -> None:
        if self._shown is not None:
            self._review.keep(self._shown.row)

    def _on_save(self) -> None:
        chosen = ask_target(self, tr("Save as manifest"), "corrected.csv", "CSV (*.csv)")
        if chosen:
            self._review.save(chosen)


class NextPhotosDialog(Dialog):
    """Photos to label next, the most informative first."""

    def __init__(self, parent: QWidget, pictures: Thumbnails, paths: Sequence[str]) -> None:
        super().__init__(parent, tr("What to label next"), 760, 560)
        self._paths = list(paths)
        self.photo = PhotoView(tr("Photo to label"))
        self.list = named(QListWidget(), tr("Photos to label next"))
        self.list.addItems([Path(path).name for path in paths])
        self.list.currentRowChanged.connect(lambda at: self.photo.request(pictures, self._paths[at]))
        self.save = button(tr("Save list…"), self._on_save)
        self.saved = label("", "muted", wrap=True)
        reason = tr("Labels of these photos teach the model most: it is unsure about them, and they differ from one "
                    "another. The first ones matter most.")  # fmt: skip
        self.setLayout(column(
            label(reason, "muted", wrap=True), (row(self.list, (self.photo, 1)), 1),
            row(self.save, (self.saved, 1), button(tr("Close"), self.close)), margins=None,
        ))  # fmt: skip
        self.list.setCurrentRow(0)

    def _on_save(self) -> None:
        chosen = ask_target(self, tr("Save list"), "label-next.csv", "CSV (*.csv)")
        if chosen:
            try:
                write_file(Path(chosen), csv_text([["path"], *([path] for path in self._paths)]))
                self.saved.setText(tr("Saved as {name}.", name=chosen))
            except StorageError as error:
                self.saved.setText(sentence(str(error)))
