"""Collects the events of a run into curves for the report and the window."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from core.training.events import EpochDone, Event, KernelTimes, RunFinished, RunStarted, StepDone, Warned, from_line


@final
@dataclass(slots=True)
class History:
    """The events of a run so far. A resumed run has no repeated steps: its log was truncated at the checkpoint."""

    started: RunStarted | None = None
    steps: list[StepDone] = field(default_factory=list)
    epochs: list[EpochDone] = field(default_factory=list)
    kernels: KernelTimes | None = None
    warnings: dict[str, None] = field(default_factory=dict)
    """In order and unique: a resumed run repeats its warnings."""
    finished: RunFinished | None = None

    def add(self, event: Event) -> None:
        match event:
            case RunStarted():
                self.started = event
            case StepDone():
                self.steps.append(event)
            case EpochDone():
                self.epochs.append(event)
            case KernelTimes():
                self.kernels = event
            case Warned():
                self.warnings[event.message] = None
            case RunFinished():
                self.finished = event

    @property
    def best(self) -> EpochDone | None:
        """The best epoch, whose weights are in the model file."""
        marked = [epoch for epoch in self.epochs if epoch.best]
        return marked[-1] if marked else None

    def waiting_share(self) -> float:
        """Share of the training time spent waiting for photos."""
        total = sum(step.seconds for step in self.steps)
        return sum(step.wait_seconds for step in self.steps) / total if total else 0.0


def read_history(path: Path) -> History:
    """Read an ``events.jsonl``. Invalid lines are skipped: a crash may truncate the last one."""
    history = History()
    with path.open(encoding="utf-8") as file:
        for line in file:
            with suppress(ValueError):
                history.add(from_line(line))
    return history
