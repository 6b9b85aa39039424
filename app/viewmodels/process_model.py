"""A view model with a process: a thread owns the process and passes its output lines to the window in bundles."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, Final

from PySide6.QtCore import QObject, QThread, Signal

from app.processes.entry import command, open_child
from app.translation import tr

FRAME_MS: Final = 33
"""Shortest time between two bundles by default: 30 per second."""
TAIL: Final = 4000
"""Characters of the error output that are reported after a failure."""


class ProcessThread(QThread):
    """The thread has no event loop: `run` returns when the process has ended.

    Signals: `bundle` carries what `read` made of the lines, in order; `ended` the exit code (negative: killed by that
    signal) and the tail of the error output. Both are emitted from `run`, so Qt queues them to the window's thread.
    With `parent` the process ends, too.
    """

    bundle = Signal(list)
    ended = Signal(int, str)

    def __init__(
        self, command: Sequence[str], read: Callable[[str], Any], parent: QObject, frame_ms: int = FRAME_MS
    ) -> None:
        super().__init__(parent)
        parent.destroyed.connect(self.dispose)
        self._command, self._read, self._frame_ms = list(command), read, frame_ms
        self._lock = threading.Lock()
        self._waiting: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False

    def send(self, line: str) -> None:
        """Write one line to the process. Lines are short and few in flight, so a pipe's buffer holds them."""
        with self._lock:
            if self._process is None:
                self._waiting.append(line)
            else:
                self._write(line)

    def kill(self) -> None:
        """End the process at once. Only for work that need not be saved."""
        with self._lock:
            self._killed = True
            if self._process is not None:
                self._process.kill()

    def dispose(self) -> None:
        self.kill()
        self.wait()
        self.deleteLater()

    def run(self) -> None:
        try:
            child = open_child(self._command)
        except OSError as error:
            self.ended.emit(127, str(error))
            return
        with child.errors as errors:
            process = self._take(child.process)
            lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
            reader = threading.Thread(target=_read_lines, args=(process.stdout, lines), daemon=True)
            reader.start()
            self._relay(lines)
            reader.join()
            code = process.wait()
            assert process.stdin is not None
            with self._lock, contextlib.suppress(OSError):  # what was written last cannot be flushed any more
                process.stdin.close()
            errors.seek(0)
            self.ended.emit(code, errors.read().decode("utf-8", "replace")[-TAIL:])

    def _take(self, process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        with self._lock:
            self._process = process
            for line in self._waiting:
                self._write(line)
            if self._killed:
                process.kill()
        return process

    def _relay(self, lines: queue.SimpleQueue[str | None]) -> None:
        open_ = True
        while open_:
            taken = [lines.get()]
            while not lines.empty():
                taken.append(lines.get())
            open_ = taken[-1] is not None
            found = [item for line in taken if line and (item := self._read(line)) is not None]
            if found:
                self.bundle.emit(found)
            if open_:
                self.msleep(self._frame_ms)

    def _write(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # the process has ended; `ended` reports it
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()


def _read_lines(stream: BinaryIO, lines: queue.SimpleQueue[str | None]) -> None:
    for line in stream:
        if line.endswith(b"\n"):  # a killed process may leave half a line
            lines.put(line.decode("utf-8", "replace").strip())
    stream.close()
    lines.put(None)


class ProcessModel(QObject):
    """Has at most one process at a time. Answers of a process that was ended here are dropped.

    Signals: `stage(name, done, total)` and `failed(sentence, details)` as the process reports them; `ended()` when it
    ended by itself.
    """

    stage = Signal(str, int, int)
    failed = Signal(str, str)
    ended = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._thread: ProcessThread | None = None

    @property
    def has_process(self) -> bool:
        return self._thread is not None

    def cancel(self) -> None:
        """Ask the process to end; decoded photos stay in the cache."""
        if self._thread is not None:
            self._thread.send("stop")

    def close(self) -> None:
        self._end_process()

    def _start_process(self, name: str, request: dict[str, Any], frame_ms: int = FRAME_MS) -> None:
        """Start a process of `app.processes.entry` with its first request; an active one is ended."""
        self._launch(ProcessThread(command(name), json.loads, self, frame_ms), json.dumps(request))

    def _launch(self, thread: ProcessThread, first: str) -> None:
        self._end_process()
        thread.bundle.connect(self._on_bundle)
        thread.ended.connect(self._on_ended)
        thread.send(first)
        self._thread = thread
        thread.start()

    def _end_process(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.dispose()

    def _read_answers(self, answers: Sequence[dict[str, Any]]) -> None:
        for answer in answers:
            if "failed" in answer:
                self._fail(answer["failed"])
            elif "stage" in answer:
                self.stage.emit(answer["stage"], answer["done"], answer["total"])
            else:
                self._read(answer)

    def _read(self, answer: dict[str, Any]) -> None:
        raise NotImplementedError

    def _fail(self, message: str) -> None:
        self.failed.emit(message, "")

    def _on_exit(self, code: int, errors: str) -> None:
        """Report a process that was killed (a code below 0 is the signal), or that failed without reporting it."""
        if code < 0 or (code and errors):
            text = tr("A process of the program ended unexpectedly (code {number}). Try again.", number=code)
            self.failed.emit(text, errors)

    def _on_bundle(self, answers: Sequence[dict[str, Any]]) -> None:
        if self._thread is not None and self.sender() is self._thread:
            self._read_answers(answers)

    def _on_ended(self, code: int, errors: str) -> None:
        if self._thread is not None and self.sender() is self._thread:
            self._end_process()
            self._on_exit(code, errors)
            self.ended.emit()
