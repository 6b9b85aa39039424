"""Checks the open photos in a process: findings, split and data leakage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QObject, Signal

from app.viewmodels.document import Document
from app.viewmodels.process_model import ProcessModel


@dataclass(frozen=True, slots=True)
class Found:
    """One finding: its kind, the photos by row of the table, a sentence."""

    kind: str
    rows: tuple[int, ...]
    message: str


class ExaminationModel(ProcessModel):
    """Signal: `changed()` when a check begins, or has new findings or a split."""

    changed = Signal()

    def __init__(self, document: Document, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._document = document
        self.found: list[Found] = []
        self.split: dict[str, Any] = {}
        self.kinds: dict[str, str] = {}
        self._next: tuple[list[Found], dict[str, Any]] = [], {}  # of the check that runs; the last one stays until then
        document.opened.connect(self.forget)

    def start(self, settings: dict[str, Any]) -> None:
        """Check every photo; `settings` are those of a run (image size, seed, shares)."""

        def begin(data: str) -> None:
            self._next = [], {}
            self._start_process("scan", {**settings, "data": data})
            self.changed.emit()  # it is busy now; a manifest of edits may have been written first

        self._document.with_manifest(begin, self.failed.emit)

    def forget(self) -> None:
        """Discard the findings, because other photos are opened."""
        self.close()
        self.found, self.split, self.kinds = [], {}, {}
        self.changed.emit()

    def _read_answers(self, answers: Sequence[dict[str, Any]]) -> None:
        super()._read_answers(answers)
        self.changed.emit()  # once for all of them

    def _read(self, answer: dict[str, Any]) -> None:
        found, split = self._next
        split |= answer.get("split", {})
        for raw in answer.get("findings", ()):
            rows = (self._document.row_of(path) for path in raw["paths"])
            found.append(Found(raw["kind"], tuple(row for row in rows if row is not None), raw["message"]))
        if "kinds" in answer:  # the end
            self.found, self.split, self.kinds = found, split, answer["kinds"]
