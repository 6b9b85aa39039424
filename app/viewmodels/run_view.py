"""The state of one run for plots and figures: events in, arrays out. No Qt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from app.viewmodels.series import Floats, Series
from core.device import KernelTime
from core.training import events

RECENT: Final = 50
"""Steps over which speed is averaged: long enough to be calm, short enough to notice a change."""

STEP, LOSS, ACCURACY, RATE, SECONDS, PHOTOS = range(6)
EPOCH_STEP, TRAIN_LOSS, TRAIN_ACCURACY, VALIDATION_LOSS, VALIDATION_ACCURACY, EPOCH_SECONDS = range(6)


@final
@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a plot: x in epochs."""

    name: str
    x: Floats
    y: Floats


@final
class RunView:
    """The history of one run. `dirty` is set by every event and cleared by the plots.

    `best_epoch` is the one whose weights are kept as the model.
    """

    def __init__(self) -> None:
        self.started: events.RunStarted | None = None
        self.finished: events.RunFinished | None = None
        self.evaluated: events.RunEvaluated | None = None
        self.progress: events.Progress | None = None
        self.epoch: events.EpochDone | None = None
        self.best_epoch: events.EpochDone | None = None
        self.kernels: tuple[KernelTime, ...] = ()
        self.warnings: list[str] = []
        self.urgent = ""
        """What must be acted on while the run goes on."""
        self.checkpoint = ""
        self.dirty = True
        self._steps = Series(6)
        self._epochs = Series(6)

    def read(self, arrived: Iterable[Any]) -> None:
        """Process events in order."""
        for event in arrived:
            self._read(event)
        self.dirty = True

    def _read(self, event: Any) -> None:
        match event:
            case events.StepDone():
                self.progress = None  # the work between two epochs is done
                self._steps.add(
                    event.step, event.loss, event.accuracy, event.learning_rate, event.seconds, event.photos
                )
            case events.EpochDone():
                self.epoch, self.progress = event, None
                if event.best or self.best_epoch is None:
                    self.best_epoch = event
                self._epochs.add(
                    event.step, event.train_loss, event.train_accuracy, event.validation_loss,
                    event.validation_accuracy, event.seconds,
                )  # fmt: skip
            case events.KernelTimes():
                self.kernels = event.times
            case events.Progress():
                self.progress = event
            case events.RunStarted():
                self.started, self.progress, self.finished, self.evaluated = event, None, None, None
                self.urgent = ""
                self._steps.cut(STEP, event.step)
                self._epochs.cut(EPOCH_STEP, event.step)
            case events.CheckpointSaved():
                self.checkpoint = event.path
            case events.RunEvaluated():
                self.evaluated = event
            case events.RunFinished():
                self.finished, self.progress = event, None
            case events.Warned():
                self.warnings.append(event.message)
                self.urgent = event.message if event.urgent else ""  # a later note takes the warning back
            case _:
                return

    def curves(self, what: str) -> list[Curve]:
        """Lines for "loss", "accuracy" or "rate"."""
        step, epoch = self._scale(self._steps.column(STEP)), self._scale(self._epochs.column(EPOCH_STEP))
        if what == "rate":
            return [Curve("learning rate", step, self._steps.column(RATE))]
        first, each = (LOSS, (TRAIN_LOSS, VALIDATION_LOSS))
        if what == "accuracy":
            first, each = (ACCURACY, (TRAIN_ACCURACY, VALIDATION_ACCURACY))
        return [
            Curve("each step", step, self._steps.column(first)),
            Curve("training", epoch, self._epochs.column(each[0])),
            Curve("validation", epoch, self._epochs.column(each[1])),
        ]

    @property
    def step(self) -> int:
        done = self._steps.last(STEP)
        return int(done) if done == done else (self.started.step if self.started else 0)

    @property
    def total_steps(self) -> int:
        return self.started.epochs * self.started.steps_per_epoch if self.started else 0

    @property
    def loss(self) -> float:
        return self._steps.last(LOSS)

    @property
    def photos_per_second(self) -> float:
        seconds = float(self._steps.column(SECONDS)[-RECENT:].sum())
        return float(self._steps.column(PHOTOS)[-RECENT:].sum()) / seconds if seconds > 0 else float("nan")

    @property
    def seconds_left(self) -> float:
        """Estimated time: the remaining steps at the recent speed, plus the overhead of each epoch."""
        if self.started is None or not len(self._steps):
            return float("nan")
        a_step = float(np.mean(self._steps.column(SECONDS)[-RECENT:]))
        left = max(self.total_steps - self.step, 0)
        beyond = 0.0
        if len(self._epochs):
            beyond = max(self._epochs.last(EPOCH_SECONDS) - a_step * self.started.steps_per_epoch, 0.0)
        return left * a_step + beyond * left / max(self.started.steps_per_epoch, 1)

    @property
    def finishing(self) -> bool:
        """Whether all steps are done: what remains is the evaluation and the report."""
        return bool(self.total_steps) and self.step >= self.total_steps

    @property
    def best(self) -> float:
        """Validation accuracy of the best epoch so far, NaN before the first epoch."""
        return self.best_epoch.validation_accuracy if self.best_epoch else float("nan")

    def _scale(self, steps: Floats) -> Floats:
        return steps / max(self.started.steps_per_epoch, 1) if self.started else steps
