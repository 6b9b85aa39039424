"""What a person may tell a run that is going on: pause, go on, stop. Asked for between steps."""

from __future__ import annotations

import threading
from typing import Final, final

POLL_SECONDS: Final = 0.05


@final
class Commands:
    """Set from any thread (or a signal handler), read by the trainer."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._go = threading.Event()
        self._go.set()

    def stop(self) -> None:
        """Save and end after the step at hand."""
        self._stop.set()

    def pause(self) -> None:
        self._go.clear()

    def resume(self) -> None:
        self._go.set()

    def stopped(self) -> bool:
        return self._stop.is_set()

    def wait_while_paused(self) -> None:
        """Return when the run may go on or has to stop."""
        while not self._stop.is_set() and not self._go.wait(POLL_SECONDS):
            pass
