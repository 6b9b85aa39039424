"""Identity of a model: its name, the hash of its contents and the date of its weights.

The hash is the checksum of the model file (`core.tensor_file`): it changes with weights, classes and thresholds.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from core.errors import InputError, ModelFileError
from core.tensor_file import read_metadata, write_labels

KIND: Final = "model"
VERSION: Final = 1
BEST: Final = "best.safetensors"
CONFIG: Final = "config.json"
"""Names of the model file and of the settings in a run folder."""
SHIPPED: Final = Path(__file__).resolve().parents[2] / "resources" / "models"
"""Folder of the models that come with the program."""
SHIPPED_MODELS: Final[Mapping[str, str]] = MappingProxyType({
    "leaves": "The most accurate model: for most photos, and to start a training from.",
    "small": "For slow computers: faster, but less accurate on field photos.",
    "permissive": "Trained only on photos with a stated permissive licence. It knows fewer crops.",
})
"""Models of SHIPPED by name, and what each is for; the first is the default."""
MODEL_HELP: Final = f"model file, run folder (uses its best model), or shipped model ({', '.join(SHIPPED_MODELS)})"
"""Help of the argument MODEL of a command."""
ORIGIN: Final = "adapted_from"
"""Section with the name of the model that was adapted to a place."""
LONGEST_NAME: Final = 80
"""Characters of a model's name."""
SHOWN: Final = 12
"""Hexadecimal digits of a hash that are shown: two of a million models share them with a probability of 0.2 %."""


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """name: from the file, else that of the file or its run; hash: SHA-256 as 64 hexadecimal digits; date: of the
    weights, as 2026-11-22, "" if unknown."""

    name: str = ""
    hash: str = ""
    date: str = ""

    @property
    def short_hash(self) -> str:
        return self.hash[:SHOWN]


def find_model(path: Path) -> Path:
    """Return the model file of a path: a file, the best model of a run folder, or a shipped model by its name, also
    beside a folder of this name that is no run, such as one of photos."""
    is_folder = os.path.isdir(path)
    is_model = any(map(os.path.exists, (path / BEST, path / CONFIG))) if is_folder else os.path.exists(path)
    if path.name in SHIPPED_MODELS and not is_model and path.absolute().parent == Path.cwd():
        return SHIPPED / f"{path.name}.safetensors"
    return path / BEST if is_folder else path


def require_model(path: Path) -> Path:
    """`find_model`, for a file that exists. Raises ModelFileError."""
    found = find_model(path)
    if not os.path.isfile(found):
        raise ModelFileError(f"There is no file {found}. Give a model file, a run folder, or the name of a model that "
                             f"came with the program: {', '.join(SHIPPED_MODELS)}.")
    return found


def model_name(path: Path) -> str:
    """Name of the file, or of the run whose best model it is."""
    return path.parent.name if path.name == BEST else path.name


def read_identity(path: Path) -> ModelIdentity:
    """Identity of a model file, an ONNX file, or the best model of a run folder. Raises ModelFileError."""
    path = require_model(path)
    if path.suffix.lower() == ".onnx":
        try:
            return ModelIdentity(_printable(path.stem), hashlib.sha256(path.read_bytes()).hexdigest())
        except OSError as error:
            raise ModelFileError(f"{path} cannot be read: {error.strerror}.") from error
    metadata = read_metadata(path, KIND, VERSION)
    name, date = (_printable(metadata.get(label, "")) for label in ("name", "date"))
    return ModelIdentity(name or unnamed(path), metadata.get("checksum", ""), date)


def unnamed(path: Path) -> str:
    """Name of a model whose file has none: that of its run, or of the file."""
    return path.absolute().parent.name if path.name == BEST else path.stem


def rename_model(path: Path, name: str) -> None:
    """Write a name into a model file. Raises InputError, ModelFileError and StorageError."""
    if not name.strip():
        raise InputError("A model needs a name.")
    if path.resolve().parent == SHIPPED:
        raise InputError("A model that came with the program keeps its name.")
    write_labels(path, KIND, VERSION, {"name": _printable(name.strip())})


def default_name(data: str) -> str:
    """Default name of a trained model: the folder of its photos, the date and the time."""
    path = Path(data)
    folder = path.parent.name if path.is_file() else path.name
    return _printable(f"{folder[: LONGEST_NAME - 17]} {time.strftime('%Y-%m-%d %H:%M')}").strip()


def adapted_name(model: str, data: str) -> str:
    """Default name of a model that was adapted to these photos."""
    return f"{model}, {default_name(data)}"


def _printable(text: str) -> str:
    """The printable characters of a name, for one line of a terminal or a table; any file may come from elsewhere."""
    return "".join(c for c in text[:LONGEST_NAME] if c.isprintable())


def today() -> str:
    return time.strftime("%Y-%m-%d")


def as_fields(model: ModelIdentity) -> Mapping[str, str]:
    """The columns of a table and the fields of JSON that name a model."""
    return {"model": model.name, "model_hash": model.hash, "model_date": model.date}
