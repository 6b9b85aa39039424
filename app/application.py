"""The composition root: the only place that knows everything, builds it and wires it together."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import final

from PySide6.QtCore import QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication, QIcon
from PySide6.QtWidgets import QApplication, QFileDialog, QMessageBox, QWidget

from app import paths, resources, translation
from app.crash import CrashReporter
from app.instance import FirstInstance, hand_over
from app.main_window import PLACES, MainWindow
from app.processes.entry import command
from app.settings import Settings
from app.theme import Theme
from app.training.session import State, TrainingSession
from app.translation import tr
from app.viewmodels.document import Document
from app.viewmodels.thumbnails import Thumbnails
from app.viewmodels.training import TrainingModel
from core import __version__


def run(given: Sequence[str]) -> int:
    """The program from start to end; a second start hands over to the first and ends at once."""
    application = QApplication.instance() or QApplication(sys.argv[:1])
    assert isinstance(application, QApplication)
    if hand_over([str(Path(p).absolute()) for p in given]):
        return 0
    program = Program(application)
    program.window.show()
    program.open(list(given))
    code = application.exec()
    program.close()
    return code


@final
class Program:
    """Everything that lives as long as the window."""

    def __init__(self, application: QApplication) -> None:
        application.setApplicationName("leafclinic")
        application.setApplicationDisplayName("LeafClinic")
        QGuiApplication.setDesktopFileName("leafclinic")
        application.setWindowIcon(QIcon(resources.pixmap("leafclinic", "", 128)))
        self.crash = CrashReporter(application)
        self.crash.install()
        self.settings = Settings(paths.settings_store(), application)
        translation.install(application, self.settings.text("language", "system"))
        self.theme = Theme(application)
        self.theme.set(self.settings.text("theme", "system"))
        self.document = Document(application)
        self.thumbnails = Thumbnails(application)
        self.session = TrainingSession(command("training"), application)
        self.training = TrainingModel(self.session, application)
        self.first = FirstInstance(application)
        self.window = MainWindow(self.theme)
        self._quitting = False
        self._places()
        self._wire()
        self.window.restoreGeometry(self.settings.bytes("geometry"))
        place = self.settings.text("place", PLACES[0])
        self.window.go(place if place in PLACES else PLACES[0])

    def open(self, given: Sequence[str]) -> None:
        """What was named on the command line or dropped: a folder or manifest to open, or photos to diagnose."""
        found = [str(Path(p).absolute()) for p in given]
        if not found:
            return
        if len(found) == 1 and (Path(found[0]).is_dir() or found[0].lower().endswith(".csv")):
            self.window.go("dataset")
            self.open_source(found[0])
        else:
            self.diagnose(found)

    def open_source(self, source: str) -> None:
        self.settings.set("last_folder", str(Path(source).parent))
        self.document.open(source)

    def diagnose(self, found: list[str]) -> None:
        self.window.go("diagnose")

    def close(self) -> None:
        """Leave nothing behind: no process, no thread, no hook, no lock."""
        self.window.status.stop()
        self.session.shutdown()
        self.document.close()
        self.thumbnails.close()
        self.first.close()
        self.settings.sync()
        self.crash.remove()

    def _places(self) -> None:
        def dataset() -> QWidget:
            from app.panels.dataset.panel import DatasetPanel

            return DatasetPanel(self.document, self.window.actions_, self.thumbnails, self.settings, self.theme)

        def train() -> QWidget:
            from app.panels.train.panel import TrainPanel

            actions = self.window.actions_
            panel = TrainPanel(self.training, actions, self.settings, self.theme, lambda: paths.folder("runs"))
            panel.resume_asked.connect(self._on_resume)
            panel.setup.show_data(self.document.source)
            self.document.opened.connect(lambda: panel.setup.show_data(self.document.source))
            return panel

        makers: dict[str, Callable[[], QWidget]] = {"dataset": dataset, "train": train}
        makers |= {name: QWidget for name in PLACES if name not in makers}
        self.window.set_places(makers)

    def _wire(self) -> None:
        actions, window = self.window.actions_, self.window
        self.crash.reported.connect(window.show_error)
        self.first.asked.connect(self._on_second_start)
        window.dropped.connect(self._on_dropped)
        window.set_close_question(self._may_close)
        window.closing.connect(self._on_closing)
        actions.quit.triggered.connect(window.close)
        actions.open_folder.triggered.connect(self._on_open_folder)
        actions.open_manifest.triggered.connect(self._on_open_manifest)
        actions.undo.triggered.connect(self.document.undo.undo)
        actions.redo.triggered.connect(self.document.undo.redo)
        self.document.undo.canUndoChanged.connect(actions.undo.setEnabled)
        self.document.undo.canRedoChanged.connect(actions.redo.setEnabled)
        actions.undo.setEnabled(False)
        actions.redo.setEnabled(False)
        self.document.opened.connect(lambda: self.settings.add_recent(self.document.source))
        for name in ("system", "light", "dark"):
            action = getattr(actions, f"theme_{name}")
            action.setChecked(self.settings.text("theme", "system") == name)
            action.triggered.connect(lambda _=False, name=name: self._on_theme(name))
        for name in ("system", "en", "vi"):
            action = getattr(actions, f"language_{name}")
            action.setChecked(self.settings.text("language", "system") == name)
            action.triggered.connect(lambda _=False, name=name: self.settings.set("language", name))
        actions.open_log.triggered.connect(self._on_open_log)
        actions.about.triggered.connect(self._on_about)
        actions.start.triggered.connect(self._on_start)
        actions.pause.triggered.connect(self.session.pause)
        actions.go_on.triggered.connect(self.session.resume)
        actions.stop.triggered.connect(self.session.stop)
        self.session.state_changed.connect(self._on_state)
        self.training.changed.connect(self._show_run)
        self._on_state(self.session.state)

    def _on_state(self, state: State) -> None:
        actions = self.window.actions_
        actions.start.setEnabled(state is State.IDLE)
        actions.pause.setEnabled(state is State.RUNNING)
        actions.go_on.setEnabled(state is State.PAUSED)
        actions.stop.setEnabled(state in (State.RUNNING, State.PAUSED))
        self._show_run()
        if state is State.IDLE and self._quitting:
            self.window.close()

    def _show_run(self) -> None:
        view, state = self.training.view, self.session.state
        if state is State.IDLE or view.started is None:
            self.window.status.show_run("")
            return
        name = Path(view.started.folder).name
        self.window.status.show_run(name if state is State.RUNNING else f"{name} ({tr(state.value)})", view.step,
                                    view.total_steps)  # fmt: skip
        self.window.status.show_device(view.started.device)

    def _on_start(self) -> None:
        from app.training.request import start_request
        from app.viewmodels.training import new_run_folder

        panel = self.window.go("train")
        if self.document.table is None:
            panel.notice.alarm(tr("There are no photos to learn from yet. Open a folder under Dataset first."))
            return
        model = str(panel.setup.form.values()["model"])
        folder = new_run_folder(paths.folder("runs"), model)
        config = panel.setup.config(self.document.manifest(), str(folder))
        if config is not None:
            self.training.start(start_request(config))

    def _on_resume(self, folder: str) -> None:
        from app.training.request import resume_request

        if not self.session.busy:
            self.training.resume(Path(folder), resume_request(Path(folder)))

    def _on_dropped(self, found: list[str]) -> None:
        self.open(found)

    def _on_second_start(self, given: list[str]) -> None:
        self.window.bring_to_front()
        self.open(given)

    def _on_open_folder(self) -> None:
        text, last = tr("Open a folder of photos"), self.settings.text("last_folder")
        found = QFileDialog.getExistingDirectory(self.window, text, last)
        if found:
            self.open([found])

    def _on_open_manifest(self) -> None:
        text, last = tr("Open a manifest"), self.settings.text("last_folder")
        found, _ = QFileDialog.getOpenFileName(self.window, text, last, "CSV (*.csv)")
        if found:
            self.open([found])

    def _on_theme(self, name: str) -> None:
        self.settings.set("theme", name)
        self.theme.set(name)

    def _on_open_log(self) -> None:
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(paths.folder("logs") / "leafclinic.log")))

    def _on_about(self) -> None:
        text = tr(
            "<h3>LeafClinic {version}</h3><p>Learns leaf diseases from your photos and diagnoses new ones.</p>"
            "<p>Everything happens on this computer. The program opens no network connection.</p>"
            "<p>MIT licence.</p>",
            version=__version__,
        )
        QMessageBox.about(self.window, tr("About LeafClinic"), text)

    def _may_close(self) -> bool:
        """Closing while a run is going on asks, then stops it cleanly, and closes when it has saved."""
        if not self.session.busy:
            return True
        if not self._quitting:
            box = QMessageBox(QMessageBox.Icon.Question, "LeafClinic", tr("A training is running."), parent=self.window)
            box.setObjectName("close_question")
            box.setInformativeText(tr("Stop it, save it and close? It can be continued later."))
            box.setStandardButtons(QMessageBox.StandardButton.Yes | QMessageBox.StandardButton.Cancel)
            box.button(QMessageBox.StandardButton.Yes).setText(tr("Stop and close"))
            if box.exec() != QMessageBox.StandardButton.Yes:
                return False
            self._quitting = True
            self.session.stop()
        return not self.session.busy

    def _on_closing(self) -> None:
        self.settings.set_bytes("geometry", self.window.remember())
        shown = self.window.stack.currentWidget()
        self.settings.set("place", shown.objectName().removeprefix("place_") if shown else PLACES[0])
