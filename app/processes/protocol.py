"""The protocol between a process and the window: JSON objects as lines, requests in, results out."""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, TextIO, final

from core.errors import LeafClinicError


@final
class Channel:
    """The process's end. `requests` yields dicts in order, and None when the window is gone or cancels."""

    def __init__(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the window handles Ctrl-C in the terminal
        self._out: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace")
        os.dup2(2, 1)  # whatever a library prints goes to the error output
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self.requests: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def send(self, **answer: Any) -> None:
        with self._lock:
            self._out.write(json.dumps(answer, ensure_ascii=True) + "\n")
            self._out.flush()

    def ended(self) -> bool:
        """Whether the work is no longer wanted."""
        return self._ended.is_set()

    def _listen(self) -> None:
        for line in sys.stdin:
            if line.strip() == "stop":
                break
            self.requests.put(json.loads(line))
        self._ended.set()
        self.requests.put(None)


def serve(work: Callable[[Channel, dict[str, Any]], None], ahead: Callable[[], object] = lambda: None) -> int:
    """Take the first request and run the work; errors become a result `failed`. Returns the exit code.

    `ahead` prepares what every request needs, while none has arrived yet.
    """
    channel = Channel()
    try:
        ahead()
        first = channel.requests.get()
        if first is None:
            return 0
        work(channel, first)
    except LeafClinicError as error:
        channel.send(failed=str(error))
        return error.exit_code
    return 0
