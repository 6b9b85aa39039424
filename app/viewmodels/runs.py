"""The history of a run for plots and figures, and the list of stored runs. No Qt."""

from __future__ import annotations

import csv
import shutil
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.project import dataset_name
from core.device import KernelTime
from core.diagnosis.model_identity import BEST, CONFIG
from core.schema import mapping, parse_json
from core.storage import saving, write_file
from core.training import events

RECENT: Final = 50
"""Steps over which the speed is averaged."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a plot: x in epochs."""

    name: str
    x: Floats
    y: Floats


class RunView:
    """The history of one run; `best_epoch` is kept as the model."""

    def __init__(self) -> None:
        self.started: events.RunStarted | None = None
        self.finished: events.RunFinished | None = None
        self.evaluated: events.RunEvaluated | None = None
        self.progress: events.Progress | None = None
        self.epoch: events.EpochDone | None = None
        self.best_epoch: events.EpochDone | None = None
        self.kernels: tuple[KernelTime, ...] = ()
        self.warnings: list[events.Warned] = []
        self.urgent = ""
        """What must be acted on while the run goes on."""
        self._steps = Series("step", "loss", "accuracy", "learning_rate", "seconds", "photos")
        self._epochs = Series(
            "step", "train_loss", "train_accuracy", "validation_loss", "validation_accuracy", "seconds"
        )

    def read(self, arrived: Iterable[Any]) -> None:
        for event in arrived:
            match event:
                case events.StepDone():
                    self.progress = None  # the work between two epochs is done
                    self._steps.add(event)
                case events.EpochDone():
                    self.epoch, self.progress = event, None
                    if event.best or self.best_epoch is None:
                        self.best_epoch = event
                    self._epochs.add(event)
                case events.KernelTimes():
                    self.kernels = event.times
                case events.Progress():
                    self.progress = event
                case events.RunStarted():
                    self.started, self.progress, self.finished, self.evaluated = event, None, None, None
                    self.urgent = ""
                    self._steps.cut(event.step)
                    self._epochs.cut(event.step)
                case events.RunEvaluated():
                    self.evaluated = event
                case events.RunFinished():
                    self.finished, self.progress = event, None
                case events.Warned():
                    self.warnings.append(event)
                    self.urgent = event.message if event.urgent else ""  # a later note takes the warning back

    def curves(self, what: str) -> list[Curve]:
        """Lines for "loss", "accuracy" or "rate"."""
        step, epoch = self._scale(self._steps.column("step")), self._scale(self._epochs.column("step"))
        if what == "rate":
            return [Curve("learning rate", step, self._steps.column("learning_rate"))]
        return [
            Curve("each step", step, self._steps.column(what)),
            Curve("training", epoch, self._epochs.column(f"train_{what}")),
            Curve("validation", epoch, self._epochs.column(f"validation_{what}")),
        ]

    @property
    def name(self) -> str:
        return run_name(Path(self.started.folder)) if self.started else ""

    @property
    def step(self) -> int:
        done = self._steps.last("step")
        return int(done) if done == done else (self.started.step if self.started else 0)

    @property
    def total_steps(self) -> int:
        return self.started.epochs * self.started.steps_per_epoch if self.started else 0

    @property
    def loss(self) -> float:
        return self._steps.last("loss")

    @property
    def photos_per_second(self) -> float:
        seconds = float(self._steps.column("seconds")[-RECENT:].sum())
        return float(self._steps.column("photos")[-RECENT:].sum()) / seconds if seconds > 0 else float("nan")

    @property
    def seconds_left(self) -> float:
        """Estimated time: the remaining steps at the recent speed, plus the overhead of each epoch."""
        if self.started is None or not len(self._steps):
            return float("nan")
        a_step = float(np.mean(self._steps.column("seconds")[-RECENT:]))
        left = max(self.total_steps - self.step, 0)
        beyond = max(self._epochs.last("seconds") - a_step * self.started.steps_per_epoch, 0.0) if self._epochs else 0.0
        return left * a_step + beyond * left / max(self.started.steps_per_epoch, 1)

    @property
    def best(self) -> float:
        """Validation accuracy of the best epoch so far, NaN before the first epoch."""
        return self.best_epoch.validation_accuracy if self.best_epoch else float("nan")

    @property
    def several(self) -> bool:
        """Whether photos have several labels: accuracy is then the share with all labels right at threshold 0.5."""
        return self.epoch is not None and self.epoch.mean_f1 is not None

    def _scale(self, steps: Floats) -> Floats:
        return steps / max(self.started.steps_per_epoch, 1) if self.started else steps


