"""The diagnosis in the window: a process with the model, a queue of photos, rows of results."""

from __future__ import annotations

import json
import math
import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final, final

from PySide6.QtCore import QObject, Signal

from app import paths
from app.mask import Mask, decode_box, mask_path, read_mask, write_mask
from app.paths import PHOTO_FOLDERS
from app.processes.entry import Child
from app.task import Task
from app.translation import tr
from app.viewmodels.document import Edit
from app.viewmodels.plants import Plants
from app.viewmodels.process_model import ProcessModel
from app.viewmodels.result import PhotoResult, columns, decide, read_map, read_result
from app.viewmodels.rows_model import RowsModel
from app.viewmodels.verdict_update import VerdictUpdate
from core.data.cache_index import current_key
from core.data.source import list_photos
from core.diagnosis.known_crop import list_crops
from core.diagnosis.model_identity import ModelIdentity
from core.diagnosis.thresholds import COVERAGE, Thresholds, at_coverage

IN_FLIGHT: Final = 24
"""Photos sent to the process; the others wait here and can be cancelled."""


@final
class DiagnosisModel(ProcessModel):
    """The photos to diagnose and their results, computed by a process.

    Signals: `model_ready(name)`; `result(PhotoResult)`; `busy(waiting, total)`;
    `verdicts_changed()` after the coverage changed; `brought(row, known)` when photos were added: the row of the first
    one, and how many already had results; `replaced(path)`: the file of one of them has changed. Before a model is
    ready: `loading()` when it is requested and when its classes are known, `preparing(done, total)` while kernels are
    compiled.
    """

    model_ready = Signal(str)
    loading = Signal()
    preparing = Signal(int, int)
    verdicts_changed = Signal()
    result = Signal(object)
    busy = Signal(int, int)
    brought = Signal(int, int)
    replaced = Signal(str)

    def __init__(self, parent: QObject | None = None, early: Child | None = None) -> None:
        """`early`: the process for the first model, if it runs already."""
        super().__init__(parent)
        self._early = early
        self.plants = Plants(self._of_this_model, self)
        self.rows = RowsModel(columns(self.plants.of), self)
        self.plants.changed.connect(lambda: self.rows.replace_all(self.rows.rows))
        self.busy.connect(self.plants.refresh)
        for changed in (self.verdicts_changed, self.model_ready):
            changed.connect(lambda *_: self.plants.refresh())
        self.verdict_update = VerdictUpdate(self.rows, self._decide, self)
        self.verdict_update.ended.connect(self.verdicts_changed)
        self.model_path = ""
        self.model_name = ""
        """Of the model in use, once it was read; it stays while the same model is loaded again."""
        self._hash = ""
        self.ready: dict[str, Any] = {}
        self.known: Sequence[str] = ()
        self.thresholds: Thresholds | None = None
        self.coverage = COVERAGE
        self.crop, self.leaves, self.known_crop = True, False, ""
        self._waiting: deque[int] = deque()
        self._flying: set[int] = set()
        self._maps_flying: set[tuple[str, str]] = set()
        self._total = 0
        self._listing: list[Task] = []
        self._cleared: list[list[PhotoResult]] = []

    @property
    def working(self) -> bool:
        return bool(self._waiting or self._flying)

    @property
    def progress(self) -> tuple[int, int]:
        """Waiting and total photos, as `busy` reports them."""
        return len(self._waiting) + len(self._flying), self._total

    @property
    def threshold(self) -> float:
        """The confidence from which a class is named; 0 if the model has none."""
        return at_coverage(self.thresholds.curve, self.coverage).threshold if self.thresholds else 0.0

    def load(self, model_path: str) -> None:
        """Start the process with this model; the previous one ends."""
        self._end_process()
        if model_path != self.model_path:
            self.thresholds, self.model_name, self._hash = None, "", ""
        self.model_path, self.ready, self.known = model_path, {}, ()
        self.loading.emit()
        early, self._early = self._early, None
        self._start_process("diagnose", {"model": model_path}, child=early)

    def rename_model(self, model: ModelIdentity) -> None:
        """Use a model's new name, also in the rows that it diagnosed."""
        if self.ready.get("model", {}).get("hash") == model.hash:
            self.ready["model"], self.model_name = asdict(model), model.name
            self.model_ready.emit(self.model_path)
        self._change_all(
            lambda row: replace(row, others={}, model=model if row.model.hash == model.hash else row.model)
        )

    def _change_all(self, change: Callable[[PhotoResult], PhotoResult]) -> None:
        """Replace all rows, also those removed, which may come back."""
        self._cleared = [list(map(change, removed)) for removed in self._cleared]
        self.rows.replace_all(list(map(change, self.rows.rows)))

    def add(self, paths: Sequence[str]) -> None:
        """Diagnose photos and all photos in folders, which are listed in the background."""
        known = {row.path: row.key for row in self.rows.rows if row.done}
        if len(paths) <= IN_FLIGHT and not any(map(os.path.isdir, paths)):
            self._add(paths, changed_files(paths, known))
            return
        self._listing.append(Task(lambda report, cancelled: photo_files(paths, known), self, done=self._on_listed))

    def _on_listed(self, listed: tuple[set[str], list[str], list[str], set[str]]) -> None:
        folders, found, refused, changed = listed
        PHOTO_FOLDERS.update(folders)
        self._add(found, changed)
        if refused:
            text = tr("{folder} cannot be read. Change its permissions, then add it again.", folder=refused[0])
            self.failed.emit(text, "\n".join(refused))
        elif not found:
            self.failed.emit(tr("There are no photos in this folder."), "")

    def _add(self, found: Sequence[str], changed: Collection[str] = ()) -> None:
        """Add photos. Those already in the list get no second row; they are diagnosed again if they were cancelled or
        unreadable, or if their result is of an earlier file or of another model."""
        if not found:
            return
        added = dict.fromkeys(found)
        places = {row.path: row.id for row in self.rows.rows if row.path in added}
        known = [places[path] for path in added if path in places]
        fresh = [path for path in added if path not in places]
        again = [row.id for row in map(self.rows.rows.__getitem__, known) if row.cancelled or row.done and (
                 row.path in changed or not row.probabilities or not self._is_current(row))]  # fmt: skip
        for path in changed:
            self.replaced.emit(path)
        first = len(self.rows.rows)
        self.rows.append([PhotoResult(first + at, path) for at, path in enumerate(fresh)])
        self._wait([*again, *range(first, first + len(fresh))])
        self.brought.emit(places.get(found[0], first), len(known) - len(again))

    def _wait(self, rows: Sequence[int]) -> None:
        again = {at for at in rows if self.rows.rows[at].done or self.rows.rows[at].cancelled}
        if again:  # at once: one by one, a sorted table is sorted again for each
            self.rows.replace_all([PhotoResult(r.id, r.path, others={} if r.done else r.others) if r.id in again else r
                                   for r in self.rows.rows])
        self._total = len(rows) + (self._total if self.working else 0)
        self._waiting += rows
        if self._thread is None and self.model_path:  # it has ended unexpectedly
            self.load(self.model_path)
        self._feed()

    def diagnose_cancelled(self) -> None:
        self._wait([row.id for row in self.rows.rows if row.cancelled])

    def outdated(self) -> list[str]:
        """The photos that another model diagnosed."""
        return [row.path for row in self.rows.rows if row.probabilities and not self._is_current(row)]

    def cancel(self) -> None:
        cancelled = set(self._waiting)
        self._waiting.clear()
        self._total -= len(cancelled)
        self.rows.replace_all([  # at once: otherwise a sorted table is sorted 100,000 times
            PhotoResult(row.id, row.path, cancelled=True, others=row.others) if row.id in cancelled else row
            for row in self.rows.rows
        ])
        self.busy.emit(len(self._flying), self._total)

    def remove(self, rows: Iterable[PhotoResult]) -> None:
        """Remove rows from the list, as a change that can be undone."""
        paths = {row.path for row in rows}
        self.plants.changes.push(Edit(lambda: self._remove(paths), self.restore))

    def _remove(self, paths: Collection[str]) -> None:
        waiting, flying = [*sorted(self._flying), *self._waiting], bool(self._flying)
        self._cleared.append([row for row in self.rows.rows if row.path in paths])
        left = [row for row in self.rows.rows if row.path not in paths]
        places = {row.id: at for at, row in enumerate(left)}
        self._flying.clear()
        self._waiting = deque(places[at] for at in waiting if at in places)
        self._total += len(self._waiting) - len(waiting)
        for at, row in enumerate(left):
            row.id = at
        self.rows.show_rows(left)
        if self.verdict_update.active:
            self.verdict_update.start(1.0, 0.0)  # from the first row again
        if flying:
            self.load(self.model_path)  # results in flight must not go to other rows
        self.busy.emit(*self.progress)

    def restore(self) -> None:
        """Restore removed results below newer ones, each photo once; those without a result count as cancelled."""
        again, first = {row.path for row in self.rows.rows}, len(self.rows.rows)
        cleared = [row for row in self._cleared.pop() if row.path not in again]
        for at, row in enumerate(cleared, first):
            row.id, row.cancelled = at, not row.done
        self.rows.append(cleared)
        self.verdict_update.start(0.0, math.inf)  # coverage or crop may have changed
        self.busy.emit(*self.progress)

    def close(self) -> None:
        if self._early is not None:
            self._early.close()
        self._end_process()
        while self._listing:
            self._listing.pop().dispose()
        self.verdict_update.stop()
        self.plants.close()
        self.rows.close()

    def _end_process(self) -> None:
        """End the process; its photos return to the queue."""
        super()._end_process()
        self._waiting.extendleft(sorted(self._flying, reverse=True))
        self._flying.clear()
        self._maps_flying.clear()

    def set_coverage(self, coverage: float) -> None:
        """Update all verdicts for the given coverage, 0..1. Nothing is computed again."""
        before, self.coverage = self.coverage, coverage
        if self.thresholds is not None:
            moved = [at_coverage(self.thresholds.curve, one).threshold for one in (before, coverage)]
            self.verdict_update.start(min(moved), max(moved))

    def set_known_crop(self, crop: str) -> None:
        """Update all verdicts for photos of this crop, "" for any. Nothing is computed again."""
        self.known_crop = crop
        self.verdict_update.start(0.0, math.inf)

    def set_view(self, *, crop: bool, leaves: bool) -> None:
        """Set whether small leaves are cropped, and whether each leaf is diagnosed; photos that the model in use has
        not diagnosed so before are diagnosed again."""
        before, now = (self.crop, self.leaves), (crop, leaves)
        if before == now:
            return

        def switch(row: PhotoResult) -> PhotoResult:
            known = {**row.others, before: replace(row, others={})} if row.probabilities else row.others
            others = {view: one for view, one in known.items() if self._is_current(one)}
            return replace(others.pop(now, PhotoResult(row.id, row.path)), id=row.id, others=others)

        self.crop, self.leaves = now
        self._change_all(switch)
        if self._flying or self._maps_flying:
            self.load(self.model_path)  # results in flight are of the other kind; their photos are queued again
        self._waiting.clear()
        self._wait([row.id for row in self.rows.rows if not row.done])
        self.verdict_update.start(0.0, math.inf)  # coverage or crop may have changed since

    def correct(self, result: PhotoResult, mask: Mask | None) -> None:
        """Store a user's correction of the diseased area; None restores the measured one. Raises StorageError."""
        path = mask_path(paths.folder("masks"), result.hash)
        if mask is None:
            path.unlink(missing_ok=True)
        else:
            write_mask(path, mask, result.hash)
        for row in self.rows.rows:
            if row.hash == result.hash and not row.leaves:  # the same photo may have been dropped twice
                self._show(replace(row, mask=mask, others={}))

    def has_maps(self, row: PhotoResult) -> bool:
        """Whether the model in use diagnosed this photo and can compute class maps of it."""
        return bool(row.top and self.ready.get("maps") and self._is_current(row))

    def request_map(self, row: PhotoResult, label: str) -> None:
        """Compute the class map of `label`; `result` is emitted with it."""
        asked = (row.path, label)
        if self._thread is None or not self.has_maps(row) or asked in self._maps_flying:
            return
        self._maps_flying.add(asked)
        boxes = {"box": decode_box(row.measured), "leaves": [leaf.box for leaf in row.leaves]}
        self._thread.send(json.dumps({"id": row.id, "path": row.path, "label": label, **boxes}))

    def _read_map(self, answer: dict[str, Any]) -> None:
        path, label = answer["path"], answer["label"]
        self._maps_flying.discard((path, label))
        if "error" in answer:
            self.failed.emit(answer["error"], path)
            return
        for row in [row for row in self.rows.rows if row.path == path and row.done]:  # at most one, wherever it is now
            self._show(replace(row, maps={**row.maps, label: read_map(answer["map"])}))

    def _decide(self, row: PhotoResult) -> PhotoResult:
        """The row with its verdict at the coverage; thresholds of another model do not apply."""
        if not self._is_current(row):
            return row
        return decide(row, self.thresholds, self.ready.get("classes", ()), self.coverage, self.known_crop)

    def _of_this_model(self) -> tuple[Any, ...]:
        rows, classes = self.rows.rows, self.ready.get("classes", ())
        known = [row for row in rows if self._is_current(row) and len(row.probabilities) == len(classes) > 0]
        return known, self.known_crop, self.thresholds, classes, self.coverage

    def _is_current(self, row: PhotoResult) -> bool:
        """Whether the model in use, or the one being loaded again, diagnosed this photo."""
        return bool(row.model.hash == self._hash)

    def _show(self, row: PhotoResult) -> None:
        self.rows.replace(row.id, row)
        self.result.emit(row)

    def _feed(self) -> None:
        while self._thread is not None and self.ready and self._waiting and len(self._flying) < IN_FLIGHT:
            at = self._waiting.popleft()
            self._flying.add(at)
            view = {"crop": self.crop, "leaves": self.leaves}
            self._thread.send(json.dumps({"id": at, "path": self.rows.rows[at].path, **view}))
        self.busy.emit(*self.progress)

    def _read_answers(self, answers: Sequence[dict[str, Any]]) -> None:
        super()._read_answers(answers)
        self._feed()

    def _read(self, answer: dict[str, Any]) -> None:
        if "known" in answer:
            self.known = answer["known"]
            self.loading.emit()
        elif "preparing" in answer:
            self.preparing.emit(answer["preparing"], answer["of"])
        elif "ready" in answer:
            self.ready, identity = answer, answer.get("model", {})
            self.model_name, self._hash = identity.get("name", ""), identity.get("hash", "")
            self.thresholds = Thresholds.from_section(answer.get("rejection", {}), len(answer["classes"]))
            self.known_crop = self.known_crop if self.known_crop in list_crops(answer["classes"]) else ""
            self.model_ready.emit(self.model_path)
            self.verdict_update.start(0.0, math.inf)  # coverage or crop may have changed while it was not ready
        elif "label" in answer:
            self._read_map(answer)
        elif answer["id"] in self._flying:
            self._flying.discard(answer["id"])
            row = self.rows.rows[answer["id"]]
            found = read_result(row, {**answer, "model": self.ready.get("model", {})})
            corrected = found.hash and not found.leaves  # a correction is of one leaf
            mask = read_mask(mask_path(paths.home() / "masks", found.hash)) if corrected else None
            self._show(self._decide(replace(found, mask=mask, others=row.others)))

    def _on_exit(self, code: int, errors: str) -> None:
        reported = not self.ready and code > 0 and not errors
        self.ready = {}
        if code and not reported:
            text = tr("The diagnosis process ended unexpectedly (code {number}). Choose the model again.", number=code)
            self.failed.emit(text, errors)


def photo_files(paths: Sequence[str], known: Mapping[str, str]) -> tuple[set[str], list[str], list[str], set[str]]:
    """The folders among these; files as they are, with the photos in folders; the folders that cannot be read; and
    `changed_files`."""
    folders, found, refused = set(filter(os.path.isdir, paths)), list[str](), list[str]()
    for path in paths:
        found += list_photos(path, lambda folder, _: refused.append(folder)) if path in folders else [path]
    return folders, found, refused, changed_files(found, known)


def changed_files(paths: Iterable[str], known: Mapping[str, str]) -> set[str]:
    """The files that have another key than the known one."""
    return {path for path in paths if path in known and current_key(path) != known[path]}
