"""What view models with a process share: starting it, reading its answers, noticing its end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QObject

from app.process_thread import FRAME_MS, ProcessThread
from app.processes.entry import Child, command


class ProcessModel(QObject):
    """Has at most one process at a time. Answers of a process that was ended here are dropped."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._thread: ProcessThread | None = None

    @property
    def has_process(self) -> bool:
        return self._thread is not None

    def cancel(self) -> None:
        """Ask the process to end; decoded photos stay in the cache."""
        if self._thread is not None:
            self._thread.end_input()

    def close(self) -> None:
        """End the process and the thread."""
        self._end_process()

    def _start_process(
        self, name: str, request: dict[str, Any], frame_ms: int = FRAME_MS, child: Child | None = None
    ) -> None:
        """Start a process of `app.processes.entry` with its first request; an active one is ended."""
        self._end_process()
        thread = ProcessThread(command(name), json.loads, self, frame_ms, child)
        thread.bundle.connect(self._on_bundle)
        thread.ended.connect(self._on_ended)
        thread.send(json.dumps(request))
        self._thread = thread
        thread.start()

    def _end_process(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.dispose()

    def _read_answers(self, answers: Sequence[dict[str, Any]]) -> None:
        """Handle answers in the order in which the process gave them."""
        raise NotImplementedError

    def _on_exit(self, code: int, errors: str) -> None:
        """Handle the end of a process that was not ended here; a code below 0 is the signal that killed it."""

    def _on_bundle(self, answers: Sequence[dict[str, Any]]) -> None:
        if self._thread is not None and self.sender() is self._thread:
            self._read_answers(answers)

    def _on_ended(self, code: int, errors: str) -> None:
        if self._thread is not None and self.sender() is self._thread:
            self._end_process()
            self._on_exit(code, errors)
