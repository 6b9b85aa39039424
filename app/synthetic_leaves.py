"""Synthetic leaves to try the program with, and the tour: leaves, a minute of training, a first diagnosis."""

from __future__ import annotations

from typing import Any, Final

from PySide6.QtCore import QObject, QTimer

from app import paths
from app.main_window import MainWindow
from app.photo_commands import PhotoCommands
from app.translation import tr
from app.viewmodels.document import Document
from app.viewmodels.model_list import shipped_model
from app.viewmodels.process_model import ProcessModel
from app.viewmodels.training import State, TrainingModel

SHOWN: Final = 8
"""Leaves diagnosed at the end of the tour."""
DEMO: Final = {"photos_per_class": 240, "side": 160}
"""The demo photos of `make train`; with fewer the accuracy is clearly lower."""


class SyntheticLeaves(ProcessModel):
    """Generates the leaves in a process, or finds them, and opens them."""

    def __init__(self, window: MainWindow, document: Document) -> None:
        super().__init__(window)
        self._window, self._document = window, document
        document.given_up.connect(self.close)
        self.failed.connect(document.failed)

    def open(self) -> None:
        self._window.go("dataset")  # which shows the progress
        if not self.has_process:
            self._document.drawing.emit(0, 0)
            self._start_process("demo", {"folder": str(paths.home() / "demo"), **DEMO})

    def _read(self, answer: dict[str, Any]) -> None:
        if "source" in answer:
            self._document.open(answer["source"])
        else:
            self._document.drawing.emit(answer["done"], answer["total"])


class SyntheticTour(QObject):
    """Runs the steps one after another; opening other photos or stopping the training ends the tour."""

    def __init__(self, window: MainWindow, document: Document, training: TrainingModel, photos: PhotoCommands) -> None:
        super().__init__(window)
        self._window, self._document, self._training, self._photos = window, document, training, photos
        self._step = 0
        document.opened.connect(self._on_opened)
        document.given_up.connect(self._on_given_up)
        document.failed.connect(self._leave)
        training.state_changed.connect(self._on_state)
        training.failed.connect(self._leave)

    def start(self) -> None:
        """Generate the leaves, or open existing ones."""
        if self._training.busy:
            text = tr("A training is running. Try the synthetic leaves when it has ended.")
            self._window.go("diagnose").notice.alarm(text)
            return
        self._step = 1
        panel = self._window.go("dataset")
        self._window.actions_.open_demo.trigger()
        panel.notice.show_message(tr("Step 1 of 3: generating synthetic leaves."))

    def _leave(self, *_: object) -> None:
        self._step = 0

    def _on_given_up(self) -> None:
        if self._step == 1:
            self._window.page("dataset").notice.hide()
        self._leave()

    def _on_opened(self) -> None:
        if self._step == 1:
            self._step = 2
            self._window.page("dataset").notice.hide()
            self._window.go("train")
            QTimer.singleShot(0, self._window.actions_.start.trigger)  # after all panels know the open photos
        else:
            self._leave()

    def _on_state(self, state: State) -> None:
        if self._step != 2:
            return
        if state is State.RUNNING:
            QTimer.singleShot(0, self._tell_training)  # after the page has hidden its own messages
        elif state is State.STOPPING:
            self._leave()
        elif state is State.IDLE:
            QTimer.singleShot(0, self._diagnose)  # when the run's last events are read

    def _tell_training(self) -> None:
        text = tr("Step 2 of 3: training a network on them, about a minute. The diagnosis starts automatically.")
        self._window.page("train").notice.show_message(text)

    def _diagnose(self) -> None:
        finished = self._training.view.finished
        if self._step != 2 or finished is None or self._document.table is None:
            return
        self._leave()
        self._window.page("train").notice.hide()
        self._photos.use_model(finished.model_path)
        dataset = self._document.table.dataset
        self._photos.diagnose([dataset.path(row) for row in range(0, len(dataset), max(len(dataset) // SHOWN, 1))])
        text = tr("Step 3 of 3: this network was trained on synthetic leaves and knows only those. For real leaves, "
                  "use the model that came with the program.")  # fmt: skip
        self._window.page("diagnose").notice.show_message(
            text, tr("Use that model"), lambda: self._photos.use_model(shipped_model())
        )
