"""Ranks tell each other once a second that they run, also while they prepare photos or compile kernels."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

SECONDS: Final = 1.0


@final
class Heartbeat:
    """Calls `signal` every second from a thread, until this process ends or `stop`."""

    def __init__(self, signal: Callable[[], None]) -> None:
        self._signal, self._ended = signal, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        atexit.register(self.stop)

    def _run(self) -> None:
        while not self._ended.wait(SECONDS):
            self._signal()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        atexit.unregister(self.stop)


@final
class PresenceFiles:
    """Ranks of one machine, each with a file in a folder of theirs whose time it renews."""

    def __init__(self, folder: Path, rank: int, size: int) -> None:
        self._files = {number: folder / f"alive-{number}" for number in range(size)}
        self.renew = self._files.pop(rank).touch
        self._seen = {number: (0, time.monotonic()) for number in self._files}
        """The time of each file, and when this process saw that it had changed."""

    def absent(self, seconds: float) -> tuple[int, ...]:
        """The other ranks that have not renewed theirs for so long, as seen by calls of this function.

        Files are compared with themselves only: the clock that gives their times may be set.
        """
        now = time.monotonic()
        for rank, path in self._files.items():
            renewed = path.stat().st_mtime_ns if path.exists() else 0
            if renewed != self._seen[rank][0]:
                self._seen[rank] = (renewed, now)
        return tuple(rank for rank, (_, seen) in self._seen.items() if now - seen > seconds)
