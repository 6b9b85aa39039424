"""Photos grouped into plants, and one diagnosis of each plant (`core.diagnosis.plant`), computed in a thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtGui import QUndoStack

from app.task import Task
from app.viewmodels.document import Edit
from app.viewmodels.result import PhotoResult, plant_cells, restricted

if TYPE_CHECKING:
    from core.diagnosis.plant import Plant
    from core.diagnosis.verdict import DecisionRule

SOON_MS: Final = 100
REST_FACTOR: Final = 10
"""While results arrive, plants are diagnosed again only after this multiple of the time that it took."""


def find_plants(
    by: str, chosen: Mapping[str, str], rows: Iterable[PhotoResult], rule: DecisionRule
) -> dict[str, Plant]:
    """The plant of each photo, by path. by: "folder", "time", or "" for only those `chosen` by hand, path to name;
    rows: diagnosed photos."""
    from core.diagnosis.plant import diagnose_plants, name_plants  # imports OpenCV, which slows down the start
    from core.diagnosis.prediction import Diagnosis

    rows = [row for row in rows if by or row.path in chosen]
    paths = [row.path for row in rows]
    names = name_plants(paths, by, [row.taken for row in rows]) if by else paths
    names = [chosen.get(path, name) for path, name in zip(paths, names, strict=True)]
    decisive = (row.leaves[0] if row.leaves else row for row in rows)  # of several leaves, the one that is stated first
    photos = (Diagnosis(row.path, prediction=restricted(row, rule)) for row in decisive)
    plants = {plant.name: plant for plant in diagnose_plants(photos, names, rule)}
    return {path: plants[name] for path, name in zip(paths, names, strict=True)}


class Plants(QObject):
    """The plants of photos: grouped as `by` says, except those that were grouped by hand. Signal: `changed()`.

    ask: returns the last arguments of `find_plants`.
    """

    changed = Signal()

    def __init__(self, ask: Callable[[], tuple[Any, ...]], parent: QObject) -> None:
        super().__init__(parent)
        self._ask, self.by = ask, ""
        self.chosen = dict[str, str]()
        self.changes = QUndoStack(self)
        self.found: dict[str, Plant] = {}
        self._task: Task | None = None
        self._begun, self._rest_ms = 0.0, SOON_MS
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self._begin)

    def of(self, row: PhotoResult) -> Plant | None:
        return self.found.get(row.path)

    def with_plants(self, rows: Sequence[PhotoResult]) -> Sequence[PhotoResult]:
        return [replace(row, plant=plant_cells(self.of(row))) for row in rows] if self.found else rows

    def set_grouping(self, by: str) -> None:
        self.by = by
        self.refresh()

    def group(self, rows: Iterable[PhotoResult]) -> None:
        """Make these photos one plant, named by a number."""
        name = str(1 + max(map(int, self.chosen.values()), default=0))
        self._change(self.chosen | {row.path: name for row in rows})

    def ungroup(self, rows: Iterable[PhotoResult]) -> None:
        left = {row.path for row in rows}
        self._change({path: name for path, name in self.chosen.items() if path not in left})

    def _change(self, chosen: dict[str, str]) -> None:
        if chosen != self.chosen:
            self.changes.push(Edit(partial(self._choose, chosen), partial(self._choose, self.chosen)))

    def _choose(self, chosen: dict[str, str]) -> None:
        self.chosen = chosen
        self.refresh()

    def refresh(self, waiting: int = 0) -> None:
        """Diagnose the plants again: soon, or later if results are `waiting`."""
        if (self.by or self.chosen or self.found) and not (waiting and self._timer.isActive()):
            self._timer.start(self._rest_ms if waiting else SOON_MS)

    def close(self) -> None:
        self._timer.stop()

    def _begin(self) -> None:
        if self._task is not None and self._task.active:  # a late result would be of the settings before
            self._timer.start(SOON_MS)
            return
        asked, self._begun = (self.by, dict(self.chosen), *self._ask()), time.perf_counter()
        self._task = Task(lambda *_: find_plants(*asked), self, done=self._on_found)

    def _on_found(self, found: dict[str, Plant]) -> None:
        self.found, self._rest_ms = found, int(1000 * REST_FACTOR * (time.perf_counter() - self._begun))
        self.changed.emit()
