"""Writes and reads checkpoints: weights, optimizer state and position of a run.

``last.safetensors`` is replaced atomically; the previous one is kept as ``previous.safetensors``.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from core.errors import ModelFileError
from core.ops.contract import Array
from core.schema import Reader, SchemaError, count, listing, mapping, maybe, named, number, record, text, whole
from core.storage import storage_error
from core.tensor_file import read_tensor_file, write_tensor_file
from core.training.conditions import Conditions
from core.training.run_state import RunState

VERSION: Final = 3
LAST: Final = "last.safetensors"
PREVIOUS: Final = "previous.safetensors"
WEIGHTS: Final = "weights/"
OPTIMIZER: Final = "optimizer/"
KINDS: Final = {"str": text, "int": whole, "float": maybe(number, math.inf)}
"""Readers by the type of a dataclass' field; JSON has no infinity."""


def _fields_of(kind: type, optional: Collection[str] = ()) -> Reader:
    readers = {field.name: KINDS[str(field.type)] for field in fields(kind)}
    return record({n: r for n, r in readers.items() if n not in optional}, {n: readers[n] for n in optional})


HEADER: Final = record(
    {
        "config": mapping, "classes": listing(text), "fingerprint": text,
        "conditions": _fields_of(Conditions, ("ranks",)), "state": _fields_of(RunState), "logs": named(count),
    },
    {"teachers": listing(text)},
)  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything that a resumed run needs besides its photos.

    fingerprint: identity of the dataset and its split; logs: bytes of each log file at this checkpoint, to which it is
    truncated on resume; teachers: SHA-256 of the teachers' files; conditions: of the steps so far.
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


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write ``last`` and keep the previous one. On StorageError the last good one stays."""
    path = folder / LAST
    header = {
        "config": dict(checkpoint.config),
        "classes": list(checkpoint.classes),
        "fingerprint": checkpoint.fingerprint,
        "conditions": asdict(checkpoint.conditions),
        "state": {k: None if v == math.inf else v for k, v in asdict(checkpoint.state).items()},
        "logs": dict(checkpoint.logs),
        **({"teachers": list(checkpoint.teachers)} if checkpoint.teachers else {}),
    }
    tensors = {WEIGHTS + name: array for name, array in checkpoint.weights.items()}
    tensors |= {OPTIMIZER + name: np.asarray(array) for name, array in checkpoint.optimizer.items()}
    if path.exists():
        _keep_previous(path, folder / PREVIOUS)
    write_tensor_file(path, "checkpoint", VERSION, header, tensors)
    return path


def _keep_previous(last: Path, previous: Path) -> None:
    """Make a hard link, or a copy on file systems without hard links (FAT, some network drives)."""
    try:
        previous.unlink(missing_ok=True)
        try:
            previous.hardlink_to(last)
        except OSError:
            shutil.copyfile(last, previous)
    except OSError as error:
        raise storage_error(previous, error) from error


def load_checkpoint(folder: Path) -> tuple[Checkpoint | None, str]:
    """The newest valid checkpoint of a run folder and, if it is not the last one, the reason.

    None if there is none yet. Raises ModelFileError if no checkpoint is valid.
    """
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
