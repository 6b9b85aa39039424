"""The folder of a run: settings, events, checkpoints, model and report."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, Final

from core import __version__
from core.config import RunConfig, from_dict, to_dict
from core.data.file_lock import locked
from core.diagnosis.metrics import Metrics
from core.diagnosis.model_identity import BEST, CONFIG, find_model, read_identity, today
from core.errors import DataError, InputError, LeafClinicError, StorageError
from core.percent import rounded
from core.schema import mapping, parse_json
from core.storage import TEMPORARY, check_writable, inside_photos, saving, write_file
from core.text import csv_text, json_text
from core.training.checkpoint import LAST, PREVIOUS
from core.training.events import LOG, METRICS, EpochDone, Event, to_line

SPLIT: Final = "split.csv"
SKIPPED: Final = "left_out.csv"
CONFUSION: Final = "confusion.csv"
REPORT: Final = "report.html"
READINGS: Final = "test_readings.csv"
FILES: Final = (CONFIG, LOG, METRICS, SPLIT, SKIPPED, CONFUSION, REPORT, READINGS, LAST, PREVIOUS, BEST)
"""All files that a run writes; overwriting a run removes only these."""
COLUMNS: Final = (
    "epoch", "step", "train_loss", "train_accuracy", "validation_loss", "validation_accuracy",
    "best", "seconds", "photos_per_second", "memory_bytes",
)
LOCK: Final = ".lock"
"""Locked by the process that trains; the operating system releases it when the process ends."""


class RunFolder:
    """The folder of one run, open for writing by one process. Writing raises StorageError; the run stays resumable.

    Files that a crash left incomplete are removed. Raises InputError if another process trains in it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._logs: dict[str, IO[bytes]] = {}
        self._held = ExitStack()
        with saving(path / LOCK):
            try:
                self._held.enter_context(locked(path / LOCK))
            except BlockingIOError:
                raise InputError(f"Another process is training in {path}. Wait until it ends, or stop it "
                                 "first.") from None
            for leftover in path.glob("*" + TEMPORARY):
                leftover.unlink(missing_ok=True)

    def write_config(self, config: RunConfig) -> None:
        self.write(CONFIG, json_text({"version": __version__, **to_dict(config)}, indent=1))

    def log(self, event: Event) -> None:
        """Append the event to events.jsonl, and an epoch's row to metrics.csv."""
        self._append(LOG, to_line(event) + "\n")
        if isinstance(event, EpochDone):
            self._append(METRICS, csv_text([[getattr(event, name) for name in COLUMNS]]))

    def sync(self) -> dict[str, int]:
        """Flush the logs to the disk; returns the bytes of each."""
        sizes = {}
        for name in (LOG, METRICS):
            with saving(self.path / name):
                file = self._open(name)
                file.flush()
                os.fsync(file.fileno())
            sizes[name] = file.tell()
        return sizes

    def cut(self, sizes: Mapping[str, int]) -> None:
        """Truncate the logs to their sizes at a checkpoint, to 0 where `sizes` has none."""
        self.close()
        for name in (LOG, METRICS):
            path = self.path / name
            if path.exists() and path.stat().st_size > sizes.get(name, 0):
                os.truncate(path, sizes.get(name, 0))

    def write(self, name: str, content: str) -> None:
        write_file(self.path / name, content)

    def write_confusion(self, figures: Metrics) -> None:
        """Write confusion.csv: one row per true class, one column per predicted class."""
        rows = ([label, *counts] for label, counts in zip(figures.classes, figures.confusion, strict=True))
        self.write(CONFUSION, csv_text([["true \\ predicted", *figures.classes], *rows]))

    def close(self) -> None:
        for file in self._logs.values():
            with suppress(OSError):  # a full disk was reported already; lost lines are truncated on resume
                file.close()
        self._logs.clear()

    def release(self) -> None:
        """Close the logs and let other processes train here."""
        self.close()
        self._held.close()

    def discard(self) -> None:
        """Remove all files of a run that has not begun."""
        self.close()
        with suppress(OSError):
            for name in (*FILES, LOCK):
                (self.path / name).unlink(missing_ok=True)
            self.path.rmdir()
        self._held.close()

    def _open(self, name: str) -> IO[bytes]:
        if name not in self._logs:
            self._logs[name] = (self.path / name).open("ab")
            if name == METRICS and self._logs[name].tell() == 0:
                self._logs[name].write(csv_text([COLUMNS]).encode())
        return self._logs[name]

    def _append(self, name: str, text: str) -> None:
        with saving(self.path / name):
            file = self._open(name)
            file.write(text.encode("utf-8", "backslashreplace"))  # file names that are no UTF-8 stay valid JSON
            file.flush()


