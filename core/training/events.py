"""Events of a training run, read by the terminal, the log file and the window, and the history that they add up to.

Each event is written as one line of JSON and read back equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from types import UnionType
from typing import Any, Final, TypeAlias, get_args, get_type_hints

from core.device import KernelTime
from core.schema import SchemaError, mapping, parse_json
from core.text import json_line

STAGES: Final = {
    "demo": "Generating synthetic leaves",
    "scan": "Listing photos",
    "cache": "Decoding the photos once",
    "health": "Checking photos",
    "copies": "Looking for near-duplicates",
    "leaves": "Segmenting leaves",
    "compile": "Preparing the kernels",
    "tune": "Measuring the kernels",
    "validation": "Evaluating on validation photos",
    "test": "Evaluating on test photos",
    "field": "Evaluating on your field photos",
    "border": "Evaluating the border baseline",
    "features": "Measuring feature statistics",
    "calibration": "Calibrating confidence",
    "background": "Testing dependence on the background",
    "review": "Computing features of the photos",
    "head": "Learning from your photos",
    "adapt": "Adapting the model",
    "folds": "Comparing labels with predictions",
    "ranges": "Measuring activation ranges",
    "loss": "Measuring the loss of accuracy",
}
"""Stages of a run and of other commands, in words."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a stage of `STAGES`, before or after the steps; total 0 is unknown."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The run has started. `step` is above 0 for a resumed run."""

    folder: str
    model: str
    device: str
    classes: tuple[str, ...]
    train_photos: int
    validation_photos: int
    test_photos: int
    epochs: int
    steps_per_epoch: int
    step: int
    memory_bytes: int
    kernels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StepDone:
    """One optimizer step is done. `seconds`: of the whole step; `wait_seconds`: of waiting for photos."""

    step: int
    epoch: int
    loss: float
    accuracy: float
    learning_rate: float
    photos: int
    seconds: float
    wait_seconds: float


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """Times of all kernels of one step. `seconds`: the overhead of timing."""

    step: int
    times: tuple[KernelTime, ...]
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class EpochDone:
    """An epoch is done: training means, validation metrics and the confusion matrix (true x predicted).

    Photos with several labels have no matrix; accuracy is the share with all labels right at thresholds of 0.5.
    """

    epoch: int
    step: int
    train_loss: float
    train_accuracy: float
    validation_loss: float
    validation_accuracy: float
    best: bool
    confusion: tuple[tuple[int, ...], ...]
    seconds: float
    photos_per_second: float
    memory_bytes: int
    mean_f1: float | None = None
    average_precision: float | None = None


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    step: int
    path: str
    best: bool


@dataclass(frozen=True, slots=True)
class Warned:
    """A warning for the user, as a sentence. urgent: requires action during the run; kind: "leakage" if the measured
    accuracy is too high, else ""."""

    message: str
    urgent: bool = False
    kind: str = ""


@dataclass(frozen=True, slots=True)
class RunEvaluated:
    """The final model has been evaluated. Shares 0..1, None if not measured.

    split: "test" or "validation"; parts: (name, photos, correct predictions) of all evaluated photos and of the
    subsets by setting; border: accuracy of the border baseline; commonest: of always predicting the most frequent
    class; plain, blurred, swapped: accuracy on unchanged, blurred and replaced backgrounds; words: all
    of it as sentences, the first on the accuracy.
    """

    split: str
    parts: tuple[tuple[str, int, int], ...]
    border: float | None
    commonest: float | None
    plain: float | None
    blurred: float | None
    swapped: float | None
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The run has ended: "completed", "stopped" (resumable) or "early" (patience).

    test_accuracy: None without a test split.
    """

    reason: str
    step: int
    best_epoch: int
    best_accuracy: float
    test_accuracy: float | None
    model_path: str
    report_path: str
    seconds: float


@dataclass(frozen=True, slots=True)
class RunFailed:
    """The run ended with an error; `message` is for the user, `details` for the log."""

    message: str
    details: str
    exit_code: int


Event: TypeAlias = (
    Progress | RunStarted | StepDone | KernelTimes | EpochDone | CheckpointSaved | Warned | RunEvaluated | RunFinished
    | RunFailed
)  # fmt: skip

LOG: Final = "events.jsonl"
METRICS: Final = "metrics.csv"
"""Names of the files of a run's events, and of the figures of its epochs."""


EVENTS: Final[Mapping[str, Any]] = {kind.__name__: kind for kind in get_args(Event)}
TYPES: Final = {kind: get_type_hints(kind) for kind in (KernelTime, *EVENTS.values())}


def to_line(event: Event) -> str:
    """Format the event as one line of JSON, without the newline."""
    return json_line({"event": type(event).__name__} | asdict(event))


def from_line(line: str) -> Event:
    """Parse an event. Raises ValueError if the line is not an event."""
    raw = mapping(parse_json(line))
    event: Event = _read(EVENTS.get(str(raw.pop("event", ""))), raw)
    return event


def _read(kind: Any, value: Any) -> Any:
    """A value from JSON as a field of this type, lists as tuples. Raises ValueError if it is of another type."""
    if type(value) is kind or (kind is float and type(value) is int):
        return value
    if kind in TYPES:
        raw = mapping(value)
        return kind(**{f.name: _read(TYPES[kind][f.name], raw.get(f.name)) for f in fields(kind)
                       if f.name in raw or f.default is MISSING})  # fmt: skip
    inner = get_args(kind)
    if isinstance(kind, UnionType):
        return None if value is None else _read(inner[0], value)
    if not inner or not isinstance(value, list):
        raise SchemaError(f"{value!r:.40} is not of the type {kind}")
    kinds = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
    return tuple(_read(*pair) for pair in zip(kinds, value, strict=True))


@dataclass(frozen=True, slots=True)
class History:
    """The events of a run, and its warnings, each once: a resumed run repeats them.

    It repeats no steps: its log is truncated at the checkpoint.
    """

    started: RunStarted | None
    steps: Sequence[StepDone]
    epochs: Sequence[EpochDone]
    warnings: Sequence[str]

    def waiting_share(self) -> float:
        """Share of the training time spent waiting for photos."""
        total = sum(step.seconds for step in self.steps)
        return sum(step.wait_seconds for step in self.steps) / total if total else 0.0


def read_history(path: Path) -> History:
    events = list(read_events(path, (RunStarted, StepDone, EpochDone, Warned)))
    return History(
        next((event for event in reversed(events) if isinstance(event, RunStarted)), None),
        [event for event in events if isinstance(event, StepDone)],
        [event for event in events if isinstance(event, EpochDone)],
        list(dict.fromkeys(event.message for event in events if isinstance(event, Warned))),
    )


def read_events(path: Path, kinds: Sequence[type[Event]] = ()) -> Iterator[Event]:
    """Yield the events of an ``events.jsonl``, or of these kinds; invalid lines are skipped. Raises OSError."""
    marks = [f'"{kind.__name__}"' for kind in kinds]
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if not marks or any(mark in line[:40] for mark in marks):
                with suppress(ValueError):
                    yield from_line(line)
