"""What the actions do: the hands between the window, the photos, the training and the diagnoses."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final, final

from PySide6.QtCore import QObject, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QApplication, QFileDialog, QMessageBox

from app import paths, resources
from app.crash import CrashReporter
from app.instance import FirstInstance
from app.main_window import PLACES, MainWindow
from app.process_thread import ProcessThread
from app.processes.entry import command
from app.settings import Settings
from app.theme import Theme
from app.training.request import resume_request, start_request
from app.training.session import State
from app.translation import tr
from app.viewmodels.diagnosis import SUFFIXES, DiagnosisModel
from app.viewmodels.document import Document
from app.viewmodels.run_list import list_runs
from app.viewmodels.thumbnails import Thumbnails
from app.viewmodels.training import TrainingModel, new_run_folder
from core import __version__
from core.errors import InputError

DEMO: Final = {"photos_per_class": 60, "side": 160}
"""The demo photos: 240 drawings, made in two seconds and learned in a minute."""
PHOTO_FILTER: Final = "*" + " *".join(sorted(SUFFIXES))


@final
class Commands(QObject):
    """Connected to the actions once; every method is one thing a person can do."""

    def __init__(
        self, window: MainWindow, settings: Settings, theme: Theme, document: Document, training: TrainingModel,
        diagnosis: DiagnosisModel, thumbnails: Thumbnails, photos: Thumbnails, first: FirstInstance,
        crash: CrashReporter,
    ) -> None:  # fmt: skip
        super().__init__(window)
        self._window, self._settings, self._theme = window, settings, theme
        self._document, self._training, self._diagnosis = document, training, diagnosis
        self._thumbnails, self._photos = thumbnails, photos
        self._demo: ProcessThread | None = None
        self._quitting = False
        crash.reported.connect(window.show_error)
        first.asked.connect(self._on_second_start)
        window.dropped.connect(self.open)
        window.set_close_question(self._may_close)
        window.closing.connect(self._on_closing)
        document.opened.connect(lambda: settings.add_recent(document.source))
        training.session.state_changed.connect(self._on_state)
        training.changed.connect(self._show_run)
        diagnosis.model_ready.connect(lambda path: settings.set("model", path))
        self._wire()
        self._on_state(training.session.state)

    def close(self) -> None:
        if self._demo is not None:
            self._demo.kill()
            self._demo.wait()

    def open(self, given: list[str]) -> None:
        """What was named or dropped: on Diagnose everything is diagnosed, elsewhere a folder is opened."""
        found = [str(Path(p).absolute()) for p in given]
        if not found:
            return
        source = len(found) == 1 and (Path(found[0]).is_dir() or found[0].lower().endswith(".csv"))
        shown = self._window.stack.currentWidget()
        if source and (shown is None or shown.objectName() != "place_diagnose"):
            self._window.go("dataset")
            self._settings.set("last_folder", str(Path(found[0]).parent))
            self._document.open(found[0])
        else:
            self.diagnose(found)

    def diagnose(self, found: list[str]) -> None:
        """Diagnose files and folders; without a model the place says how to get one."""
        panel = self._window.go("diagnose")
        if not self._diagnosis.model_path:
            self._find_model()
        if not self._diagnosis.model_path:
            panel.notice.alarm(tr("There is no model to diagnose with yet: train one first, or choose a model file."))
            return
        self._diagnosis.add(found)

    def use_model(self, path: str) -> None:
        """Diagnose with this model from now on."""
        self._diagnosis.load(path)
        self._window.go("diagnose")

    def resume_run(self, folder: str) -> None:
        """Go on with an earlier run."""
        if self._training.session.busy:
            return
        try:
            self._training.resume(Path(folder), resume_request(Path(folder)))
        except InputError as error:
            self._window.go("train").notice.alarm(str(error))

    def open_cell(self, truth: str, said: str) -> None:
        """The photos behind a cell of the confusion matrix."""
        from app.panels.train.gallery import GalleryDialog

        started = self._training.view.started
        panel = self._window.go("train")
        if started is None or not (Path(started.folder) / "best.safetensors").is_file():
            panel.notice.alarm(tr("There is no model of this run yet. It is written after the first epoch."))
            return
        pictures = (self._thumbnails, self._photos)
        folder = Path(started.folder)
        dialog = GalleryDialog(self._window, self._theme, self._document, pictures, folder, truth, said)
        dialog.train_asked.connect(self._on_start)
        dialog.open()

    def _wire(self) -> None:
        actions, settings, document = self._window.actions_, self._settings, self._document
        session = self._training.session
        for action, act in (
            (actions.open_folder, self._on_open_folder), (actions.open_manifest, self._on_open_manifest),
            (actions.open_demo, self._on_open_demo), (actions.quit, self._window.close),
            (actions.undo, document.undo.undo), (actions.redo, document.undo.redo), (actions.start, self._on_start),
            (actions.pause, session.pause), (actions.go_on, session.resume), (actions.stop, session.stop),
            (actions.diagnose_photos, self._on_diagnose_photos), (actions.diagnose_folder, self._on_diagnose_folder),
            (actions.paste, self._on_paste), (actions.camera, self._on_camera),
            (actions.choose_model, self._on_choose_model), (actions.open_log, self._on_open_log),
            (actions.about, self._on_about),
        ):  # fmt: skip
            action.triggered.connect(lambda _=False, act=act: act())
        actions.go_diagnose.triggered.connect(self._find_model)
        document.undo.canUndoChanged.connect(actions.undo.setEnabled)
        document.undo.canRedoChanged.connect(actions.redo.setEnabled)
        for action in (actions.undo, actions.redo, actions.export_csv, actions.export_html):
            action.setEnabled(False)
        for kind, names in (("theme", ("system", "light", "dark")), ("language", ("system", "en", "vi"))):
            for name in names:
                action = getattr(actions, f"{kind}_{name}")
                action.setChecked(settings.text(kind, "system") == name)
                action.triggered.connect(lambda _=False, kind=kind, name=name: self._on_choice(kind, name))

    def _on_choice(self, kind: str, name: str) -> None:
        self._settings.set(kind, name)
        if kind == "theme":
            self._theme.set(name)

    def _on_state(self, state: State) -> None:
        actions = self._window.actions_
        actions.start.setEnabled(state is State.IDLE)
        actions.pause.setEnabled(state is State.RUNNING)
        actions.go_on.setEnabled(state is State.PAUSED)
        actions.stop.setEnabled(state in (State.RUNNING, State.PAUSED))
        self._show_run()
        if state is State.IDLE and self._quitting:
            self._window.close()

    def _show_run(self) -> None:
        view, state = self._training.view, self._training.session.state
        if state is State.IDLE or view.started is None:
            self._window.status.show_run("")
            return
        name = Path(view.started.folder).name
        text = name if state is State.RUNNING else f"{name} ({tr(state.value)})"
        self._window.status.show_run(text, view.step, view.total_steps)
        if view.started.device != "cpu":
            self._window.status.show_device(view.started.device)

    def _on_start(self) -> None:
        panel = self._window.go("train")
        if self._document.table is None:
            panel.notice.alarm(tr("There are no photos to learn from yet. Open a folder under Dataset first."))
            return
        folder = new_run_folder(paths.folder("runs"), str(panel.setup.form.values()["model"]))
        config = panel.setup.config(self._document.manifest(), str(folder))
        if config is not None:
            self._training.start(start_request(config))

    def _on_second_start(self, given: list[str]) -> None:
        self._window.bring_to_front()
        self.open(given)

    def _on_open_folder(self) -> None:
        text, last = tr("Open a folder of photos"), self._settings.text("last_folder")
        found = QFileDialog.getExistingDirectory(self._window, text, last)
        if found:
            self._window.go("dataset")
            self.open([found])

    def _on_open_manifest(self) -> None:
        text, last = tr("Open a manifest"), self._settings.text("last_folder")
        found, _ = QFileDialog.getOpenFileName(self._window, text, last, "CSV (*.csv)")
        if found:
            self._window.go("dataset")
            self.open([found])

    def _on_open_demo(self) -> None:
        """Draw the demo photos in a process of their own (or find them), then open them."""
        if self._demo is not None:
            return
        self._document.opening.emit(tr("demo photos"))
        thread = ProcessThread(command("demo"), json.loads, self)
        thread.bundle.connect(self._on_demo)
        thread.ended.connect(self._on_demo_ended)
        thread.send(json.dumps({"folder": str(paths.home() / "demo"), **DEMO}))
        self._demo = thread
        thread.start()

    def _on_demo(self, bundle: list[dict[str, Any]]) -> None:
        for answer in bundle:
            if "source" in answer:
                self._window.go("dataset")
                self._document.open(answer["source"])
            elif "failed" in answer:
                self._document.failed.emit(answer["failed"], "")
            else:
                self._document.progress.emit(answer["done"], answer["total"])

    def _on_demo_ended(self, code: int, errors: str) -> None:
        thread, self._demo = self._demo, None
        if thread is not None:
            thread.wait()
            thread.deleteLater()
        if code > 1:
            self._document.failed.emit(tr("The demo photos could not be drawn."), errors)

    def _find_model(self) -> None:
        """The model used last, or the newest one trained here, or the one that came with the program."""
        if self._diagnosis.model_path:
            return
        trained = [run.model_path for run in list_runs(paths.folder("runs")) if run.model_path]
        shipped = sorted(Path(resources.place("models")).glob("*.safetensors"))
        known = [p for p in (self._settings.text("model"), *trained, *map(str, shipped)) if p and Path(p).is_file()]
        if known:
            self._diagnosis.load(known[0])

    def _on_choose_model(self) -> None:
        kinds = tr("Models (*.safetensors)")
        found, _ = QFileDialog.getOpenFileName(self._window, tr("Choose a model"), str(paths.folder("runs")), kinds)
        if found:
            self.use_model(found)

    def _on_diagnose_photos(self) -> None:
        kinds = tr("Photos") + f" ({PHOTO_FILTER})"
        last = self._settings.text("last_photos")
        found, _ = QFileDialog.getOpenFileNames(self._window, tr("Choose photos"), last, kinds)
        if found:
            self._settings.set("last_photos", str(Path(found[0]).parent))
            self.diagnose(found)

    def _on_diagnose_folder(self) -> None:
        last = self._settings.text("last_photos")
        found = QFileDialog.getExistingDirectory(self._window, tr("Choose a folder"), last)
        if found:
            self.diagnose([found])

    def _on_paste(self) -> None:
        """A picture, or files, from the clipboard."""
        data = QApplication.clipboard().mimeData()
        files = [url.toLocalFile() for url in data.urls() if url.isLocalFile()]
        image = QApplication.clipboard().image()
        if files:
            self.diagnose(files)
        elif not image.isNull():
            path = paths.folder("pictures") / f"{time.strftime('%Y%m%d-%H%M%S')}-pasted.png"
            image.save(str(path))
            self.diagnose([str(path)])
        else:
            self._window.go("diagnose").notice.alarm(tr("There is no picture in the clipboard."))

    def _on_camera(self) -> None:
        from app.widgets.camera import CameraDialog

        dialog = CameraDialog(self._window, paths.folder("pictures"))
        dialog.taken.connect(lambda path: self.diagnose([path]))
        dialog.open()

    def _on_open_log(self) -> None:
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(paths.folder("logs") / "leafclinic.log")))

    def _on_about(self) -> None:
        text = tr(
            "<h3>LeafClinic {version}</h3><p>Learns leaf diseases from your photos and diagnoses new ones.</p>"
            "<p>Everything happens on this computer. The program opens no network connection.</p>"
            "<p>MIT licence.</p>",
            version=__version__,
        )
        QMessageBox.about(self._window, tr("About LeafClinic"), text)

    def _may_close(self) -> bool:
        """Closing while a run is going on asks, then stops it cleanly, and closes when it has saved."""
        session = self._training.session
        if session.busy and not self._quitting:
            question = tr("A training is running.")
            box = QMessageBox(QMessageBox.Icon.Question, "LeafClinic", question, parent=self._window)
            box.setObjectName("close_question")
            box.setInformativeText(tr("Stop it, save it and close? It can be continued later."))
            box.setStandardButtons(QMessageBox.StandardButton.Yes | QMessageBox.StandardButton.Cancel)
            box.button(QMessageBox.StandardButton.Yes).setText(tr("Stop and close"))
            if box.exec() != QMessageBox.StandardButton.Yes:
                return False
            self._quitting = True
            session.stop()
        return not session.busy

    def _on_closing(self) -> None:
        self._settings.set_bytes("geometry", self._window.remember())
        shown = self._window.stack.currentWidget()
        self._settings.set("place", shown.objectName().removeprefix("place_") if shown else PLACES[0])