def create_run(path: Path, config: RunConfig, overwrite: bool) -> RunFolder:
    """Create the folder of a new run with its config.json. Raises InputError if it contains another run."""
    check_new_run(path, config, overwrite)
    with saving(path):
        path.mkdir(parents=True, exist_ok=True)
        folder = RunFolder(path)
        for name in reversed(FILES) if overwrite else ():  # config.json last: without it this would be no run
            (path / name).unlink(missing_ok=True)
    try:
        folder.write_config(config)
    except StorageError:
        folder.discard()
        raise
    return folder


def check_new_run(path: Path, config: RunConfig, overwrite: bool) -> None:
    """Raise InputError if a new run must not be written to `path`."""
    if inside_photos(str(path), [config.data, config.field]):
        raise InputError(f"The run folder {path} would be inside the photo folder. Choose another folder with --out.")
    check_writable(path, "another folder with --out")  # before photos are read and kernels compiled
    for name in filter(None, (config.start, config.split, config.data, config.field, *config.teacher)):
        if os.path.realpath(find_model(Path(name))) in (os.path.realpath(path / file) for file in FILES):
            raise InputError(f"{name} would be replaced by the new run in {path}. Choose another folder with --out.")
    if path.is_dir():
        there_already = {e.name for e in path.iterdir() if e.name != LOCK and not e.name.endswith(TEMPORARY)}
        is_run = find_run(path) is not None
        if is_run and len(there_already) > 1 and not overwrite:  # alone, it is left from an interrupted start
            raise InputError(
                f"{path} already contains a run. Resume it with --resume {path}, replace it with --overwrite, or "
                "choose another folder with --out."
            )
        if there_already and not is_run:
            raise InputError(f"{path} is not empty and contains no run. Choose a new folder with --out.")
    if (path / LOCK).exists():
        RunFolder(path).release()  # another process may be training in it


def find_run(path: Path) -> RunConfig | None:
    """The configuration of the run in a folder; None without a run: another program's config.json may be empty."""
    with suppress(DataError):
        config = read_config(path)
        return config if config.data else None
    return None


def check_earlier_run(path: Path) -> None:
    """Raise InputError if a run cannot be resumed in `path`, before photos are read and kernels compiled."""
    if not os.access(path, os.W_OK | os.X_OK):
        raise InputError(f"There is no permission to write in {path}. Change its permissions, or copy the run.")
    RunFolder(path).release()  # another process may be training in it


def list_sources(model: str, given: Mapping[str, Any]) -> list[str]:
    """What a command must not replace or write into: its model and photos, and the files and photos of the run whose
    folder or model it names."""
    file = find_model(Path(model))
    config = find_run(file.parent)
    run = to_dict(config) if config is not None else {}
    named = (str(values.get(name) or "") for values in (given, run) for name in ("data", "field"))
    return [str(file), *(str(file.with_name(name)) for name in FILES if run), *named]


def log_reading(path: Path, accuracy: float) -> str:
    """Log an evaluation of a run on its test photos. Returns a sentence on earlier ones, or why it is not logged."""
    log, heading, told = path / READINGS, "date,weights,accuracy", ""
    row = csv_text([(today(), read_identity(path).hash, accuracy)])
    try:
        with log.open("a+", encoding="utf-8") as file:
            file.seek(0)
            text = file.read()
            # Two processes that begin the log at the same time write two headings.
            earlier = [line for line in text.splitlines() if line and not line.endswith(heading)]
            if earlier:
                date, _, first = earlier[0].split(",")
                told = (f"This is reading {len(earlier) + 1} of this test split by this run (first: {date}, "
                        f"{rounded(float(first))} %).")  # fmt: skip
            file.write(("" if text.endswith("\n") else "\n" if text else f"{heading}\n") + row)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is damaged: rename it"
        return f"This reading of the test split is not logged: {log} cannot be written ({reason})."
    return told


def read_config(path: Path) -> RunConfig:
    """The configuration of the run in a folder. Raises DataError."""
    file = path / CONFIG
    if not file.is_file():
        raise DataError(f"There is no run to resume in {path}: it has no {CONFIG}. Start a new run with --out {path}.")
    try:
        values = mapping(parse_json(file.read_bytes()))
        values.pop("version", None)
        return from_dict(values)
    except (OSError, ValueError, LeafClinicError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{file} cannot be read ({reason}). The run cannot be resumed.") from error
