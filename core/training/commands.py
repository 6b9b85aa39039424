"""Commands to a running training (pause, resume, stop), and jobs in threads that are stopped by them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator
from concurrent import futures
from concurrent.futures import Future
from typing import Final, Generic, TypeAlias, TypeVar

from core.data.dataset import Cancelled, ReportStage
from core.training.events import Progress

T = TypeVar("T")
Job: TypeAlias = Callable[[ReportStage], T]

POLL_SECONDS: Final = 0.05
"""Interval between checks for a command."""
STOPPED: Final = "Stopped before the training began. Nothing was lost."


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


class ThreadedJob(Generic[T]):
    """A job in its own thread. `wait` yields its progress, then returns its result or raises its error."""

    def __init__(self, job: Job[T], commands: Commands) -> None:
        self._commands = commands
        self._unwanted = threading.Event()
        self._progress: queue.SimpleQueue[Progress] = queue.SimpleQueue()
        self._result: Future[T] = Future()
        threading.Thread(target=self._work, args=(job,), daemon=True).start()

    def wait(self) -> Generator[Progress, None, T]:
        """Yield the newest progress of each stage until the job ends. Raises Cancelled when the run is stopped."""
        shown: dict[str, Progress] = {}
        while True:
            ended = futures.wait([self._result], POLL_SECONDS).done
            newest: dict[str, Progress] = {}
            while not self._progress.empty():
                progress = self._progress.get()
                newest[progress.stage] = progress
            yield from (progress for stage, progress in newest.items() if progress != shown.get(stage))
            shown |= newest
            if ended:
                return self._result.result()
            if self._commands.stopped():
                raise Cancelled(STOPPED)

    def close(self) -> None:
        """Cancel the job and wait for its thread, which must not outlive the interpreter."""
        self._unwanted.set()
        futures.wait([self._result])

    def _report(self, stage: str, done: int, total: int) -> None:
        if self._unwanted.is_set() or self._commands.stopped():
            raise Cancelled(STOPPED)
        self._progress.put(Progress(stage, done, total))

    def _work(self, job: Job[T]) -> None:
        try:
            self._result.set_result(job(self._report))
        except BaseException as error:  # noqa: BLE001 - raised again where the result is waited for
            self._result.set_exception(error)
