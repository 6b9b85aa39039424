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
        self._begun = time.time()
        self._files = {number: folder / f"alive-{number}" for number in range(size)}
        self.renew = self._files.pop(rank).touch

    def absent(self, seconds: float) -> tuple[int, ...]:
        """The other ranks that have not renewed theirs for so long."""
        limit = time.time() - seconds
        times = {rank: path.stat().st_mtime if path.exists() else self._begun for rank, path in self._files.items()}
        return tuple(rank for rank, renewed in times.items() if renewed < limit)
