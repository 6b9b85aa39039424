"""Diagnoses as they come: a process that knows the model, a queue of photos, rows of results."""

from __future__ import annotations

import base64
import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from PySide6.QtCore import QObject, Signal

from app.process_thread import ProcessThread
from app.processes.entry import command
from app.task import Task
from app.translation import sentence, tr
from app.viewmodels.confusion import readable
from app.viewmodels.table import Column, RowsModel
from core.ops.contract import Array

IN_FLIGHT: Final = 24
"""Photos the process has been told of; the rest waits here and can be cancelled."""
SUFFIXES: Final = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif"})


@final
@dataclass(frozen=True, slots=True)
class Result:
    """One photo: waiting, or with its answer.

    sure: the verdict is a class (else `reason` says why not); notes: further sentences; diseased: percent of the
    leaf's area, or None; maps: class maps uint8 ``(height, width)`` by class, as small as they came.
    """

    id: int
    path: str
    done: bool = False
    verdict: str = ""
    top: tuple[tuple[str, float], ...] = ()
    error: str = ""
    milliseconds: float = 0.0
    sure: bool = True
    reason: str = ""
    notes: tuple[str, ...] = ()
    diseased: float | None = None
    maps: dict[str, Array] = field(default_factory=dict)

    @property
    def probability(self) -> float:
        return self.top[0][1] if self.top else 0.0


@final
class DiagnosisModel(QObject):
    """Signals: `model_ready(name)`, `failed(sentence, details)`, `result(Result)`, `busy(waiting, total)`."""

    model_ready = Signal(str)
    failed = Signal(str, str)
    result = Signal(object)
    busy = Signal(int, int)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.rows = RowsModel(columns(), self)
        self.model_path = ""
        self.ready: dict[str, Any] = {}
        self._thread: ProcessThread | None = None
        self._waiting: deque[int] = deque()
        self._flying: set[int] = set()
        self._total = 0
        self._listing: list[Task] = []

    @property
    def working(self) -> bool:
        return bool(self._waiting or self._flying)

    def load(self, model_path: str) -> None:
        """Start the process with this model; the one before ends."""
        self.close()
        self.model_path, self.ready = model_path, {}
        thread = ProcessThread(command("diagnose"), json.loads, self)
        thread.bundle.connect(self._on_bundle)
        thread.ended.connect(self._on_ended)
        thread.send(json.dumps({"model": model_path, "device": "auto"}))
        self._thread = thread
        thread.start()

    def add(self, paths: Sequence[str]) -> None:
        """Diagnose photos and all photos in folders, which are listed in the background."""
        if not any(Path(path).is_dir() for path in paths):
            self._add(list(paths))
            return
        task = Task(lambda report, cancelled: list(photo_files(paths)), self)
        task.done.connect(self._add)
        self._listing.append(task)
        task.start()

    def _add(self, found: list[str]) -> None:
        if not found:
            self.failed.emit(tr("There are no photos in this folder."), "")
        first = len(self.rows.rows)
        self.rows.append([Result(first + at, path) for at, path in enumerate(found)])
        self._waiting += range(first, first + len(found))
        self._total = len(self._waiting) + len(self._flying)
        self._feed()

    def cancel(self) -> None:
        """Give up the photos that still wait."""
        for at in self._waiting:
            self.rows.replace(at, replace(self.rows.rows[at], done=True, error=tr("cancelled")))
        self._waiting.clear()
        self.busy.emit(len(self._flying), self._total)

    def clear(self) -> None:
        """Forget all results."""
        self._waiting.clear()
        self._flying.clear()
        self.rows.show_rows([])
        self.busy.emit(0, 0)
        if self._thread is not None:
            self.load(self.model_path)  # answers on their way must not land in new rows

    def close(self) -> None:
        """End the process; photos it was told of wait again."""
        while self._listing:
            self._listing.pop().dispose()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.kill()
            thread.wait()
            thread.deleteLater()
            self._waiting.extendleft(sorted(self._flying, reverse=True))
            self._flying.clear()

    def _feed(self) -> None:
        while self._thread is not None and self.ready and self._waiting and len(self._flying) < IN_FLIGHT:
            at = self._waiting.popleft()
            self._flying.add(at)
            self._thread.send(json.dumps({"id": at, "path": self.rows.rows[at].path}))
        self.busy.emit(len(self._waiting) + len(self._flying), self._total)

    def _on_bundle(self, bundle: Sequence[dict[str, Any]]) -> None:
        if self._thread is None or self.sender() is not self._thread:
            return  # from a process that was given up
        for answer in bundle:
            if "failed" in answer:
                self.failed.emit(answer["failed"], "")
            elif "ready" in answer:
                self.ready = answer
                self.model_ready.emit(self.model_path)
            elif answer["id"] in self._flying:
                self._flying.discard(answer["id"])
                done = read_result(self.rows.rows[answer["id"]], answer)
                self.rows.replace(done.id, done)
                self.result.emit(done)
        self._feed()

    def _on_ended(self, code: int, errors: str) -> None:
        if self._thread is None or self.sender() is not self._thread:
            return
        told = not self.ready and code > 0 and not errors
        self.close()
        self.ready = {}
        if code and not told:
            text = tr("The diagnosis process ended (code {number}). Choose the model again.", number=code)
            self.failed.emit(text, errors)


def read_result(row: Result, answer: dict[str, Any]) -> Result:
    """The row with its answer filled in."""
    return replace(
        row,
        done=True,
        verdict=answer.get("verdict", ""),
        top=tuple((label, float(p)) for label, p in answer.get("top", ())),
        error=answer.get("error", ""),
        milliseconds=float(answer.get("milliseconds", 0.0)),
        sure=bool(answer.get("sure", True)),
        reason=answer.get("reason", ""),
        notes=tuple(answer.get("notes", ())),
        diseased=answer.get("diseased"),
        maps={label: read_map(raw) for label, raw in answer.get("maps", {}).items()},
    )


def read_map(raw: dict[str, Any]) -> Array:
    """A class map, uint8 ``(height, width)``."""
    return np.frombuffer(base64.b64decode(raw["data"]), np.uint8).reshape(raw["height"], raw["width"])


def photo_files(paths: Iterable[str]) -> Iterator[str]:
    """Files as they are (also wrong ones: their error is the answer), folders as the photos within, by name."""
    for name in paths:
        path = Path(name)
        if path.is_dir():
            yield from (str(p) for p in sorted(path.rglob("*")) if p.suffix.lower() in SUFFIXES and p.is_file())
        else:
            yield name


def columns() -> list[Column]:
    return [
        Column(tr("Photo"), lambda r: Path(r.path).name, tip=lambda r: r.path),
        Column(tr("Diagnosis"), _verdict, tip=lambda r: r.error),
        Column(tr("Probability"), lambda r: f"{r.probability:.1%}" if r.top else "", lambda r: r.probability, True),
        Column(tr("Leaf diseased"), _diseased, lambda r: r.diseased or 0.0, True),
        Column("ms", lambda r: f"{r.milliseconds:.0f}" if r.top else "", lambda r: r.milliseconds, True),
    ]


def _verdict(result: Result) -> str:
    if not result.done:
        return tr("waiting…")
    if result.error:
        return tr("not readable: {reason}", reason=sentence(result.error))
    return readable(result.verdict) if result.sure else tr(result.verdict)


def _diseased(result: Result) -> str:
    return "" if result.diseased is None else f"{result.diseased:.0f} %"
