"""Verdicts of many photos at another coverage or for a known crop, updated without stopping the window."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, final

from PySide6.QtCore import QObject, QTimer, Signal

from app.viewmodels.result import PhotoResult
from app.viewmodels.rows_model import RowsModel

PIECE: Final = 256
SLICE_S: Final = 0.008
"""Seconds of work between two returns to the event loop."""


@final
class VerdictUpdate(QObject):
    """Updates verdicts in slices. Photos of several leaves are all updated: each leaf has probabilities of its own.

    Signal: `ended()`.
    """

    ended = Signal()

    def __init__(self, rows: RowsModel, decide: Callable[[PhotoResult], PhotoResult], parent: QObject) -> None:
        super().__init__(parent)
        self._rows, self._decide = rows, decide
        self._low, self._high = 1.0, 0.0
        self._at = 0
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self._run_slice)

    @property
    def active(self) -> bool:
        return self._timer.isActive()

    def start(self, low: float, high: float) -> None:
        """Start for photos whose first class has a probability in [low, high), and those of an unfinished start."""
        if self.active:
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
                    rows[at] = self._decide(row)
            self._at += PIECE
        if self._at < len(rows):
            self._timer.start(0)
            return
        self._rows.replace_all(rows)
        self.ended.emit()
