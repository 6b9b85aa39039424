"""The state of a run, and checkpoints of it with weights and optimizer state.

``last.safetensors`` is replaced atomically; the previous one is kept as ``previous.safetensors``.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from core.device import StepResult
from core.diagnosis.metrics import Metrics
from core.errors import ModelFileError
from core.ops.contract import Array
from core.schema import Reader, SchemaError, count, listing, mapping, named, number, record, text, whole
from core.storage import saving
from core.tensor_file import read_tensor_file, write_tensor_file
from core.training.conditions import Conditions

VERSION: Final = 3
LAST: Final = "last.safetensors"
PREVIOUS: Final = "previous.safetensors"
WEIGHTS: Final = "weights/"
OPTIMIZER: Final = "optimizer/"
KINDS: Final = {"str": text, "int": count, "float": lambda value: math.inf if value is None else number(value)}
"""Readers by the type of a dataclass field; JSON has no infinity."""
CLEARLY: Final = 0.999
"""Ratio of losses that counts as an improvement; with 1, patience would never end."""


@dataclass(frozen=True, slots=True)
class RunState:
    """Counts since the start, sums of the current epoch, and the best epoch so far.

    There is no generator state: shuffling, augmentation and dropout are functions of seed, epoch, step and photo. In an
    epoch that is not validated yet, `step_in_epoch` may be at its end.
    """

    step: int = 0
    epoch: int = 0
    step_in_epoch: int = 0
    loss_sum: float = 0.0
    correct: int = 0
    photos: int = 0
    epoch_seconds: float = 0.0
    seconds: float = 0.0
    best_epoch: int = -1
    best_score: float = -1.0
    best_accuracy: float = -1.0
    best_loss: float = float("inf")

    def after_step(self, result: StepResult, seconds: float) -> RunState:
        return replace(
            self, step=self.step + 1, step_in_epoch=self.step_in_epoch + 1,
            loss_sum=self.loss_sum + result.loss * result.photos, correct=self.correct + result.correct,
            photos=self.photos + result.photos, epoch_seconds=self.epoch_seconds + seconds,
            seconds=self.seconds + seconds,
        )  # fmt: skip

    def is_better(self, figures: Metrics) -> bool:
        """Whether the score is higher, or equal with a clearly lower loss."""
        if figures.score == self.best_score:
            return figures.loss < CLEARLY * self.best_loss
        return figures.score > self.best_score

    def after_epoch(self, figures: Metrics, seconds: float) -> RunState:
        """The start of the next epoch, with the best epoch updated."""
        state = self
        if self.is_better(figures):
            state = replace(self, best_epoch=self.epoch, best_score=figures.score, best_accuracy=figures.accuracy,
                            best_loss=figures.loss)  # fmt: skip
        return replace(state.after_unvalidated_epoch(), seconds=self.seconds + seconds)

    def after_unvalidated_epoch(self) -> RunState:
        return replace(
            self, epoch=self.epoch + 1, step_in_epoch=0, loss_sum=0.0, correct=0, photos=0, epoch_seconds=0.0
        )

    @property
    def train_loss(self) -> float:
        return self.loss_sum / max(self.photos, 1)

    @property
    def train_accuracy(self) -> float:
        return self.correct / max(self.photos, 1)

    @property
    def stale_epochs(self) -> int:
        """Finished epochs since the best one."""
        return self.epoch - 1 - self.best_epoch


def _fields_of(kind: type, **other: Reader) -> Reader:
    """A reader of a dataclass's fields; other: of those whose values are not as usual for their type."""
    return record({field.name: KINDS[str(field.type)] for field in fields(kind)} | other)


HEADER: Final = record(
    {
        "config": mapping, "classes": listing(text), "fingerprint": text,
        "conditions": _fields_of(Conditions), "logs": named(count),
        "state": _fields_of(RunState, best_epoch=whole), "origin": text,
    },
    {"teachers": listing(text)},
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a resumed run needs besides its photos.

    fingerprint: identity of the dataset and its split; logs: bytes of each log file, to which it is truncated when the
    run is resumed; teachers: SHA-256 of the teachers' files; origin: hash of the file that training started from;
    conditions: of the steps so far.
    """

    config: Mapping[str, Any]
    classes: tuple[str, ...]
    fingerprint: str
    conditions: Conditions
    state: RunState
    logs: Mapping[str, int]
    weights: Mapping[str, Array]
    optimizer: Mapping[str, Array]
    teachers: tuple[str, ...] = ()
    origin: str = ""


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write the last checkpoint and keep the previous one. Raises StorageError; the last valid one is kept."""
    path = folder / LAST
    header = {
        "config": dict(checkpoint.config), "classes": list(checkpoint.classes), "fingerprint": checkpoint.fingerprint,
        "conditions": asdict(checkpoint.conditions), "logs": dict(checkpoint.logs), "origin": checkpoint.origin,
        "state": {k: None if v == math.inf else v for k, v in asdict(checkpoint.state).items()},
        **({"teachers": list(checkpoint.teachers)} if checkpoint.teachers else {}),
    }  # fmt: skip
    tensors = {WEIGHTS + name: array for name, array in checkpoint.weights.items()}
    tensors |= {OPTIMIZER + name: np.asarray(array) for name, array in checkpoint.optimizer.items()}
    if path.exists():
        _keep_previous(path, folder / PREVIOUS)
    write_tensor_file(path, "checkpoint", VERSION, header, tensors)
    return path


def _keep_previous(last: Path, previous: Path) -> None:
    """Make a hard link, or a copy on file systems without hard links (FAT, some network drives)."""
    with saving(previous):
        previous.unlink(missing_ok=True)
        try:
            previous.hardlink_to(last)
        except OSError:
            shutil.copyfile(last, previous)


def load_checkpoint(folder: Path) -> tuple[Checkpoint | None, str]:
    """The newest valid checkpoint (None: none yet), and why not the last. Raises ModelFileError if none is valid."""
    last, previous = folder / LAST, folder / PREVIOUS
    if not last.exists() and not previous.exists():
        return None, ""
    try:
        return read_checkpoint(last), ""
    except ModelFileError as error:
        if not previous.exists():
            raise
        return read_checkpoint(previous), f"{error} Resuming from the previous checkpoint {PREVIOUS}."


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint. Raises ModelFileError if the file is truncated, altered or of another version."""
    file = read_tensor_file(path, "checkpoint", VERSION)
    try:
        header = HEADER(file.header)
    except SchemaError as error:
        raise ModelFileError(f"{path} has an invalid header ({error}).") from error
    header |= {"conditions": Conditions(**header["conditions"]), "state": RunState(**header["state"])}
    return Checkpoint(**header, weights=_part(file.tensors, WEIGHTS), optimizer=_part(file.tensors, OPTIMIZER))


def _part(tensors: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    return {name.removeprefix(prefix): array for name, array in tensors.items() if name.startswith(prefix)}
