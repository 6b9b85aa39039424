"""Commands on runs: start, pause, resume, show mistakes, open and print reports."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from PySide6.QtCore import QObject, QTimer

from app import paths
from app.main_window import MainWindow
from app.moved_photos import find_moved
from app.project import dataset_source
from app.task import Task
from app.translation import count, language, tr, translate_page
from app.viewmodels.document import Document
from app.viewmodels.runs import RunView, read_run
from app.viewmodels.thumbnails import Thumbnails
from app.viewmodels.training import State, TrainingModel, resume_request, start_request
from app.viewmodels.writing import Writing
from app.widgets.parts import Slot, ask_target, open_file
from core.config import settings
from core.diagnosis.model_identity import BEST, default_name
from core.errors import InputError, StorageError
from core.storage import new_run_folder, write_file

STATUS_MS: Final = 500
"""Interval of updates of the status bar."""


class RunCommands(QObject):
    """Connected to the actions once; every method is one user command. `pictures`: small and large ones."""

    def __init__(
        self, window: MainWindow, document: Document, training: TrainingModel,
        pictures: tuple[Thumbnails, Thumbnails], prints: Writing,
    ) -> None:  # fmt: skip
        super().__init__(window)
        self._window, self._document = window, document
        self._training, self._pictures, self._prints = training, pictures, prints
        actions = window.actions_
        actions.connect(
            start=self._on_start, pause=self._on_pause, stop=training.stop, run_pdf=self._on_pdf,
            run_report=self._on_report,
        )  # fmt: skip
        for action in (actions.run_report, actions.run_pdf):
            action.setEnabled(False)
        training.state_changed.connect(self._on_state)
        document.opened.connect(Slot(self, lambda: self._on_state(training.state)).call)  # a waiting start is dropped
        self._soon = QTimer(self, singleShot=True, interval=STATUS_MS)
        self._soon.timeout.connect(self._show_run)
        training.changed.connect(self._on_changed)
        self._on_state(training.state)

    def resume_run(self, folder: str) -> None:
        Task(lambda *_: (resume_request(Path(folder)), read_run(Path(folder))), self,
             done=partial(self._resume, folder), failed=self._window.go("train").notice.alarm)  # fmt: skip

    def _resume(self, folder: str, read: tuple[str, RunView]) -> None:
        request, history = read
        if self._training.busy:
            return  # a run was started meanwhile
        self._training.start(request, folder, history)
        panel = self._window.page("train")
        used, known = json.loads(request)["config"], settings()
        shown = {name: value for name, value in used.items() if name != "seed" and known[name][1].group != "data"}
        panel.setup.form.take_over({**shown, "name": ""})  # the next training may be of other photos

    def open_cell(self, truth: str, predicted: str) -> None:
        from app.panels.train.gallery import GalleryDialog, held_out
        from core.training.run_folder import read_config

        panel = self._window.go("train")
        started = panel.evaluated.started
        if started is None or not (Path(started.folder) / BEST).is_file():
            panel.notice.alarm(tr("This run has no model yet. A model is saved after the first epoch."))
            return
        folder = Path(started.folder)
        try:
            data = read_config(folder).data
            photos, contents = held_out(folder, data, truth)
        except InputError as error:
            panel.notice.alarm(str(error))
            return
        source, document, lost = dataset_source(data), self._document, 0
        if Path(source) != Path(document.source):
            root = "" if document.table is None else document.table.dataset.root
            here = find_moved(photos, contents, source, root, document.row_of)
            if photos and not here:
                panel.notice.alarm(tr("Open {folder}, or the folder that has its photos now.", folder=source))
                return
            photos, lost = here, len(photos) - len(here)
        cell = folder / BEST, photos, truth, predicted
        dialog = GalleryDialog(self._window, self._document, self._pictures, *cell)
        dialog.train_asked.connect(self._on_start)
        dialog.open()
        if lost:
            dialog.notice.alarm(count(lost, "{n} photo of this class is not in the open folder.",
                                      "{n} photos of this class are not in the open folder."))  # fmt: skip

    def _on_state(self, state: State) -> None:
        actions = self._window.actions_
        actions.start.setEnabled(state is State.IDLE)
        for action in (actions.pause, actions.stop):
            action.setEnabled(state in (State.RUNNING, State.PAUSED))
        paused = state is State.PAUSED  # one action for both: a second press of Space undoes the first
        actions.pause.setText(tr("&Resume") if paused else tr("&Pause"))
        tips = (tr("Pause the training; the computer is free until you resume"), tr("Resume the paused training"))
        actions.pause.setToolTip(tips[paused])
        actions.pause.setData("resume" if paused else "pause")
        self._show_run()

    def _on_pause(self) -> None:
        if self._training.state is State.PAUSED:
            self._training.resume()
        else:
            self._training.pause()

    def _on_changed(self) -> None:
        if not self._soon.isActive():
            self._soon.start()

    def _show_run(self) -> None:
        view, state = self._training.view, self._training.state
        if state is State.IDLE or view.started is None:
            self._window.status.show_run("")
            return
        text = view.name if state is State.RUNNING else f"{view.name} ({tr(state.value)})"
        self._window.status.show_run(text, view.step, view.total_steps)
        if view.started.device != "cpu":
            self._window.status.device.setText(view.started.device)

    def _on_start(self) -> None:
        panel = self._window.go("train")
        if self._document.table is None:
            text = tr("There are no photos yet. Open a folder under Dataset first.")
            panel.notice.alarm(text, "", tr("Open folder"), self._window.actions_.open_folder.trigger)
            return
        self._window.actions_.start.setEnabled(False)
        self._window.status.show_run(tr("Starting the training process…"))
        self._document.with_manifest(self._start, self._on_not_written)

    def _start(self, data: str) -> None:
        """Train on the photos of a folder or manifest with the settings of the form."""
        panel = self._window.page("train")
        self._on_state(self._training.state)
        if self._training.busy:
            return  # an earlier run was resumed meanwhile
        values = panel.setup.form.values()
        folder = new_run_folder(paths.home() / "runs", str(values["start"]), str(values["model"]))
        config = panel.setup.config(data, str(folder))
        if config is None:
            panel.setup.show_wrong()
            panel.notice.alarm(tr("Some settings are not valid. See the messages in red."))
            return
        panel.notice.hide()
        name = config.name or default_name(self._document.source)  # `data` may be the project's manifest
        self._training.start(start_request(replace(config, name=name)))

    def _on_not_written(self, message: str, details: str) -> None:
        self._on_state(self._training.state)
        self._window.go("train").notice.alarm(message, details)

    def _on_report(self) -> None:
        """Open the report, in another language than English a translation beside it if that can be written."""
        report = Path(self._window.page("train").outcome.report)
        if language() != "en" and report.is_file():
            translated = report.with_suffix(f".{language()}.html")
            try:
                write_file(translated, translate_page(report.read_text("utf-8", "replace")))
                report = translated
            except StorageError as error:
                self._window.go("train").notice.alarm(str(error))
        open_file(report)

    def _on_pdf(self) -> None:
        report = Path(self._window.page("train").outcome.report)
        name = ask_target(self._window, tr("Save the report"), f"{report.parent.name}.pdf", "PDF (*.pdf)")
        if name:
            self._prints.start("print", name, source=str(report))
