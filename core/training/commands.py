"""Commands to a running training: pause, resume, stop. They are read between steps."""

from __future__ import annotations

import threading
from typing import Final, final

POLL_SECONDS: Final = 0.05


@final
class Commands:
    """Flags set from any thread (or a signal handler) and read by the trainer."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._go = threading.Event()
        self._go.set()

    def stop(self) -> None:
        """Save a checkpoint and end after the current step."""
        self._stop.set()

    def pause(self) -> None:
        self._go.clear()

    def resume(self) -> None:
        self._go.set()

    def stopped(self) -> bool:
        return self._stop.is_set()

    def paused(self) -> bool:
        return not self._go.is_set()

    def wait_while_paused(self) -> None:
        """Return when the run is resumed or stopped."""
        while not self._stop.is_set() and not self._go.wait(POLL_SECONDS):
            pass
