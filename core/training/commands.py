"""Commands to a running training (pause, resume, stop), and jobs in threads that are stopped by them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator
from typing import Final, Generic, TypeAlias, TypeVar, final

from core.data.dataset import Cancelled, IsCancelled, ReportStage
from core.training.events import Progress

T = TypeVar("T")
Job: TypeAlias = Callable[[ReportStage, IsCancelled], T]

POLL_SECONDS: Final = 0.05
"""Interval between checks for a command."""


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
        while not self._stop.is_set() and not self._go.wait(POLL_SECONDS):
            pass


@final
class ThreadedJob(Generic[T]):
    """A job in its own thread. `wait` yields its progress, then returns its result or raises its error."""

    def __init__(self, job: Job[T], commands: Commands) -> None:
        self._job, self._commands = job, commands
        self._unwanted = threading.Event()
        self._progress: queue.SimpleQueue[Progress] = queue.SimpleQueue()
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def wait(self) -> Generator[Progress, None, T]:
        """Yield the newest progress of each stage until the job ends. Raises Cancelled when the run is stopped."""
        while True:
            self._thread.join(POLL_SECONDS)
            alive = self._thread.is_alive()
            newest: dict[str, Progress] = {}
            while not self._progress.empty():
                progress = self._progress.get()
                newest[progress.stage] = progress
            yield from newest.values()
            if not alive:
                break
            if self._commands.stopped():
                raise Cancelled("Stopped before the training began. Nothing was lost.")
        if self._error is not None:
            raise self._error
        return self._result[0]

    def cancel(self) -> None:
        """Cancel the job and wait for its thread, which must not outlive the interpreter."""
        self._unwanted.set()
        self._thread.join()

    def _is_cancelled(self) -> bool:
        return self._unwanted.is_set() or self._commands.stopped()

    def _work(self) -> None:
        try:
            self._result.append(self._job(lambda *now: self._progress.put(Progress(*now)), self._is_cancelled))
        except BaseException as error:  # noqa: BLE001 - raised again where the result is waited for
            self._error = error
