"""A thread that owns one child process and passes its output lines to the window in bundles."""

from __future__ import annotations

import queue
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, Final, final

from PySide6.QtCore import QObject, QThread, Signal

from app.processes.entry import Child, open_child

FRAME_MS: Final = 33
"""Least time between two bundles, unless asked otherwise: more than 30 a second show nobody anything."""
TAIL: Final = 4000
"""Characters of the process's error output kept for the report of a failure."""


@final
class ProcessThread(QThread):
    """The thread has no event loop: `run` returns when the process has ended.

    Signals: `bundle` carries what `read` made of the lines, in order; `ended` the exit code (negative: killed by that
    signal) and the tail of the error output. Both are emitted from `run`, so Qt queues them to the window's thread.
    """

    bundle = Signal(list)
    ended = Signal(int, str)

    def __init__(
        self, command: Sequence[str], read: Callable[[str], Any], parent: QObject | None = None,
        frame_ms: int = FRAME_MS, child: Child | None = None,
    ) -> None:  # fmt: skip
        """`child`: the process of this command, if it runs already."""
        super().__init__(parent)
        self._child = child
        self._command, self._read, self._frame_ms = list(command), read, frame_ms
        self._lock = threading.Lock()
        self._waiting: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def send(self, line: str) -> None:
        """Write one line to the process. Lines are short and few in flight, so a pipe's buffer holds them."""
        with self._lock:
            if self._process is None:
                self._waiting.append(line)
            else:
                self._write(line)

    def end_input(self) -> None:
        """Close the process's input: it finishes its work and ends."""
        with self._lock:
            if self._process is not None and self._process.stdin is not None:
                _close(self._process.stdin)

    def kill(self) -> None:
        """End the process at once. Only for work that need not be saved."""
        with self._lock:
            self._killed = True
            if self._process is not None:
                self._process.kill()

    def dispose(self) -> None:
        """End process and thread, and delete this object."""
        self.kill()
        self.wait()
        self.deleteLater()

    def run(self) -> None:
        try:
            child = self._child or open_child(self._command)
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
            self.end_input()
            errors.seek(0)
            self.ended.emit(code, errors.read().decode("utf-8", "replace")[-TAIL:])

    def _take(self, process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        """Send what waits for the process."""
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
            found = [self._read(line) for line in taken if line]
            found = [item for item in found if item is not None]
            if found:
                self.bundle.emit(found)
            if open_:
                self.msleep(self._frame_ms)

    def _write(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            return  # the process has ended; `ended` reports it


def _read_lines(stream: BinaryIO, lines: queue.SimpleQueue[str | None]) -> None:
    for line in stream:
        lines.put(line.decode("utf-8", "replace").strip())
    stream.close()
    lines.put(None)


def _close(stream: Any) -> None:
    try:
        stream.close()
    except OSError:
        return  # the process had already ended
