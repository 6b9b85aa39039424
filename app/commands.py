"""What the window's actions do: opening, synthetic leaves, language and colours, help, closing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QUndoGroup
from PySide6.QtWidgets import QFileDialog, QInputDialog, QLineEdit, QMessageBox

from app import paths
from app.actions import GROUPS
from app.crash import CrashReporter
from app.instance import FirstInstance
from app.main_window import MainWindow
from app.paths import Settings
from app.photo_commands import PhotoCommands
from app.project import Edits
from app.synthetic_leaves import SyntheticLeaves
from app.theme import current_theme
from app.translation import count, tr
from app.viewmodels.diagnosis import DiagnosisModel
from app.viewmodels.document import Document
from app.viewmodels.training import State, TrainingModel
from app.viewmodels.writing import Writing
from app.widgets.parts import Slot, confirm, open_file
from core import __version__
from core.data.manifest import is_manifest
from core.data.photo_format import EXTENSIONS

FEW: Final = 10
"""Results that are diagnosed again in about a second: closing does not ask about them."""


class WindowCommands(QObject):
    """Connected to the actions once; every method is one user command. Signal: `language_chosen(name)`."""

    language_chosen = Signal(str)

    def __init__(
        self, window: MainWindow, settings: Settings, document: Document, training: TrainingModel,
        photos: PhotoCommands, diagnosis: DiagnosisModel, writings: Sequence[Writing], first: FirstInstance,
        crash: CrashReporter,
    ) -> None:  # fmt: skip
        super().__init__(window)
        self._window, self._settings, self._document, self._training = window, settings, document, training
        self._photos, self._diagnosis, self._writings = photos, diagnosis, writings
        self._leaves = SyntheticLeaves(window, document)
        self._quitting = False
        crash.reported.connect(window.show_error)
        first.asked.connect(self._on_second_start)
        link = tr("A picture of a web page cannot be dropped here. Copy it there and paste it, or save it as a file.")
        window.dropped.connect(Slot(self, lambda data: photos.receive(data, self.open, link)).call)
        window.may_close = self._may_close
        window.closing.connect(self._on_closing)
        document.opened.connect(self._on_opened)
        document.failed.connect(self._on_failed)
        document.found_edits.connect(self._on_found_edits)
        training.state_changed.connect(self._on_state)
        self._wire()

    def close(self) -> None:
        self._leaves.close()

    def open(self, given: list[str]) -> None:
        """Open what was chosen or dropped: a model is used for diagnosis, photos are diagnosed on the Diagnose page.

        On other pages one folder is opened as a dataset.
        """
        found = list(map(os.path.abspath, given))
        if not found:
            return
        if len(found) == 1 and found[0].lower().endswith((".safetensors", ".onnx")):
            self._photos.use_model(found[0])
            return
        source = len(found) == 1 and (os.path.isdir(found[0]) or is_manifest(found[0]))
        if source and self._window.current != "diagnose":
            self._leaves.close()
            self._window.go("dataset")
            self._settings.set("last_folder", str(Path(found[0]).parent))
            self._document.open(found[0])
        elif self._window.current != "diagnose" and all(map(os.path.isdir, found)):
            text = tr("Open the one folder that contains these folders: its subfolders are the classes.")
            notice = self._window.go("dataset").notice
            notice.alarm(text, "", tr("Diagnose photos"), lambda: self._photos.diagnose(found))
        else:
            self._photos.diagnose(found)

    def open_named(self, given: list[str]) -> None:
        """Open what a command line or a dialog names: folders and manifests for training, whatever page is shown."""
        if any(os.path.isdir(p) or is_manifest(p) for p in given):
            self._window.go("dataset")
        self.open(given)

    def _wire(self) -> None:
        actions, settings = self._window.actions_, self._settings
        undo = self._undo = QUndoGroup(self)
        for changes in (self._document.undo, self._diagnosis.plants.changes):
            undo.addStack(changes)
        actions.connect(
            open_folder=self._on_open_folder, open_manifest=self._on_open_manifest, open_demo=self._leaves.open,
            quit=self._window.close, undo=undo.undo, redo=undo.redo, find=self._on_find,
            open_log=lambda: open_file(paths.folder("logs") / "leafclinic.log"), about=self._on_about,
            storage=self._on_storage, guide=self._on_guide,
        )  # fmt: skip
        undo.canUndoChanged.connect(actions.undo.setEnabled)
        undo.canRedoChanged.connect(actions.redo.setEnabled)
        self._window.stack.currentChanged.connect(self._choose_changes)
        self._choose_changes()
        for action in (actions.exclude, actions.include):  # Del is a key of the results, too
            action.setEnabled(False)
        for choice in (*GROUPS[1], *GROUPS[2]):
            (kind, name), action = choice.split("_"), getattr(actions, choice)
            action.setChecked(settings.text(kind, "system") == name)
            action.triggered.connect(lambda _=False, kind=kind, name=name: self._on_choice(kind, name))

    def _choose_changes(self, _page: int = 0) -> None:
        """Undo what was changed on the page that is shown."""
        plants = self._window.current == "diagnose"
        self._undo.setActiveStack(self._diagnosis.plants.changes if plants else self._document.undo)

    def _on_choice(self, kind: str, name: str) -> None:
        self._settings.set(kind, name)
        if kind == "theme":
            current_theme().set(name)
        else:
            self.language_chosen.emit(name)

    def _on_opened(self) -> None:
        """Suggest a diagnosis for photos without classes: they may not be meant for training."""
        source, table = self._document.source, self._document.table
        self._settings.add_recent(source)
        if table is not None and len(table.classes) == 1 and os.path.isdir(source):
            text = tr("All these photos are of one class. Training needs two or more classes. To find out what is "
                      "wrong with these leaves, use Diagnose.")  # fmt: skip
            notice = self._window.page("dataset").notice
            notice.show_message(text, tr("Diagnose photos"), lambda: self._photos.diagnose([source]))

    def _on_found_edits(self, found: list[Edits]) -> None:
        """Say whose edits are used; of several, let the user choose."""
        places = [edits.source for edits in found]
        if len(found) == 1:
            text, choose = tr("You edited the same photos in {folder}. These edits are used here; Undo discards them.",
                              folder=places[0]), ""  # fmt: skip
        else:
            text, choose = tr("You edited the same photos in several folders: {folders}. None of these edits are used.",
                              folders=", ".join(places)), tr("Choose edits…")  # fmt: skip
        self._window.page("dataset").notice.show_message(text, choose, lambda: self._choose_edits(found))

    def _choose_edits(self, found: list[Edits]) -> None:
        text, places = tr("Use the edits made in:"), [edits.source for edits in found]
        place, fine = QInputDialog.getItem(self._window, tr("Choose edits"), text, places, 0, False)
        if fine:
            self._document.take_over(found[places.index(place)])

    def _on_failed(self, message: str, details: str) -> None:
        """Suggest a diagnosis for photos without class folders: they may not be meant for training."""
        source = self._document.asked
        diagnose = (tr("Diagnose photos"), lambda: self._photos.diagnose([source]))
        again = diagnose if holds_photos(source) else ("", None)
        self._window.page("dataset").notice.alarm(message, details, *again)

    def _on_state(self, state: State) -> None:
        if state is State.IDLE and self._quitting:
            self._window.close()

    def _on_second_start(self, given: list[str]) -> None:
        self._window.bring_to_front()
        self.open_named(given)

    def _on_open_folder(self) -> None:
        text, last = tr("Open a folder of photos"), self._settings.text("last_folder")
        found = QFileDialog.getExistingDirectory(self._window, text, last)
        self.open_named([found] if found else [])

    def _on_open_manifest(self) -> None:
        text, last = tr("Open a manifest"), self._settings.text("last_folder")
        found, _ = QFileDialog.getOpenFileName(self._window, text, last, "CSV (*.csv)")
        self.open_named([found] if found else [])

    def _on_find(self) -> None:
        search = getattr(self._window.stack.currentWidget(), "search", None)
        if isinstance(search, QLineEdit) and search.isVisible():
            search.setFocus(Qt.FocusReason.ShortcutFocusReason)
            search.selectAll()

    def _on_storage(self) -> None:
        from app.widgets.dialogs import StorageDialog

        StorageDialog(self._window).exec()

    def _on_guide(self) -> None:
        from app.widgets.dialogs import GuideDialog

        GuideDialog(self._window).exec()

    def _on_about(self) -> None:
        text = tr("<h3>LeafClinic {version}</h3><p>Learns leaf diseases from your photos and diagnoses new ones.</p>"
                  "<p>Everything happens on this computer. Only a training on several GPUs opens connections, "
                  "between its processes.</p><p>MIT licence. The window uses Qt (PySide6) under the LGPL 3.</p>",
                  version=__version__)  # fmt: skip
        QMessageBox.about(self._window, tr("About LeafClinic"), text)

    def _may_close(self) -> bool:
        """Ask before closing during work. A training is stopped, and the window closes after it has saved."""
        training, kept = self._training, tr("Only exported results are kept.")
        if not self._quitting and (work := self._work(kept)):
            more = " ".join(dict.fromkeys(work.values()))
            export = self._window.actions_.export_html if kept in work.values() else None
            if not confirm(self._window, " ".join(work), more, tr("Close"), export):
                return False
            self._quitting = training.busy
            training.stop()
        return not training.busy

    def _work(self, kept: str) -> dict[str, str]:
        """Sentences on the work that is going on, and what closing does to it; `kept`: to results."""
        work, lost, diagnosis = {}, tr("Unfinished work is lost."), self._diagnosis
        if self._training.busy:
            work[tr("A training is running.")] = tr("Stop, save and close? You can resume the run later.")
        if any(one.has_process for one in self._writings):
            work[tr("A file is being saved.")] = lost
        if diagnosis.has_process and (waiting := diagnosis.progress[0]):
            work[count(waiting, "{n} photo is not diagnosed yet.", "{n} photos are not diagnosed yet.")] = lost
        unsaved = diagnosis.contents(diagnosis.rows.present) - diagnosis.exported
        if len(unsaved) > FEW or any(plant for _, _, plant in unsaved):  # a plant was grouped by hand
            work[count(len(unsaved), "{n} result is not exported.", "{n} results are not exported.")] = kept
        return work

    def _on_closing(self) -> None:
        self._settings.set("geometry", self._window.saveGeometry())
        self._settings.set("page", self._window.current)


def holds_photos(folder: str) -> bool:
    """Whether photos are in a folder itself, not in its subfolders."""
    try:
        with os.scandir(folder) as entries:
            return any(entry.name.lower().endswith(EXTENSIONS) for entry in entries)
    except OSError:
        return False
