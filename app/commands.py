"""What the window's actions do: opening, synthetic leaves, language and colours, help, closing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, final

from PySide6.QtCore import QObject, Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QFileDialog, QLineEdit, QMessageBox

from app import paths
from app.crash import CrashReporter
from app.instance import FirstInstance
from app.main_window import PAGES, MainWindow
from app.photo_commands import PhotoCommands
from app.process_thread import ProcessThread
from app.processes.entry import command
from app.settings import Settings
from app.theme import Theme
from app.training.session import State, TrainingSession
from app.translation import tr
from app.viewmodels.document import Document
from core import __version__

MODEL_ENDING: Final = ".safetensors"
DEMO: Final = {"photos_per_class": 240, "side": 160}
"""The demo photos of `make train`; with fewer the accuracy is clearly lower."""


@final
class WindowCommands(QObject):
    """Connected to the actions once; every method is one user command. Signal: `language_chosen(name)`."""

    language_chosen = Signal(str)

    def __init__(
        self, window: MainWindow, settings: Settings, theme: Theme, document: Document, session: TrainingSession,
        photos: PhotoCommands, first: FirstInstance, crash: CrashReporter,
    ) -> None:  # fmt: skip
        super().__init__(window)
        self._window, self._settings, self._theme = window, settings, theme
        self._document, self._session, self._photos = document, session, photos
        self._demo: ProcessThread | None = None
        self._quitting = False
        crash.reported.connect(window.show_error)
        first.asked.connect(self._on_second_start)
        window.dropped.connect(self.open)
        window.set_close_question(self._may_close)
        window.closing.connect(self._on_closing)
        document.given_up.connect(self._give_up_demo)
        document.opened.connect(self._on_opened)
        session.state_changed.connect(self._on_state)
        self._wire()

    def close(self) -> None:
        if self._demo is not None:
            self._demo.kill()
            self._demo.wait()

    def open(self, given: list[str]) -> None:
        """Open what was named or dropped: a model is used for diagnosis, photos are diagnosed on the Diagnose page.

        On other pages a folder is opened as a dataset.
        """
        found = [str(Path(p).absolute()) for p in given]
        if not found:
            return
        if len(found) == 1 and found[0].lower().endswith(MODEL_ENDING):
            self._photos.use_model(found[0])
            return
        source = len(found) == 1 and (Path(found[0]).is_dir() or found[0].lower().endswith(".csv"))
        shown = self._window.stack.currentWidget()
        if source and (shown is None or shown.objectName() != "page_diagnose"):
            self._give_up_demo()
            self._window.go("dataset")
            self._settings.set("last_folder", str(Path(found[0]).parent))
            self._document.open(found[0])
        else:
            self._photos.diagnose(found)

    def _wire(self) -> None:
        actions, settings, document = self._window.actions_, self._settings, self._document
        for action, act in (
            (actions.open_folder, self._on_open_folder), (actions.open_manifest, self._on_open_manifest),
            (actions.open_demo, self._on_open_demo), (actions.quit, self._window.close),
            (actions.undo, document.undo.undo), (actions.redo, document.undo.redo),
            (actions.find, self._on_find), (actions.open_log, self._on_open_log), (actions.about, self._on_about),
            (actions.storage, self._on_storage), (actions.guide, self._on_guide),
        ):  # fmt: skip
            action.triggered.connect(lambda _=False, act=act: act())
        document.undo.canUndoChanged.connect(actions.undo.setEnabled)
        document.undo.canRedoChanged.connect(actions.redo.setEnabled)
        actions.undo.setEnabled(document.undo.canUndo())
        actions.redo.setEnabled(document.undo.canRedo())
        for kind, names in (("theme", ("system", "light", "dark")), ("language", ("system", "en", "vi"))):
            for name in names:
                action = getattr(actions, f"{kind}_{name}")
                action.setChecked(settings.text(kind, "system") == name)
                action.triggered.connect(lambda _=False, kind=kind, name=name: self._on_choice(kind, name))

    def _on_choice(self, kind: str, name: str) -> None:
        self._settings.set(kind, name)
        if kind == "theme":
            self._theme.set(name)
        else:
            self.language_chosen.emit(name)

    def _on_opened(self) -> None:
        """Suggest a diagnosis for photos without classes: they may not be meant for training."""
        source, table = self._document.source, self._document.table
        self._settings.add_recent(source)
        if table is not None and len(table.classes) == 1 and Path(source).is_dir():
            text = tr("All these photos are of one class. Training needs two or more classes. To find out what is "
                      "wrong with these leaves, use Diagnose.")  # fmt: skip
            notice = self._window.page("dataset").notice
            notice.show_message(text, tr("Diagnose photos"), lambda: self._photos.diagnose([source]))

    def _on_state(self, state: State) -> None:
        if state is State.IDLE and self._quitting:
            self._window.close()

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
        """Generate the synthetic leaves in a process, or find them, and open them."""
        if self._demo is not None:
            return
        self._document.drawing.emit(0, 0)
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
                self._document.drawing.emit(answer["done"], answer["total"])

    def _give_up_demo(self) -> None:
        """Cancel the generation of synthetic leaves, because other photos are opened or the user cancelled."""
        if self._demo is not None:
            self._demo.bundle.disconnect(self._on_demo)
            self._demo.kill()

    def _on_demo_ended(self, code: int, errors: str) -> None:
        thread, self._demo = self._demo, None
        if thread is not None:
            thread.wait()
            thread.deleteLater()
        if code > 1:
            self._document.failed.emit(tr("The synthetic leaves could not be generated."), errors)

    def _on_find(self) -> None:
        """Move the keyboard focus to the search field of the page, if it has one."""
        search = getattr(self._window.stack.currentWidget(), "search", None)
        if isinstance(search, QLineEdit) and search.isVisible():
            search.setFocus(Qt.FocusReason.ShortcutFocusReason)
            search.selectAll()

    def _on_open_log(self) -> None:
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(paths.folder("logs") / "leafclinic.log")))

    def _on_storage(self) -> None:
        from app.widgets.storage_dialog import StorageDialog

        StorageDialog(self._window, self._theme).exec()

    def _on_guide(self) -> None:
        from app.widgets.guide import GuideDialog

        GuideDialog(self._window).exec()

    def _on_about(self) -> None:
        text = tr(
            "<h3>LeafClinic {version}</h3><p>Learns leaf diseases from your photos and diagnoses new ones.</p>"
            "<p>Everything happens on this computer. Only a training on several GPUs opens connections, between "
            "its processes.</p>"
            "<p>MIT licence.</p>",
            version=__version__,
        )
        QMessageBox.about(self._window, tr("About LeafClinic"), text)

    def _may_close(self) -> bool:
        """Ask before closing during a training, then stop it, and close after it has saved."""
        session = self._session
        if session.busy and not self._quitting:
            question = tr("A training is running.")
            box = QMessageBox(QMessageBox.Icon.Question, "LeafClinic", question, parent=self._window)
            box.setObjectName("close_question")
            box.setInformativeText(tr("Stop, save and close? You can resume the run later."))
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
        self._settings.set("page", shown.objectName().removeprefix("page_") if shown else PAGES[0])
