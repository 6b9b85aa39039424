"""The run in the window: its process, its state and its history."""

from __future__ import annotations

import enum
import json
import logging
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from PySide6.QtCore import QObject, Signal

from app.project import dataset_name
from app.translation import tr
from app.viewmodels.process_model import ProcessModel, ProcessThread
from app.viewmodels.runs import RunView
from core.config import RunConfig, to_dict
from core.training import events
from core.training.events import CheckpointSaved, RunFailed, RunStarted

log = logging.getLogger(__name__)

BUNDLE_MS: Final = 250
"""Time between two bundles of events; each wakes the window, which draws twice per second."""
CLOSE_MS: Final = 20_000
"""Longest time that `close` waits for the last checkpoint."""


class State(enum.Enum):
    IDLE = "idle"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"


class TrainingModel(ProcessModel):
    """IDLE -> RUNNING <-> PAUSED -> STOPPING -> IDLE; the end of the process always leads to IDLE.

    view: the history of the current run; dataset: the name of its training photos. Signals: `state_changed(State)`;
    `changed(events)` with the new events of `view`, in order; `failed` is emitted after the state is IDLE again.
    """

    state_changed = Signal(object)
    changed = Signal(list)

    def __init__(self, command: Sequence[str], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.state = State.IDLE
        self.folder = self.dataset = ""
        self.view = RunView()
        self._command = list(command)
        self._failure: RunFailed | None = None
        self._resumable = False

    @property
    def busy(self) -> bool:
        return self.state is not State.IDLE

    def start(self, request: str, folder: str = "", history: RunView | None = None) -> None:
        """Start the training process with its first line; folder, history: of the run to resume, if any."""
        if self.busy:
            raise RuntimeError(f"cannot start while {self.state.value}")
        self.folder, self._resumable = folder, bool(folder)
        self.dataset = dataset_name(json.loads(request)["config"]["data"])
        self.view = history or RunView()
        self.view.finished = None
        self.changed.emit([])
        self._failure = None
        self._launch(ProcessThread(self._command, read_event, self, BUNDLE_MS), request)
        self._set(State.RUNNING)

    def pause(self) -> None:
        if self.state is State.RUNNING and self._thread:
            self._thread.send("pause")
            self._set(State.PAUSED)

    def resume(self) -> None:
        if self.state is State.PAUSED and self._thread:
            self._thread.send("resume")
            self._set(State.RUNNING)

    def stop(self) -> None:
        """Request a checkpoint and the end; `state_changed(IDLE)` follows when the process has ended."""
        if self.state in (State.RUNNING, State.PAUSED) and self._thread:
            self._set(State.STOPPING)
            self._thread.send("stop")

    def close(self) -> None:
        """At the program's end: wait for the last checkpoint, then for the thread."""
        thread = self._thread
        if thread is None:
            return
        self.stop()
        if not thread.wait(CLOSE_MS):
            thread.kill()
            thread.wait()

    def _read_answers(self, answers: Sequence[Any]) -> None:
        for event in answers:
            if isinstance(event, RunStarted):
                self.folder = event.folder
            elif isinstance(event, CheckpointSaved):
                self._resumable = True
            elif isinstance(event, RunFailed):
                self._failure = event
        self.view.read(answers)
        self.changed.emit(answers)

    def _on_exit(self, code: int, errors: str) -> None:
        self._set(State.IDLE)
        if self._failure is None and self.view.finished is None:
            self._failure = RunFailed(describe_exit(code, self._resumable), errors, code)
        if self._failure is not None:
            log.error("training failed: %s\n%s", self._failure.message, self._failure.details)
            self.failed.emit(self._failure.message, self._failure.details)

    @property
    def resumable(self) -> str:
        """The folder from which the run can be resumed, "" if there is none."""
        return self.folder if self._resumable and os.path.isdir(self.folder) else ""

    def _set(self, state: State) -> None:
        self.state = state
        self.state_changed.emit(state)


def describe_exit(code: int, resumable: bool) -> str:
    """Why a process ended without reporting it, and what to do; resumable: a checkpoint has been written."""
    text = tr("The training process ended without a result (code {number}).", number=code)
    if code in (-signal.SIGKILL if hasattr(signal, "SIGKILL") else None, 137):
        text = tr("The training process was killed, probably because the computer ran out of memory. Close other "
                  "programs or use a smaller batch size.")  # fmt: skip
    elif code < 0:
        text = tr("The training process crashed (signal {number}).", number=-code)
    saved = tr("Everything up to the last checkpoint is saved: resume the run under “Runs”.")
    return text + " " + (saved if resumable else tr("There is no checkpoint yet: start again."))


def read_event(line: str) -> Any:
    """The event of a line, or None (and a log entry) for other output."""
    try:
        return events.from_line(line)
    except ValueError:
        log.warning("not an event from the training process: %s", line[:200])
        return None


def start_request(config: RunConfig, resume: bool = False) -> str:
    return json.dumps({"config": to_dict(config), "resume": resume, "overwrite": False})


def resume_request(folder: Path) -> str:
    """Resume the run in a folder from its last checkpoint. Raises DataError."""
    from core.training.run_folder import read_config  # not at the start, which it would slow down

    return start_request(replace(read_config(folder), out=str(folder)), resume=True)
