"""Runs a job in a thread and yields its progress as events."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator
from typing import Final, Generic, TypeAlias, TypeVar, final

from core.data.dataset import Cancelled, IsCancelled
from core.data.preparation import ReportStage
from core.training.commands import Commands
from core.training.events import Progress

T = TypeVar("T")
Job: TypeAlias = Callable[[ReportStage, IsCancelled], T]

POLL_SECONDS: Final = 0.05
"""Interval between checks for a stop."""


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
