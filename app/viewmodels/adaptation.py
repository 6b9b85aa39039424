"""A model that a process adapts to the photos of a place, and the effect on held-out photos."""

from __future__ import annotations

import re
import time
from typing import Any

from PySide6.QtCore import QObject, Signal

from app.paths import PHOTO_FOLDERS, folder
from app.viewmodels.process_model import ProcessModel


class AdaptationModel(ProcessModel):
    """Signals: `known(classes)` of the model; `counted(photos by class)`; `measured(sentences, path)`: the effect
    on held-out photos, and the new model, "" if none was written."""

    known = Signal(list)
    counted = Signal(dict)
    measured = Signal(list, str)

    def __init__(self, model: str, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._model = model

    def check(self, photos: str = "") -> None:
        """Check whether the model can be adapted, and count the photos of a folder."""
        PHOTO_FOLDERS.add(photos)
        self._start_process("adapt", {"model": self._model, "data": photos, "name": "", "out": ""})

    def start(self, photos: str, name: str) -> None:
        stem = re.sub(r"[^\w-]+", "-", name)[:60]
        out = str(folder("models") / f"{time.strftime('%Y%m%d-%H%M%S')}-{stem}.safetensors")
        self._start_process("adapt", {"model": self._model, "data": photos, "name": name, "out": out})

    def _read(self, answer: dict[str, Any]) -> None:
        if "classes" in answer:
            self.known.emit(answer["classes"])
        elif "counts" in answer:
            self.counted.emit(answer["counts"])
        else:
            self.measured.emit(answer["effect"], answer["path"])
