"""The verdicts of photos: their thresholds, coverage and known crop, changed without stopping the window."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from PySide6.QtCore import QObject, QTimer, Signal

from app.viewmodels.result import PhotoResult, decide
from app.viewmodels.rows_model import RowsModel
from core.diagnosis.known_crop import list_crops
from core.diagnosis.thresholds import COVERAGE, Thresholds, at_coverage
from core.diagnosis.verdict import DecisionRule

PIECE: Final = 256
SLICE_S: Final = 0.008
"""Seconds of work between two returns to the event loop."""


class Verdicts(QObject):
    """Updates verdicts in slices. Photos of several leaves are all updated: each leaf has probabilities of its own.

    classes_of: the classes of the model in use, none for a photo of another model. Signal: `changed()`.
    """

    changed = Signal()

    def __init__(self, rows: RowsModel, classes_of: Callable[[PhotoResult], Sequence[str]], parent: QObject) -> None:
        super().__init__(parent)
        self._rows, self._classes_of = rows, classes_of
        self.thresholds: Thresholds | None = None
        self.coverage, self.known_crop = COVERAGE, ""
        self._low, self._high, self._at = 1.0, 0.0, 0
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self._run_slice)

    def use_model(self, section: Mapping[str, Any], classes: Sequence[str]) -> None:
        """Use the thresholds in a section of a model with these classes, and the known crop if it has that."""
        self.thresholds = Thresholds.from_section(section, len(classes))
        self.known_crop = self.known_crop if self.known_crop in list_crops(classes) else ""

    @property
    def threshold(self) -> float:
        """The confidence from which a class is named; 0 if the model has none."""
        return at_coverage(self.thresholds.curve, self.coverage).threshold if self.thresholds else 0.0

    def set_coverage(self, coverage: float) -> None:
        """Update all verdicts for the given coverage, 0..1. Nothing is computed again."""
        before, self.coverage = self.threshold, coverage
        self.update(min(before, self.threshold), max(before, self.threshold))

    def set_known_crop(self, crop: str) -> None:
        """Update all verdicts for photos of this crop, "" for any. Nothing is computed again."""
        self.known_crop = crop
        self.update()

    def rule(self, classes: Sequence[str]) -> DecisionRule:
        return DecisionRule(classes, self.thresholds, self.coverage, self.known_crop)

    def decide(self, row: PhotoResult) -> PhotoResult:
        """The row with its verdict; thresholds of another model do not apply."""
        classes = self._classes_of(row)
        return decide(row, self.rule(classes)) if classes else row

    def update(self, low: float = 0.0, high: float = math.inf) -> None:
        """Update photos whose first class has a probability in [low, high), and those of an unfinished update."""
        if self._timer.isActive():
            low, high = min(low, self._low), max(high, self._high)
        self._low, self._high, self._at = low, high, 0
        self._run_slice()

    def stop(self) -> None:
        self._timer.stop()

    def _run_slice(self) -> None:
        rows, end = self._rows.rows, time.perf_counter() + SLICE_S
        while self._at < len(rows) and time.perf_counter() < end:
            for at in range(self._at, min(self._at + PIECE, len(rows))):
                row = rows[at]
                if row.leaves or (row.top and self._low <= row.top[0][1] < self._high):
                    rows[at] = self.decide(row)
            self._at += PIECE
        if self._at < len(rows):
            self._timer.start(0)
            return
        self._rows.replace_all(rows)
        self.changed.emit()
