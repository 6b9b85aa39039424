"""The run in the window: its session, its history, and what the panels read from them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, final

from PySide6.QtCore import QObject, Signal

from app.project import dataset_name
from app.training.session import TrainingSession
from app.viewmodels.run_list import read_run
from app.viewmodels.run_view import RunView
from core.storage import unused


@final
class TrainingModel(QObject):
    """Owns the view of the current run; `dataset` names its training photos.

    `changed` says that something arrived; drawing uses its own timer.
    """

    changed = Signal()

    def __init__(self, session: TrainingSession, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.session = session
        self.view = RunView()
        self.dataset = ""
        session.events.connect(self._on_events)

    def start(self, request: str) -> None:
        """Start a new run with the first line of the training process."""
        self.view = RunView()
        self._begin(request)

    def resume(self, folder: Path, request: str) -> None:
        """Resume an earlier run; its curves so far come from its log."""
        self.view = read_run(folder)
        self.view.finished = None
        self._begin(request, str(folder))

    def _begin(self, request: str, folder: str = "") -> None:
        self.dataset = dataset_name(json.loads(request)["config"]["data"])
        self.changed.emit()
        self.session.start(request, folder)

    def _on_events(self, bundle: list[Any]) -> None:
        self.view.read(bundle)
        self.changed.emit()


def new_run_folder(place: Path, model: str) -> Path:
    """A folder name that sorts by time and names the network."""
    return unused(place / f"{time.strftime('%Y%m%d-%H%M%S')}-{model}")