Floats: TypeAlias = NDArray[np.float64]


class Series:
    """Figures of events, by the names of their fields, in columns to which appending takes constant time."""

    def __init__(self, *names: str) -> None:
        self._columns = {name: array("d") for name in names}

    def __len__(self) -> int:
        return len(self._columns["step"])

    def add(self, event: object) -> None:
        for name, column in self._columns.items():
            column.append(getattr(event, name))

    def column(self, name: str) -> Floats:
        return np.array(self._columns[name])

    def last(self, name: str) -> float:
        return self._columns[name][-1] if len(self) else float("nan")

    def cut(self, step: int) -> None:
        """Remove the events after a step."""
        length = bisect_right(self._columns["step"], step)
        for column in self._columns.values():
            del column[length:]


NAME: Final = "name.txt"


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One row of the list.

    `name`: of the folder, or given by the user; `dataset`: the training photos; `accuracy`: on the validation photos
    after the best epoch; `test`: on the test photos; None if unknown.
    """

    folder: str
    name: str
    model: str
    epochs_done: int
    epochs: int
    dataset: str
    accuracy: float | None
    test: float | None
    finished: bool
    model_path: str


def list_runs(place: Path) -> list[RunSummary]:
    """Runs in a folder, newest first; unreadable ones are skipped."""
    found = []
    for folder in place.iterdir() if place.is_dir() else ():
        with suppress(OSError, ValueError, LookupError, TypeError, OverflowError):
            config = mapping(parse_json((folder / CONFIG).read_bytes()))
            found.append((folder.stat().st_mtime, _summary(folder, config)))
    return [summary for _, summary in sorted(found, key=lambda pair: -pair[0])]


def rename_run(folder: Path, name: str) -> None:
    """Rename a run; its folder, which files refer to, keeps its name. Raises StorageError."""
    write_file(folder / NAME, name.strip())


def delete_run(folder: Path) -> None:
    """Remove a run with everything in its folder. Raises StorageError, and InputError while a process trains in it."""
    from core.training.run_folder import RunFolder  # not at the start, which it would slow down

    RunFolder(folder).release()
    with saving(folder):
        shutil.rmtree(folder)


def read_run(folder: Path) -> RunView:
    """A run's history from its log, with files where they are now; lines truncated by a crash are skipped."""
    view = RunView()
    with suppress(OSError):
        view.read(events.read_events(folder / events.LOG))
    if view.started is not None:
        view.started = replace(view.started, folder=str(folder))
    if (end := view.finished) is not None:
        from core.training.run_folder import REPORT  # not at the start, which it would slow down
        model, report = end.model_path and str(folder / BEST), end.report_path and str(folder / REPORT)
        view.finished = replace(end, model_path=model, report_path=report)
    return view


def _summary(folder: Path, config: dict[str, Any]) -> RunSummary:
    found: list[events.Event] = []
    with suppress(OSError):
        found += events.read_events(folder / events.LOG, (events.RunStarted, events.RunFinished))
    epochs = _epochs(folder / events.METRICS)
    ended = [e for e in found if isinstance(e, events.RunFinished)]
    best = folder / BEST
    return RunSummary(
        folder=str(folder),
        name=run_name(folder),
        model=next((e.model for e in found if isinstance(e, events.RunStarted)), str(config.get("model", ""))),
        epochs_done=int(epochs[-1]["epoch"]) + 1 if epochs else 0,
        epochs=int(config.get("epochs", 0)),
        dataset=dataset_name(str(config.get("data", ""))),
        test=ended[-1].test_accuracy if ended else None,
        accuracy=next((float(e["validation_accuracy"]) for e in reversed(epochs) if e["best"] == "True"), None),
        finished=bool(ended) and ended[-1].reason != "stopped",
        model_path=str(best) if best.is_file() else "",
    )


def _epochs(path: Path) -> list[dict[str, str]]:
    """The epochs of a run. The log has a confusion matrix for each: 50 runs of 60 classes would take ten seconds."""
    with suppress(OSError, ValueError, csv.Error), path.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row.get("memory_bytes")]  # a crash may have torn the last line
    return []


def run_name(folder: Path) -> str:
    """The name of a run: of its folder, or given by the user."""
    try:
        return (folder / NAME).read_text("utf-8").strip() or folder.name
    except (OSError, ValueError):
        return folder.name
