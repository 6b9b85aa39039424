"""A run at rest: weights, optimizer state and position, written so that no moment of a crash loses it.

``last.safetensors`` is replaced whole; the one before stays as ``previous.safetensors``.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from core.errors import ModelFileError
from core.ops.contract import Array
from core.storage import storage_error
from core.tensor_file import read_tensor_file, write_tensor_file
from core.training.conditions import Conditions
from core.training.run_state import RunState

VERSION: Final = 2
LAST: Final = "last.safetensors"
PREVIOUS: Final = "previous.safetensors"
WEIGHTS: Final = "weights/"
OPTIMIZER: Final = "optimizer/"


@final
@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All that a resumed run needs besides its photos.

    fingerprint: identity of the dataset and its split. logs: bytes of each log file that belong to
    the steps before this checkpoint; what was written later is cut off on resume. teachers: SHA-256 of the files
    that the run learns from. conditions: under which the steps up to here were computed.
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
    """Write ``last`` and keep the one before. Raises StorageError; the last good one stays then."""
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
    """A second name for the file; a copy where the file system has no hard links (FAT, some network drives)."""
    try:
        previous.unlink(missing_ok=True)
        try:
            previous.hardlink_to(last)
        except OSError:
            shutil.copyfile(last, previous)
    except OSError as error:
        raise storage_error(previous, error) from error


def load_checkpoint(folder: Path) -> tuple[Checkpoint | None, str]:
    """The newest whole checkpoint of a run folder and, if that is not the last one, why.

    None where none was written yet. Raises ModelFileError where no checkpoint is whole.
    """
    last, previous = folder / LAST, folder / PREVIOUS
    if not last.exists() and not previous.exists():
        return None, ""
    try:
        return read_checkpoint(last), ""
    except ModelFileError as error:
        if not previous.exists():
            raise
        return read_checkpoint(previous), f"{error} Continuing from {PREVIOUS}, the checkpoint before."


def read_checkpoint(path: Path) -> Checkpoint:
    """Raises ModelFileError where the file is cut, altered or of another version."""
    file = read_tensor_file(path, "checkpoint", VERSION)
    header = file.header
    try:
        state: dict[str, Any] = {k: math.inf if v is None else v for k, v in header["state"].items()}
        return Checkpoint(
            config=dict(header["config"]),
            classes=tuple(header["classes"]),
            fingerprint=str(header["fingerprint"]),
            conditions=Conditions(**header["conditions"]),
            state=RunState(**state),
            logs={str(k): int(v) for k, v in header["logs"].items()},
            weights=_part(file.tensors, WEIGHTS),
            optimizer=_part(file.tensors, OPTIMIZER),
            teachers=tuple(str(digest) for digest in header.get("teachers", ())),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"{path} has a header that cannot be read ({error}).") from error


def _part(tensors: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    return {name.removeprefix(prefix): array for name, array in tensors.items() if name.startswith(prefix)}
