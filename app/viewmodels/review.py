"""Suspicious labels of the open photos, found by a process, and what the user decided about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QUndoCommand

from app import project
from app.crash import sentence
from app.task import Task
from app.translation import tr
from app.viewmodels.document import Document
from app.viewmodels.process_model import ProcessModel


@final
@dataclass(frozen=True, slots=True)
class SuspectPhoto:
    """A row of the table, its label and the suggested one, the probability of that, and how many of the five nearest
    photos have it."""

    row: int
    label: str
    suggested: str
    probability: float
    agreeing: int


@final
class ReviewModel(ProcessModel):
    """Signals: `progress(stage, done, total)`; `changed()` when the open suspects may have changed; `ended()`;
    `failed(sentence, details)`; `saved(path)`."""

    progress = Signal(str, int, int)
    changed = Signal()
    ended = Signal()
    failed = Signal(str, str)
    saved = Signal(object)

    def __init__(self, document: Document, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._document = document
        self._found: list[SuspectPhoto] = []
        self._saving: Task | None = None
        self.kept: set[int] = set()
        """Rows whose label the user confirmed."""
        self.photos = 0
        """Reviewed photos; 0 before a review."""
        self.agreement = 0.0
        document.opened.connect(self.forget)
        document.changed.connect(self.changed)

    def start(self, model: str) -> None:
        """Review the labels with the features of this model."""

        def begin(data: str) -> None:
            self._start_process("review", {"data": data, "model": model})
            self.changed.emit()  # it is busy now; a manifest of edits may have been written first

        self.forget()
        self._document.with_manifest(begin, self.failed.emit)

    def forget(self) -> None:
        """Discard the suspects, because other photos are opened."""
        self._end_process()
        self._found, self.kept, self.photos = [], set(), 0
        self.changed.emit()

    def close(self) -> None:
        super().close()
        if self._saving is not None:
            self._saving.dispose()

    def suspects(self) -> list[SuspectPhoto]:
        """Those the user has not decided about, most suspicious first; an undone decision brings one back."""
        table = self._document.table
        return [one for one in self._found if table is not None and one.row not in self.kept
                and not table.excluded[one.row] and table.label(one.row) == one.label]  # fmt: skip

    def keep(self, row: int) -> None:
        """Confirm the label of a photo."""
        self._document.undo.push(_Keep(self, row))

    def relabel(self, row: int, name: str) -> None:
        self._document.move(np.array([row]), name)

    def undo(self) -> None:
        self._document.undo.undo()

    def save(self, target: str) -> None:
        """Write the photos in use with their labels as a manifest, in the background."""
        table = self._document.table
        if table is None or self._saving is not None:
            return
        now = replace(table, classes=list(table.classes), labels=table.labels.copy(), excluded=table.excluded.copy())
        self._saving = Task(lambda report, cancelled: str(project.write_photos(Path(target), now)), self)
        self._saving.done.connect(self.saved)
        self._saving.failed.connect(self._on_not_saved)
        self._saving.finished.connect(self._on_saving_ended)
        self._saving.start()

    def _on_not_saved(self, error: Exception, details: str) -> None:
        self.failed.emit(sentence(error), details)

    def _on_saving_ended(self) -> None:
        task, self._saving = self._saving, None
        if task is not None:
            task.dispose()

    def _read_answers(self, answers: Sequence[dict[str, Any]]) -> None:
        for answer in answers:
            if "stage" in answer:
                self.progress.emit(answer["stage"], answer["done"], answer["total"])
            elif "failed" in answer:
                self.failed.emit(answer["failed"], "")
            elif "suspects" in answer:
                rows = [(self._document.row_of(raw.pop("path")), raw) for raw in answer["suspects"]]
                self._found = [SuspectPhoto(row, **raw) for row, raw in rows if row is not None]
                self.photos, self.agreement = answer["photos"], answer["agreement"]
                self.changed.emit()

    def _on_exit(self, code: int, errors: str) -> None:
        if code < 0 or (code and errors):
            self.failed.emit(tr("The review ended unexpectedly."), errors)
        self.ended.emit()


class _Keep(QUndoCommand):
    """Confirms a label."""

    def __init__(self, review: ReviewModel, row: int) -> None:
        super().__init__(tr("keep the label"))
        self._review, self._row = review, row

    def redo(self) -> None:
        self._review.kept.add(self._row)
        self._review.changed.emit()

    def undo(self) -> None:
        self._review.kept.discard(self._row)
        self._review.changed.emit()
