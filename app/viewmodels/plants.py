"""Photos grouped into plants, and one diagnosis of each plant (`core.diagnosis.plant`), computed in a thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, final

import numpy as np
from PySide6.QtCore import QObject, QTimer, Signal

from app.task import Task
from app.viewmodels.result import PhotoResult

if TYPE_CHECKING:
    from core.diagnosis.plant import Plant
    from core.diagnosis.thresholds import Thresholds

SOON_MS: Final = 100
REST_FACTOR: Final = 10
"""While results arrive, plants are diagnosed again only after this multiple of the time that it took."""


class Deciding(NamedTuple):
    """What a verdict depends on beside the photo. model: the hash of the model; other models' results do not count."""

    thresholds: Thresholds | None
    classes: Sequence[str]
    coverage: float
    model: str


def find_plants(rows: Iterable[PhotoResult], by: str, chosen: Mapping[str, str], how: Deciding) -> dict[str, Plant]:
    """The plant of each photo, by path. by: "folder", "time", or "" for only those `chosen` by hand, path to name."""
    from core.diagnosis.plant import diagnose_plants, group_photos  # imports OpenCV, which slows down the start
    from core.diagnosis.prediction import Diagnosis, Prediction

    def read(row: PhotoResult) -> Diagnosis:
        shown = row.leaves[0] if row.leaves else row  # of several leaves, the one that decides the photo's verdict
        known = row.model.hash == how.model and len(shown.probabilities) == len(how.classes)
        found = Prediction(np.array(shown.probabilities), shown.familiarity) if known else None
        return Diagnosis(row.path, prediction=found)

    done = [row for row in rows if row.done and (by or row.path in chosen)]
    paths = [row.path for row in done]
    names = group_photos(paths, by, [row.taken for row in done]) if by else paths
    names = [chosen.get(path, name) for path, name in zip(paths, names, strict=True)]
    plants = diagnose_plants(map(read, done), names, how.thresholds, how.classes, how.coverage)
    named = {plant.name: plant for plant in plants}
    return {path: named[name] for path, name in zip(paths, names, strict=True) if name in named}


@final
class Plants(QObject):
    """The plants of the rows: grouped as `by` says, except photos that were grouped by hand. Signal: `changed()`."""

    changed = Signal()

    def __init__(
        self, rows: Callable[[], Sequence[PhotoResult]], deciding: Callable[[], Deciding], parent: QObject
    ) -> None:
        super().__init__(parent)
        self._rows, self._deciding = rows, deciding
        self.by = ""
        self._chosen: dict[str, str] = {}
        self._found: dict[str, Plant] = {}
        self._task: Task | None = None
        self._begun = 0.0
        self._rest_ms = SOON_MS
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self._begin)

    def __bool__(self) -> bool:
        return bool(self._found)

    def of(self, row: PhotoResult) -> Plant | None:
        return self._found.get(row.path)

    def with_plants(self, rows: Sequence[PhotoResult]) -> Sequence[PhotoResult]:
        return [replace(row, plant=self.of(row)) for row in rows] if self._found else rows

    def set_grouping(self, by: str) -> None:
        self.by = by
        self.refresh()

    def group(self, rows: Iterable[PhotoResult]) -> None:
        """Make these photos one plant, named by a number."""
        name = str(1 + max(map(int, self._chosen.values()), default=0))
        self._chosen |= {row.path: name for row in rows}
        self.refresh()

    def ungroup(self, rows: Iterable[PhotoResult]) -> None:
        """Return photos that were grouped by hand to the general grouping."""
        for row in rows:
            self._chosen.pop(row.path, None)
        self.refresh()

    def refresh(self, waiting: int = 0) -> None:
        """Diagnose the plants again: soon, or later if results are `waiting`."""
        if (self.by or self._chosen or self._found) and not (waiting and self._timer.isActive()):
            self._timer.start(self._rest_ms if waiting else SOON_MS)

    def close(self) -> None:
        self._timer.stop()
        if self._task is not None:
            self._task.dispose()
            self._task = None

    def _begin(self) -> None:
        if self._task is not None:  # try again later
            self._timer.start(SOON_MS)
            return
        rows, by, chosen, how = list(self._rows()), self.by, dict(self._chosen), self._deciding()
        self._begun = time.perf_counter()
        self._task = Task(lambda report, cancelled: find_plants(rows, by, chosen, how), self,
                          done=self._on_found, finished=self._on_finished)  # fmt: skip

    def _on_found(self, found: dict[str, Plant]) -> None:
        if self.sender() is self._task:
            self._found = found
            self._rest_ms = int(1000 * REST_FACTOR * (time.perf_counter() - self._begun))
            self.changed.emit()

    def _on_finished(self) -> None:
        if self._task is not None and self.sender() is self._task:
            self._task.dispose()
            self._task = None
