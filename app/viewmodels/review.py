"""Suspicious labels of the open photos, found by a process, and what the user decided about them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from PySide6.QtCore import QObject, Signal

from app import project
from app.paths import PHOTO_FOLDERS
from app.task import Task
from app.viewmodels.document import Document
from app.viewmodels.process_model import ProcessModel


@dataclass(frozen=True, slots=True)
class SuspectPhoto:
    """A row of the table; probability: of the suggested label; agreeing: of the five nearest photos with it."""

    row: int
    label: str
    suggested: str
    probability: float
    agreeing: int


class ReviewModel(ProcessModel):
    """Signals: `changed()` when the open suspects may have changed; `chosen(paths)`: photos to label next, the most
    informative first; `saved(path)`."""

    changed = Signal()
    chosen = Signal(list)
    saved = Signal(object)

    def __init__(self, document: Document, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._document = document
        self.undo = document.undo
        self._found: list[SuspectPhoto] = []
        self._saving: Task | None = None
        self.photos = 0
        """Reviewed photos; 0 before a review."""
        self.learned = 0
        """How many of them the model was trained on."""
        self.agreement = 0.0
        self.few: list[str] = []
        """Classes with too few groups to be reviewed."""
        self._reviewing: project.EditedDataset | None = None  # the table when the review began that is running
        self._before: project.EditedDataset | None = None  # and when that began which found the suspects
        document.opened.connect(self.forget)
        document.changed.connect(self.changed)

    def start(self, model: str, unlabelled: str = "") -> None:
        """Review the labels with the features of this model, or choose photos to label next from a folder."""
        PHOTO_FOLDERS.add(unlabelled)

        def begin(data: str) -> None:
            table = self._document.table
            self._reviewing = None if table is None else replace(table, labels=table.labels.copy())
            self._start_process("review", {"data": data, "model": model, "unlabelled": unlabelled})
            self.changed.emit()  # it is busy now; a manifest of edits may have been written first

        self._document.with_manifest(begin, self.failed.emit)

    def forget(self) -> None:
        """Discard the suspects, because other photos are opened."""
        self._end_process()
        self._found, self.photos = [], 0
        self.changed.emit()

    def suspects(self) -> list[SuspectPhoto]:
        """Those the user has not decided about, most suspicious first; an undone decision brings one back."""
        table, before = self._document.table, self._before
        if table is None or before is None or before.dataset is not table.dataset:
            return []
        now, confirmed = current_names(before, table), self._document.confirmed
        found = (replace(one, label=now.get(one.label, one.label), suggested=now.get(one.suggested, one.suggested))
                 for one in self._found)  # a manifest of edits has names without spaces around them
        return [one for one in found if not table.excluded[one.row]
                and table.label(one.row) == one.label != one.suggested
                and confirmed.get(table.dataset.paths[one.row]) != one.label]  # fmt: skip

    def keep(self, row: int) -> None:
        self._document.confirm(row)

    def relabel(self, row: int, name: str) -> None:
        self._document.move(np.array([row]), name)

    def save(self, target: str) -> None:
        """Write the photos in use with their labels as a manifest, in the background."""
        table = self._document.table
        if table is None or (self._saving is not None and self._saving.active):
            return
        now = table.copy()
        self._saving = Task(lambda report, cancelled: str(project.write_photos(Path(target), now)), self,
                            done=self.saved, failed=self.failed)  # fmt: skip

    def _read(self, answer: dict[str, Any]) -> None:
        if "chosen" in answer:
            self.chosen.emit(answer["chosen"])
        elif "suspects" in answer:
            rows = [(self._document.row_of(raw.pop("path")), raw) for raw in answer["suspects"]]
            self._before = self._reviewing
            self._found = [SuspectPhoto(row, **raw) for row, raw in rows if row is not None]
            self.photos, self.agreement, self.few = answer["photos"], answer["agreement"], answer["few"]
            self.learned = answer["learned"]
            self.changed.emit()


def current_names(before: project.EditedDataset, now: project.EditedDataset) -> dict[str, str]:
    """The class of most photos now that had each class before: its own name, unless the class was renamed."""
    many = len(now.classes)
    pairs = np.bincount(before.labels.astype(np.int64) * many + now.labels, minlength=len(before.classes) * many)
    most = pairs.reshape(len(before.classes), many).argmax(axis=1)
    used = set(before.labels.tolist())
    return {name: now.classes[most[at]] if at in used else name for at, name in enumerate(before.classes)}
