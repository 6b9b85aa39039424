"""What a training run says, as frozen data: the terminal, the log file and the window read this stream.

Each event goes to one line of JSON and comes back equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cache
from typing import Any, Final, TypeAlias, final, get_args, get_type_hints

from core.device import KernelTime
from core.schema import mapping, parse_json
from core.text import json_line


@final
@dataclass(frozen=True, slots=True)
class Progress:
    """Something takes a while before training (stage "scan", "cache", "compile"); total 0 is unknown."""

    stage: str
    done: int
    total: int


@final
@dataclass(frozen=True, slots=True)
class RunStarted:
    """The run folder, the classes in order, and how much there is to do. Resumed runs have step > 0."""

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


@final
@dataclass(frozen=True, slots=True)
class StepDone:
    """One optimizer step. `seconds` is the whole step, `wait_seconds` what it waited for photos."""

    step: int
    epoch: int
    loss: float
    accuracy: float
    learning_rate: float
    photos: int
    seconds: float
    wait_seconds: float


@final
@dataclass(frozen=True, slots=True)
class KernelTimes:
    """One step with every kernel timed. `seconds` is what the timing itself took."""

    step: int
    times: tuple[KernelTime, ...]
    seconds: float = 0.0


@final
@dataclass(frozen=True, slots=True)
class EpochDone:
    """Means over the epoch, and the validation split's figures with its confusion matrix (true x said)."""

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


@final
@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A checkpoint is on the disk, whole."""

    step: int
    path: str
    best: bool


@final
@dataclass(frozen=True, slots=True)
class Warned:
    """Something the user should know, as a sentence (skipped photos, a leak). urgent: to be acted on while it runs."""

    message: str
    urgent: bool = False


@final
@dataclass(frozen=True, slots=True)
class RunEvaluated:
    """What the finished network is worth, on photos it did not learn from. Shares 0..1, None where not measured.

    judged_on: "test" or "validation"; parts: name, photos and how many right of the judged photos, of lab and field,
    and of the user's own field photos, as far as there are any; border: accuracy from the photos' border alone,
    commonest: by always saying one class; plain, blurred, swapped: accuracy as the photos are and with their background
    changed; off_leaf: of the class maps' mass; words: all of it as sentences.
    """

    judged_on: str
    parts: tuple[tuple[str, int, int], ...]
    border: float | None
    commonest: float | None
    plain: float | None
    blurred: float | None
    swapped: float | None
    off_leaf: float | None
    words: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class RunFinished:
    """How it ended: "completed", "stopped" (resumable) or "early" (patience). Test figures where there is a test.

    border_accuracy: from the border of the same photos alone; field_accuracy: on the user's own field photos.
    """

    reason: str
    step: int
    best_epoch: int
    best_accuracy: float
    test_accuracy: float | None
    model_path: str
    report_path: str
    seconds: float
    border_accuracy: float | None = None
    field_accuracy: float | None = None


@final
@dataclass(frozen=True, slots=True)
class RunFailed:
    """The run ended with an error; `message` is for the user, `details` for the log."""

    message: str
    details: str
    exit_code: int


Event: TypeAlias = (
    Progress
    | RunStarted
    | StepDone
    | KernelTimes
    | EpochDone
    | CheckpointSaved
    | Warned
    | RunEvaluated
    | RunFinished
    | RunFailed
)

WRITTEN_NAMES: Final = {"RunEvaluated": "RunJudged"}
"""Event names in logs and in ``--json`` that differ from the class's name: other programs read them."""
EVENTS: Final[Mapping[str, Any]] = {
    WRITTEN_NAMES.get(e.__name__, e.__name__): e
    for e in get_args(Event)
}


def to_line(event: Event) -> str:
    """The event as one line of JSON without the newline."""
    name = type(event).__name__
    return json_line({"event": WRITTEN_NAMES.get(name, name), **asdict(event)})


def from_line(line: str) -> Event:
    """The event of a line. Raises ValueError if it is none."""
    raw = mapping(parse_json(line))
    kind = EVENTS.get(str(raw.pop("event", "")))
    if kind is None:
        raise ValueError(f"not an event: {line[:80]}")
    hints = _hints(kind)
    try:
        values = {f.name: _read(raw[f.name], hints[f.name]) for f in fields(kind)
                  if f.name in raw or f.default is MISSING}  # fmt: skip
        event: Event = kind(**values)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not an event: {line[:80]}") from error
    return event


@cache
def _hints(kind: type) -> dict[str, Any]:
    """The types of an event's fields; looking them up anew takes ten times as long as reading the line."""
    return get_type_hints(kind)


def _read(value: Any, hint: Any) -> Any:
    if isinstance(value, list):
        if hint == tuple[KernelTime, ...]:
            return tuple(KernelTime(**row) for row in value)
        return tuple(tuple(row) if isinstance(row, list) else row for row in value)
    return value
