"""A file written by a process, so that the window never waits for a page of many photos."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from PySide6.QtCore import QObject, QTimer, Signal

from app.translation import language, sentence, tr
from app.viewmodels.process_model import ProcessModel
from app.viewmodels.result import PhotoResult, to_line

RESULTS_PER_SLICE: Final = 64
"""Results sent between two returns to the event loop."""
FRAME_MS: Final = 150


class Writing(ProcessModel):
    """Writes files one after another. Signals: `busy(True)` for each file, `progress(done, total)`, `written(answer)`
    with path and notes; after the last one `failed` with those that were not saved, and `busy(False)`."""

    progress = Signal(int, int)
    written = Signal(dict)
    busy = Signal(bool)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.target = ""
        self._queue: deque[tuple[dict[str, Any], Sequence[PhotoResult]]] = deque()
        self._failures: list[tuple[str, str]] = []
        self._rows: Sequence[PhotoResult] = ()
        self._sent = 0
        self._reported = False
        self._feeding = QTimer(self, singleShot=True, interval=0)
        self._feeding.timeout.connect(self._feed)

    def start(self, kind: str, target: str, rows: Sequence[PhotoResult] = (), **asked: Any) -> None:
        """Write `target` after the files before it: kind and arguments as in `app.processes.writing`."""
        first = {"kind": kind, "target": target, "language": language(), "count": len(rows), **asked}
        self._queue.append((first, rows))
        if self._thread is None:
            self._begin()

    def cancel(self) -> None:
        """Cancel the file that is being written; an existing file stays as it was."""
        if self._thread is not None:
            self._end_process()
            self._begin()

    def _begin(self) -> None:
        """Begin the next file, or report the end."""
        if self._queue:
            first, rows = self._queue.popleft()
            self._start_process("writing", first, FRAME_MS)
            self.target, self._rows, self._sent, self._reported = first["target"], rows, 0, False
            self.busy.emit(True)
            return
        if self._failures:
            texts, details = zip(*self._failures, strict=True)
            self._failures = []
            self.failed.emit(" ".join(map(sentence, texts)), "\n".join(filter(None, details)))
        self.busy.emit(False)

    def _end_process(self) -> None:
        super()._end_process()
        self._feeding.stop()
        self._rows = ()

    def _feed(self) -> None:
        if self._thread is None:
            return
        for row in self._rows[self._sent : self._sent + RESULTS_PER_SLICE]:
            self._thread.send(json.dumps(to_line(row)))
        self._sent += RESULTS_PER_SLICE
        if self._sent < len(self._rows):
            self._feeding.start()

    def _read(self, answer: dict[str, Any]) -> None:
        if "ready" in answer:
            self._feed()
        elif "done" in answer:
            self.progress.emit(answer["done"], answer["total"])
        elif "written" in answer:
            self._reported = True
            self.written.emit(answer)

    def _fail(self, message: str) -> None:
        self._reported = True
        self._failures.append((message, ""))

    def _on_exit(self, code: int, errors: str) -> None:
        if not self._reported:
            text = tr("{name} could not be saved: the process that saves it ended unexpectedly (code {number}).",
                      name=self.target, number=code)  # fmt: skip
            self._failures.append((text, errors))
        self._begin()
