"""Small jobs in a thread of their own: list a folder, read a run. Heavy ones have a process instead."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Any, TypeAlias, final

from PySide6.QtCore import QObject, QThread, Signal

Report: TypeAlias = Callable[[int, int], None]
Job: TypeAlias = Callable[[Report, Callable[[], bool]], Any]


@final
class Task(QThread):
    """Runs `job(report, cancelled)`; its end arrives as `done(result)`, `failed(error)` or nothing when cancelled.

    Cancelling waits for nothing: late results are simply not emitted. Whoever made it disposes of it, and connects
    methods, not lambdas that hold the maker: those die with the task and would take their maker along.
    """

    progress = Signal(int, int)
    done = Signal(object)
    failed = Signal(object, str)

    def __init__(self, job: Job, parent: QObject) -> None:
        super().__init__(parent)
        self._job = job
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()

    def dispose(self) -> None:
        """Cancel, wait, and give the object back; a thread object must not die while its thread runs."""
        self.cancel()
        self.wait()
        self.deleteLater()

    def run(self) -> None:
        try:
            result = self._job(self.progress.emit, self._cancelled.is_set)
        except Exception as error:  # noqa: BLE001 - whatever it is, the window must tell it
            if not self._cancelled.is_set():
                self.failed.emit(error, traceback.format_exc())
            return
        if not self._cancelled.is_set():
            self.done.emit(result)
