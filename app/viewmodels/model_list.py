"""The available models: those that came with the program, those of the runs, and imported files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app import paths, resources
from app.paths import Settings
from app.translation import tr
from app.viewmodels.row_order import Column
from core.diagnosis.model_identity import BEST, KIND, ORIGIN, SHIPPED_MODELS, VERSION, ModelIdentity, read_identity
from core.errors import ModelFileError
from core.percent import percent
from core.tensor_file import read_metadata

SHIPPED, OWN, IMPORTED = "shipped", "own", "imported"
IMPORTS: Final = "models"
"""Name of the setting with the imported files."""


@dataclass(frozen=True, slots=True)
class KnownModel:
    """One row of the list.

    accuracy: on test photos, else on validation photos, None where the file does not say; purpose: of a shipped model;
    adapted_from: name of the model that it was made from for one place.
    """

    path: str
    origin: str
    identity: ModelIdentity
    classes: int
    accuracy: float | None
    purpose: str = ""
    adapted_from: str = ""


def shipped_model(name: str = next(iter(SHIPPED_MODELS))) -> str:
    """The path of a model that came with the program."""
    return str(Path(resources.place("models")) / f"{name}.safetensors")


def list_models(settings: Settings) -> list[KnownModel]:
    """Shipped, own and imported models, the newest run first; unreadable files are skipped."""
    return [model for path, origin in _places(settings) if (model := _read(path, origin)) is not None]


def keep_import(settings: Settings, path: str) -> None:
    if path not in {known for known, _ in _places(settings)}:
        settings.set(IMPORTS, [path, *settings.paths(IMPORTS)])


def forget_import(settings: Settings, path: str) -> None:
    """Remove an imported file from the list; the file itself is kept."""
    settings.set(IMPORTS, [known for known in settings.paths(IMPORTS) if known != path])


def _places(settings: Settings) -> Iterator[tuple[str, str]]:
    for name in SHIPPED_MODELS:
        yield shipped_model(name), SHIPPED
    found = (paths.home() / "runs").glob(f"*/{BEST}")
    for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True):
        yield str(path), OWN
    for known in settings.paths(IMPORTS):
        yield known, IMPORTED


def _read(path: str, origin: str) -> KnownModel | None:
    try:
        identity = read_identity(Path(path))
        header = json.loads(read_metadata(Path(path), KIND, VERSION)["header"])
        figures = header["figures"]
        accuracy = figures.get("test_accuracy", figures.get("validation_accuracy"))
        purpose = SHIPPED_MODELS.get(Path(path).stem, "") if origin == SHIPPED else ""
        accuracy = None if accuracy is None else float(accuracy)
        adapted = str(header["sections"].get(ORIGIN, {}).get("name", ""))
        return KnownModel(path, origin, identity, len(header["classes"]), accuracy, purpose, adapted)
    except (ModelFileError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def columns() -> list[Column]:
    origins = {SHIPPED: tr("built in"), OWN: tr("own run"), IMPORTED: tr("imported")}
    return [
        Column(tr("Name"), lambda m: m.identity.name, tip=lambda m: f"{m.identity.name}\n{m.path}\n{m.identity.hash}"),
        Column(tr("Origin"), lambda m: tr("adapted from {model}", model=m.adapted_from) if m.adapted_from
               else origins[m.origin]),
        Column(tr("Classes"), lambda m: str(m.classes), lambda m: m.classes, right=True),
        Column(tr("Accuracy"), lambda m: percent(m.accuracy), lambda m: m.accuracy or 0.0, right=True,
               help=tr("On each model's own test photos, or else validation photos: not comparable.")),
        Column(tr("Date"), lambda m: m.identity.date or "–"),
    ]  # fmt: skip
