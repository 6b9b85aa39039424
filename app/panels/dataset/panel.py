"""The Dataset page: open photos, inspect them, correct problems."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from PySide6.QtCore import QModelIndex, Qt, QTimer
from PySide6.QtWidgets import QLabel, QWidget

from app.actions import Actions
from app.cards import disease_name
from app.panels.dataset.augmentation import AugmentationPane
from app.panels.dataset.classes import ClassesPane
from app.panels.dataset.examination import HealthPane, SplitPane
from app.panels.dataset.review import ReviewPane
from app.paths import Settings
from app.translation import count, tr
from app.viewmodels.document import Document
from app.viewmodels.examination import ExaminationModel
from app.viewmodels.photos import PATH, PhotoModel
from app.viewmodels.review import ReviewModel
from app.viewmodels.thumbnails import Thumbnails
from app.widgets.fields import ComboBox, SearchField
from app.widgets.layouts import GAP, PAGE, Flow, centred, column, holding, row, stack
from app.widgets.notice import Notice, show_written
from app.widgets.parts import EmptyPlace, action_button, button, header, label, named, progress_bar, side_width, tabs
from app.widgets.photo_grid import PhotoGrid, ask_class
from app.widgets.photo_view import PhotoDialog
from core.ops.contract import Array
from core.percent import stated

SEARCH_MS: Final = 150
"""Pause in typing after which the search starts."""
RECENT: Final = 4
"""Datasets opened before that are offered."""


class DatasetPanel(QWidget):
    """Left: classes, quality, split, augmentation. Right: the photos chosen on the left."""

    def __init__(
        self, document: Document, examination: ExaminationModel, review: ReviewModel, pane: ReviewPane,
        actions: Actions, pictures: tuple[Thumbnails, Thumbnails], settings: Settings,
        split_settings: Callable[[], dict[str, Any]],
    ) -> None:  # fmt: skip
        super().__init__()
        self._document, self._actions, self._large = document, actions, pictures[1]
        self._examination, self._review, self.review = examination, review, pane
        self._place = 0
        self._listed: Array | None = None
        self._listed_as = ""
        self._marks: dict[int, str] = {}
        self.notice = Notice()
        self.classes = ClassesPane()
        self.photos = PhotoModel()
        self.grid = PhotoGrid(pictures[0], tr("Photos"))
        self.grid.setModel(self.photos)
        self.health = HealthPane(examination, split_settings)
        self.split = SplitPane(examination)
        self.augmentation = AugmentationPane(self.current_path)
        self.shown = label("", "muted", wrap=True)
        self.search = SearchField(tr("Search in names and folders"), tr("Search photos"))
        self.search.setMinimumWidth(190)
        self.which = named(ComboBox(), tr("Which photos"))
        self.which.fill(((tr("All photos"), "all"), (tr("In use"), "used"), (tr("Excluded"), "excluded")))
        self._typing = QTimer(self, singleShot=True, interval=SEARCH_MS)
        self._typing.timeout.connect(self._on_search)
        self._lay_out(actions, settings)
        self._connect()
        self._on_changed()

    def _lay_out(self, actions: Actions, settings: Settings) -> None:
        self.side = tabs(
            tr("About these photos"), (self.classes, tr("Classes")), (self.health, tr("Quality")),
            (self.review, tr("Review")), (self.split, tr("Split")), (self.augmentation, tr("Preview")),
        )  # fmt: skip
        self.side.tabBar().setProperty("role", "narrow")  # five names in a third of the page
        self._move = button(tr("Move to class…"), self._on_move, tip=tr("Give the selected photos another class"))
        undo, redo = action_button(actions.undo, "undo"), action_button(actions.redo, "redo")
        right = column(
            row(self.search, self.which),
            row((self.shown, 1), Flow(action_button(actions.exclude, "exclude"), self._move)),
            (self.grid, 1), spacing=8,
        )  # fmt: skip
        self.empty = EmptyPlace(
            "dataset", tr("No photos yet"),
            tr("Drop a folder here, or open one. Its subfolders are the classes: one for each disease and one for "
               "healthy leaves. Your files are never changed. Single photos dropped here are diagnosed."),
            action_button(actions.open_folder, "folder", primary=True), action_button(actions.open_demo),
        )  # fmt: skip
        self.empty.column.addLayout(centred(action_button(actions.diagnose_photos, "diagnose")))
        self._recent(settings)
        self.stack = stack(self.empty, self._waiting(), holding(row(self.side, (right, 1), spacing=16)))
        self.head = header(tr("Dataset"), "", undo, redo, action_button(actions.open_folder, "folder"))
        self.setLayout(column(self.head, self.notice, (self.stack, 1), spacing=GAP, margins=PAGE))

    def _waiting(self) -> QWidget:
        self.busy, self.bar = label("", "heading"), progress_bar(tr("Progress of the scan"), 320)
        self.cancel = button(tr("Cancel"), self._document.give_up)
        return holding(centred(self.busy, self.bar, self.cancel))

    def _recent(self, settings: Settings) -> None:
        if known := settings.paths("recent")[:RECENT]:
            recent = (button(Path(path).name, partial(self._document.open, path), "flat", path) for path in known)
            self.empty.column.addSpacing(16)
            self.empty.column.addLayout(centred(label(tr("Recent"), "caption"), *recent))

    def _connect(self) -> None:
        document = self._document
        document.opening.connect(self._on_opening)
        document.opened.connect(self._on_opened)
        document.progress.connect(self._on_progress)
        document.drawing.connect(self._on_drawing)
        for news in (document.failed, document.given_up, document.changed):
            news.connect(self._on_changed)
        document.search.found.connect(self._on_search)
        self.classes.chosen.connect(lambda _: self._on_filter())
        self.classes.renamed.connect(document.rename)
        self.health.opened.connect(self.show_rows)
        self.review.add_keys(self.grid, self.side)  # with its tab bar, which has the focus after a review
        self.review.class_asked.connect(self._on_move)
        self.review.skipped.connect(lambda: self._show_suspects(1))
        self._review.changed.connect(self._show_suspects)  # not lambdas: the page may go before the review
        self._review.failed.connect(self.notice.alarm)
        self._review.saved.connect(self._on_saved)
        self.side.currentChanged.connect(self._on_tab)
        self._examination.failed.connect(self.notice.alarm)
        self.search.textChanged.connect(lambda _: self._typing.start())
        self.which.currentIndexChanged.connect(lambda _: self._show_suspects() if self._marks else self._on_filter())
        self.grid.activated.connect(self._on_activated)
        self.grid.selectionModel().selectionChanged.connect(lambda *_: self._on_selection())
        # Qt signals no cleared selection. Queued: buttons hidden until the next suspect is shown would lose the focus
        self.photos.modelReset.connect(self._on_selection)
        self.photos.modelReset.connect(self._on_current, Qt.ConnectionType.QueuedConnection)
        self.grid.selectionModel().currentChanged.connect(lambda *_: self._on_current())
        self._actions.exclude.triggered.connect(lambda: document.exclude(self.selection(), True))
        self._actions.include.triggered.connect(lambda: document.exclude(self.selection(), False))
        self._on_selection()

    def resizeEvent(self, event: object) -> None:  # noqa: N802 (Qt's name)
        self.side.setFixedWidth(side_width(self))

    def selection(self) -> Array:
        return self.photos.rows[self.grid.selected_rows()]

    def current_path(self) -> str:
        """The file of the current photo, "" if there is none."""
        index = self.grid.currentIndex()
        return str(index.data(PATH)) if index.isValid() else ""

    def show_rows(self, rows: Array, what: str, marks: dict[int, str] | None = None) -> None:
        """Show these photos in this order (of a finding, or suspicious labels) until the filter changes."""
        self._listed, self._listed_as, self._marks = np.asarray(rows, np.int64), f"{what}: ", marks or {}
        self.refresh()

    def _show_suspects(self, skipped: int = 0) -> None:
        """List the open suspects if the Review tab is shown, and select the one in its place; else all photos."""
        place, shown = self._place + skipped, self.side.currentWidget() is self.review
        suspects = self._review.suspects() if shown else []
        if not suspects:
            if self._marks or shown and self._listed is not None:
                self._on_filter()
            self._on_current()
            return
        before = set(self._marks)
        self.show_rows(np.array([one.row for one in suspects], np.int64), tr("Suspicious labels"),
                       {one.row: stated(one.probability) for one in suspects})  # fmt: skip
        back = [at for at, row_ in enumerate(self.photos.rows.tolist()) if before and row_ not in before]
        place = back[0] if back else place  # an undone decision is shown
        last = len(self.photos.rows) - 1  # -1 where no suspect passes the search
        self._place = min(place, max(last, 0))
        if last >= 0:
            self.grid.setCurrentIndex(self.photos.index(self._place))
            self.grid.scrollTo(self.grid.currentIndex())
            self._on_current()  # its classes may have other names

    def _on_saved(self, path: str) -> None:
        show_written(self.notice, [path])

    def _on_tab(self) -> None:
        tab = self.side.currentWidget()
        if tab is self.review:
            self._show_suspects()
        elif self._marks or self._listed is not None and tab is not self.augmentation:
            self._on_filter()
        if tab is self.health:
            self.health.show_chosen()

    def _on_current(self) -> None:
        index = self.grid.currentIndex()
        row_ = int(self.photos.rows[index.row()]) if index.isValid() else -1
        suspect = next((one for one in self._review.suspects() if one.row == row_), None)
        self.review.show_suspect(suspect, self.current_path())
        if suspect is not None:
            self._place = index.row()
        self.augmentation.refresh()

    def refresh(self) -> None:
        """Fill the grid with the photos that pass the filters, after a search has finished."""
        table = self._document.table
        if table is None:
            return
        keep = np.ones(len(table.dataset), bool)
        names = self.classes.selected()
        if names and self._listed is None:
            keep &= np.isin(table.labels, [table.classes.index(name) for name in names])
        which = self.which.currentData()
        if which != "all":
            keep &= table.excluded == (which == "excluded")
        wanted = self.search.text().strip().casefold()
        if wanted:
            hits = self._document.search.mask(table.dataset.paths, wanted)
            if hits is None:
                self.shown.setText(tr("Searching…"))
                self.photos.show(table, self.photos.rows if table is self.photos.table else np.empty(0, np.int64))
                return
            keep &= hits
        rows = np.flatnonzero(keep) if self._listed is None else self._listed[keep[self._listed]]
        self.photos.show(table, rows, self._marks)
        what = self._listed_as if self._listed is not None else ""
        self.shown.setText(what + count(len(rows), "{n} photo", "{n} photos"))

    def _on_search(self) -> None:
        (self._show_suspects if self._marks else self.refresh)()  # one of the suspects is selected

    def _on_filter(self) -> None:
        self._listed, self._marks = None, {}
        self.refresh()

    def _on_changed(self) -> None:
        table = self._document.table
        subtitle: Any = self.head.findChild(QLabel, "subtitle")
        if table is None:
            self.stack.setCurrentIndex(1 if self._document.loading else 0)
            subtitle.setText(tr("Open the photos to train on."))
            return
        self.stack.setCurrentIndex(2)
        used, classes = int((~table.excluded).sum()), int((table.counts() > 0).sum())
        subtitle.setText(f"{self._document.source} – " + count(used, "{n} photo in use", "{n} photos in use")
                         + ", " + count(classes, "{n} class", "{n} classes"))  # fmt: skip
        self.classes.show_table(table)
        self.refresh()

    def _on_opening(self, source: str) -> None:
        self.notice.hide()
        self._show_progress(tr("Listing {name}…", name=Path(source).name), 0, 0)
        self.stack.setCurrentIndex(1)

    def _on_opened(self) -> None:
        self._listed, self._marks, self._place = None, {}, 0  # rows of the previous photos

    def _on_progress(self, done: int, total: int) -> None:
        self._show_progress(count(done, "{n} photo found…", "{n} photos found…"), done, total)

    def _on_drawing(self, done: int, total: int) -> None:
        if not total:  # the beginning
            self.notice.hide()
        text = tr("Generating synthetic leaves: {done} of {total}", done=f"{done:,}", total=f"{total:,}")
        self._show_progress(text if total else tr("Generating synthetic leaves…"), done, total)
        self.stack.setCurrentIndex(1)

    def _show_progress(self, text: str, done: int, total: int) -> None:
        self.bar.setRange(0, total)
        self.bar.setValue(done)
        self.busy.setText(text)

    def _on_selection(self, _event: object = None) -> None:
        some = self.isVisible() and self.grid.selectionModel().hasSelection()  # Del is a key of other pages, too
        self._move.setEnabled(some)
        self._actions.exclude.setEnabled(some)
        self._actions.include.setEnabled(some)

    showEvent = hideEvent = _on_selection  # noqa: N815 (Qt's names)

    def _on_move(self) -> None:
        table = self._document.table
        if table is not None and len(self.selection()):
            now = table.label(int(self.selection()[0]))  # a quick Enter moves nothing
            name = ask_class(self, table.classes, now)  # meanwhile other photos may be opened, with another selection
            self._document.move(self.selection(), name)

    def _on_activated(self, index: QModelIndex) -> None:
        table = self._document.table
        if table is not None:
            row_ = int(self.photos.rows[index.row()])
            PhotoDialog(self, self._large, table.dataset.path(row_), disease_name(table.label(row_))).open()
