"""Small jobs in a thread of their own, such as listing a folder. Heavy jobs run in a process."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from PySide6.QtCore import QObject, QThread, Signal

from app.crash import error_text
from core.data.dataset import Cancelled, ReportProgress

Job: TypeAlias = Callable[[ReportProgress, Callable[[], bool]], Any]


class Task(QThread):
    """Runs `job(report, cancelled)`; ends with `done(result)`, `failed(sentence, details)`, or nothing if cancelled.
    `report` then raises Cancelled.

    It starts at once, with `slots` connected to the signals of their names: methods, not lambdas that hold the creator,
    which are freed with the task and would free their creator, too. Cancelling does not wait: late results are not
    emitted. It ends with `parent`, and deletes itself at its end.
    """

    progress = Signal(int, int)
    done = Signal(object)
    failed = Signal(str, str)

    def __init__(self, job: Job, parent: QObject, **slots: Any) -> None:
        super().__init__(parent)
        self._job = job
        self._cancelled = threading.Event()
        self._end: Callable[[], None] | None = None
        parent.destroyed.connect(self.dispose)
        self.finished.connect(self._report)  # in the creator's thread, which may have cancelled it by then
        for name, slot in slots.items():
            getattr(self, name).connect(slot)
        self.start()

    @property
    def active(self) -> bool:
        """Whether `done` or `failed` may still be emitted."""
        return not self._cancelled.is_set()

    def cancel(self) -> None:
        self._cancelled.set()

    def dispose(self) -> None:
        """Cancel and wait; a thread object must not be deleted while its thread runs."""
        self.cancel()
        self.wait()

    def run(self) -> None:
        try:
            self._end = partial(self.done.emit, self._job(self._advance, self._cancelled.is_set))
        except Exception as error:  # noqa: BLE001 - whatever it is, the window must show it
            self._end = partial(self.failed.emit, error_text(error), traceback.format_exc())

    def _advance(self, done: int, total: int) -> None:
        if self._cancelled.is_set():
            raise Cancelled
        self.progress.emit(done, total)

    def _report(self) -> None:
        end, active, self._end = self._end, self.active, None
        self.cancel()
        self.deleteLater()
        if end is not None and active:
            end()
