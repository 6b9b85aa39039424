"""The stored runs: their results, and their history for comparison. No Qt."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from app.project import dataset_name
from app.viewmodels.run_view import RunView
from core.schema import mapping, parse_json
from core.storage import storage_error, write_file
from core.training import events

CONFIG: Final = "config.json"
LOG: Final = "events.jsonl"
NAME: Final = "name.txt"


@final
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
        try:
            config = mapping(parse_json((folder / CONFIG).read_bytes()))
            found.append((folder.stat().st_mtime, _summary(folder, config)))
        except (OSError, ValueError, AttributeError):
            continue
    return [summary for _, summary in sorted(found, key=lambda pair: -pair[0])]


def rename_run(folder: Path, name: str) -> None:
    """Rename a run; its folder, which files refer to, keeps its name. Raises StorageError."""
    write_file(folder / NAME, name.strip())


def delete_run(folder: Path) -> None:
    """Remove a run with everything in its folder. Raises StorageError."""
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise storage_error(folder, error) from error


def read_run(folder: Path) -> RunView:
    """A run's history from its log; lines truncated by a crash are skipped."""
    view = RunView()
    view.read(e for e in (_event(line) for line in _lines(folder / LOG)) if e is not None)
    return view


def _summary(folder: Path, config: dict[str, Any]) -> RunSummary:
    kinds = ('"EpochDone"', '"RunFinished"')
    found = [_event(line) for line in _lines(folder / LOG) if any(kind in line[:40] for kind in kinds)]
    epochs = [e for e in found if isinstance(e, events.EpochDone)]
    ended = [e for e in found if isinstance(e, events.RunFinished)]
    best = folder / "best.safetensors"
    return RunSummary(
        folder=str(folder),
        name=_name(folder),
        model=str(config.get("model", "")),
        epochs_done=max((e.epoch + 1 for e in epochs), default=0),
        epochs=int(config.get("epochs", 0)),
        dataset=dataset_name(str(config.get("data", ""))),
        test=ended[-1].test_accuracy if ended else None,
        accuracy=next((e.validation_accuracy for e in reversed(epochs) if e.best), None),
        finished=bool(ended) and ended[-1].reason != "stopped",
        model_path=str(best) if best.is_file() else "",
    )


def _name(folder: Path) -> str:
    try:
        return (folder / NAME).read_text("utf-8").strip() or folder.name
    except (OSError, ValueError):
        return folder.name


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
