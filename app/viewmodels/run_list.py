"""The runs on the disk: what each reached, and its history to lay over the present one; no Qt."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from app.viewmodels.run_view import RunView
from core.training import events

CONFIG: Final = "config.json"
LOG: Final = "events.jsonl"


@final
@dataclass(frozen=True, slots=True)
class RunSummary:
    """One row of the list. `accuracy` is the best validation accuracy, None before the first epoch."""

    folder: str
    name: str
    model: str
    epochs_done: int
    epochs: int
    accuracy: float | None
    finished: bool
    model_path: str


def list_runs(place: Path) -> list[RunSummary]:
    """Runs in a folder, the newest first; what cannot be read is left out."""
    found = []
    for folder in place.iterdir() if place.is_dir() else ():
        try:
            config = json.loads((folder / CONFIG).read_text("utf-8"))
            found.append((folder.stat().st_mtime, _summary(folder, config)))
        except (OSError, ValueError, AttributeError):
            continue
    return [summary for _, summary in sorted(found, key=lambda pair: -pair[0])]


def read_run(folder: Path) -> RunView:
    """A run's history from its log; lines cut short by a crash are left out."""
    view = RunView()
    view.read(e for e in (_event(line) for line in _lines(folder / LOG)) if e is not None)
    return view


def _summary(folder: Path, config: dict[str, Any]) -> RunSummary:
    epochs = [e for e in _rows(folder / LOG, '"EpochDone"') if isinstance(e, events.EpochDone)]
    ended = [e for e in _rows(folder / LOG, '"RunFinished"') if isinstance(e, events.RunFinished)]
    best = folder / "best.safetensors"
    return RunSummary(
        folder=str(folder),
        name=folder.name,
        model=str(config.get("model", "")),
        epochs_done=max((e.epoch + 1 for e in epochs), default=0),
        epochs=int(config.get("epochs", 0)),
        accuracy=max((e.validation_accuracy for e in epochs), default=None),
        finished=bool(ended) and ended[-1].reason != "stopped",
        model_path=str(best) if best.is_file() else "",
    )


def _rows(path: Path, kind: str) -> list[events.Event]:
    return [e for e in (_event(line) for line in _lines(path) if kind in line[:40]) if e is not None]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []


def _event(line: str) -> events.Event | None:
    try:
        return events.from_line(line)
    except (ValueError, KeyError, TypeError):
        return None
