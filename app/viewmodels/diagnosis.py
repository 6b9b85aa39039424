"""The diagnosis in the window: a process with the model, a queue of photos, rows of results."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from PySide6.QtCore import QObject, Signal

from app import paths
from app.mask import Mask, decode_box, mask_path, read_mask, write_mask
from app.paths import PHOTO_FOLDERS
from app.task import Task
from app.translation import tr
from app.viewmodels.document import Edit
from app.viewmodels.plants import Plants
from app.viewmodels.process_model import ProcessModel
from app.viewmodels.result import PhotoResult, columns, read_map, read_result, stem
from app.viewmodels.rows_model import RowsModel
from app.viewmodels.verdicts import Verdicts
from core.data.source import photo_files
from core.diagnosis.model_identity import ModelIdentity

IN_FLIGHT: Final = 12
"""Photos sent to the process; the others wait here and can be cancelled."""


class DiagnosisModel(ProcessModel):
    """The photos to diagnose and their results, computed by a process.

    Signals: `model_ready(name)`; `result(PhotoResult)`; `busy(waiting, total)`; `brought(row, known)` when photos were
    added or restored: the row of the first one, and how many already had results; `replaced()`: files of
    them have changed. Before a model is ready: `loading()` when it is requested and when its classes are known, `stage`
    while kernels are compiled.
    """

    model_ready = Signal(str)
    loading = Signal()
    result = Signal(object)
    busy = Signal(int, int)
    brought = Signal(int, int)
    replaced = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.plants = Plants(self._of_this_model, self)
        self._owners: dict[tuple[int, str], str] = {}  # of ends of paths by their folders; "" for several
        self.titles: dict[str, str] = {}
        self.rows = RowsModel(columns(self.plants.of, self.titles), self)
        self.plants.changed.connect(lambda: self.rows.replace_all(self.rows.rows))
        self.busy.connect(self.plants.refresh)
        self.verdicts = Verdicts(self.rows, self._classes_of, self)
        for changed in (self.verdicts.changed, self.model_ready):
            changed.connect(lambda *_: self.plants.refresh())
        self.model_path = ""
        self.model = ModelIdentity()
        """The model in use, once it was read; it stays while the same model is loaded again."""
        self.ready: dict[str, Any] = {}
        self.known: Sequence[str] = ()
        self.crop, self.leaves = True, False
        self._waiting: deque[int] = deque()
        self._flying: set[int] = set()
        self._unwanted: set[int] = set()  # photos that were removed while the process has them
        self._left: set[int] = set()  # photos that waited when the process ended unexpectedly
        self._maps_flying: set[tuple[int, str]] = set()
        self._total = 0
        self.exported: set[tuple[str, str, str]] = set()
        self.exporting: dict[str, set[tuple[str, str, str]]] = {}  # contents of the files that are being saved

    @property
    def working(self) -> bool:
        return bool(self._waiting or self._flying)

    @property
    def progress(self) -> tuple[int, int]:
        """Waiting and total photos, as `busy` reports them."""
        return len(self._waiting) + len(self._flying), self._total

    def contents(self, rows: Iterable[PhotoResult]) -> set[tuple[str, str, str]]:
        """What an export has of each result: photo, model, and the plant that it was grouped into by hand."""
        plant_of = self.plants.chosen.get
        return {(row.path, row.model.hash, plant_of(row.path, "")) for row in rows if row.done}

    def load(self, model_path: str) -> None:
        """Start the process with this model; the previous one ends; photos of one that ended by itself wait again."""
        left, self._left = self._left, set()
        self._end_process()
        if model_path != self.model_path:
            self.verdicts.thresholds, self.model = None, ModelIdentity()
        self.model_path, self.ready, self.known = model_path, {}, ()
        self.loading.emit()
        self._start_process("diagnose", {"model": model_path})
        self._resume(left)

    def rename_model(self, model: ModelIdentity) -> None:
        """Use a model's new name, also in the rows that it diagnosed."""
        if self.model.hash == model.hash:
            self.model = model
            self.model_ready.emit(self.model_path)
        self.rows.replace_all([replace(row, others={}, model=model if row.model.hash == model.hash else row.model)
                               for row in self.rows.rows])

    def add(self, paths: Sequence[str]) -> None:
        """Diagnose photos and all photos in folders, which are listed in the background."""
        known = {row.path: row.key for row in self.rows.rows if row.done}
        if len(paths) <= IN_FLIGHT and not any(map(os.path.isdir, paths)):
            self._on_listed(photo_files(paths, known))
        else:
            Task(lambda *_: photo_files(paths, known), self, done=self._on_listed)

    def _on_listed(self, listed: tuple[set[str], list[str], list[str], set[str]]) -> None:
        folders, found, refused, changed = listed
        PHOTO_FOLDERS.update(folders)
        if found:
            self._add(found, changed)
        if refused:
            text = tr("{folder} cannot be read. Change its permissions, then add it again.", folder=refused[0])
            self.failed.emit(text, "\n".join(refused))
        elif folders and not found:
            self.failed.emit(tr("There are no photos in this folder."), "")

    def _add(self, found: Sequence[str], changed: Collection[str] = ()) -> None:
        """Add photos. Those already in the list get no second row; they are diagnosed again if they were cancelled or
        unreadable, or if their result is of an earlier file or of another model."""
        places = {row.path: row.id for row in self.rows.rows}
        known = [self.rows.rows[places[path]] for path in dict.fromkeys(found) if path in places]
        fresh = [path for path in dict.fromkeys(found) if path not in places]
        again = [row.id for row in known if row.cancelled or row.id in self.rows.removed or row.done and (
                 row.path in changed or not row.probabilities or not self._is_current(row))]  # fmt: skip
        if changed:
            self.replaced.emit()
        self.rows.restore(again)
        for path in fresh:
            self._name(path)
        first = len(self.rows.rows)
        self.rows.append([PhotoResult(at, path) for at, path in enumerate(fresh, first)])
        self._wait([*again, *range(first, first + len(fresh))])
        self.brought.emit(places.get(found[0], first), len(known) - len(again))

    def _name(self, path: str, depth: int = 0) -> None:
        """Name a photo by its stem, or by the shortest end of its path that no other has, as one that had it before."""
        parts = Path(path).parts
        end = str(Path(*parts[-depth:])) if depth else stem(path)
        if (depth, end) not in self._owners or depth > len(parts):
            self._owners.setdefault((depth, end), path)
            self.titles[path] = end
            return
        before, self._owners[depth, end] = self._owners[depth, end], ""
        for one in filter(None, (before, path)):
            self._name(one, depth + 1)

    def _wait(self, rows: Sequence[int]) -> None:
        again = {at for at in rows if self.rows.rows[at].done or self.rows.rows[at].cancelled}
        self.rows.change(again, lambda r: PhotoResult(r.id, r.path, others={} if r.done else r.others))
        self._total = len(rows) + (self._total if self.working else 0)
        self._waiting += rows
        if self._thread is None and self.model_path:  # it has ended unexpectedly
            self.load(self.model_path)
        self._feed()

    def diagnose_cancelled(self) -> None:
        self._resume(range(len(self.rows.rows)))

    def _resume(self, photos: Collection[int]) -> None:
        if cancelled := [row.id for row in self.rows.present if row.cancelled and row.id in photos]:
            self._wait(cancelled)

    def outdated(self) -> list[str]:
        """The photos that another model diagnosed."""
        return [row.path for row in self.rows.present if row.probabilities and not self._is_current(row)]

    def cancel(self) -> None:
        self._cancel(self._waiting)

    def _cancel(self, photos: Iterable[int]) -> None:
        """Take photos out of the queue; those without a result count as cancelled."""
        cancelled, before = {at for at in photos if not self.rows.rows[at].done}, self.progress[0]
        self._waiting = deque(at for at in self._waiting if at not in cancelled)
        self._unwanted |= self._flying & cancelled
        self._flying -= cancelled
        self._total += self.progress[0] - before
        self.rows.change(cancelled, lambda row: replace(row, cancelled=True))
        self.busy.emit(*self.progress)

    def remove(self, rows: Iterable[PhotoResult]) -> None:
        """Remove rows from the list, as a change that can be undone."""
        places = {row.id for row in rows}
        self.plants.changes.push(Edit(lambda: self._remove(places), lambda: self._restore(places)))

    def _remove(self, places: Collection[int]) -> None:
        self.rows.remove(places)
        self._cancel(places)

    def _restore(self, places: Collection[int]) -> None:
        """Restore results that were removed and not added again since."""
        if back := self.rows.removed.intersection(places):
            self.rows.restore(back)
            self._cancel(back)
            self.brought.emit(min(back) if len(back) < len(self.rows.present) else -1, 0)  # -1: the row of before

    def close(self) -> None:
        self._end_process()
        self.verdicts.stop()
        self.plants.close()
        self.rows.close()

    def _end_process(self) -> None:
        """End the process; its photos return to the queue."""
        super()._end_process()
        self._waiting.extendleft(sorted(self._flying, reverse=True))
        self._flying.clear()
        self._unwanted.clear()
        self._maps_flying.clear()

    def set_view(self, *, crop: bool, leaves: bool) -> None:
        """Set whether small leaves are cropped, and whether each leaf is diagnosed; photos that the model in use has
        not diagnosed so before are diagnosed again."""
        before, now = (self.crop, self.leaves), (crop, leaves)

        def switch(row: PhotoResult) -> PhotoResult:
            known = {**row.others, before: replace(row, others={})} if row.probabilities else row.others
            others = {view: one for view, one in known.items() if self._is_current(one)}
            return replace(others.pop(now, PhotoResult(row.id, row.path, cancelled=row.cancelled)), others=others)

        self.crop, self.leaves = now
        self.rows.replace_all(list(map(switch, self.rows.rows)))
        if self._flying or self._unwanted or self._maps_flying:
            self.load(self.model_path)  # results in flight are of the other kind; their photos are queued again
        self._waiting.clear()
        self._wait([row.id for row in self.rows.present if not (row.done or row.cancelled)])
        self.verdicts.update()  # coverage or crop may have changed since

    def correct(self, result: PhotoResult, mask: Mask | None) -> None:
        """Store a user's correction of the diseased area; None restores the measured one. Raises StorageError."""
        write_mask(mask_path(paths.folder("masks"), result.hash), mask, result.hash)
        for row in self.rows.rows:
            if row.hash == result.hash and not row.leaves:  # the same photo may have been dropped twice
                self._show(replace(row, mask=mask, others={}))

    def has_maps(self, row: PhotoResult | None) -> bool:
        """Whether the model in use diagnosed this photo and can compute class maps of it."""
        return bool(row and row.top and self.ready.get("maps") and self._is_current(row))

    def request_map(self, row: PhotoResult | None, label: str) -> None:
        """Compute the class map of `label`; `result` is emitted with it."""
        if row is None or not self._thread or not self.has_maps(row) or (row.id, label) in self._maps_flying:
            return
        self._maps_flying.add((row.id, label))
        boxes = {"box": decode_box(row.measured), "leaves": [leaf.box for leaf in row.leaves]}
        self._thread.send(json.dumps({"id": row.id, "path": row.path, "label": label, **boxes}))

    def _read_map(self, answer: dict[str, Any]) -> None:
        at, label = answer["id"], answer["label"]
        self._maps_flying.discard((at, label))
        row = self.rows.rows[at]
        if "error" in answer:
            self.failed.emit(answer["error"], row.path)
        elif row.done:
            self._show(replace(row, maps={**row.maps, label: read_map(answer["map"])}))

    def _classes_of(self, row: PhotoResult) -> Sequence[str]:
        """The classes of the model in use if it diagnosed this photo, else none."""
        return self.ready.get("classes", ()) if self._is_current(row) else ()

    def _of_this_model(self) -> tuple[Any, ...]:
        rows, classes = self.rows.present, self.ready.get("classes", ())
        known = [row for row in rows if self._is_current(row) and len(row.probabilities) == len(classes) > 0]
        return known, self.verdicts.rule(classes)

    def _is_current(self, row: PhotoResult) -> bool:
        """Whether the model in use, or the one being loaded again, diagnosed this photo."""
        return row.model.hash == self.model.hash

    def _show(self, row: PhotoResult) -> None:
        self.rows.replace(row.id, row)
        self.result.emit(row)

    def _feed(self) -> None:
        while self._thread is not None and self.ready and self._waiting and len(self._flying) < IN_FLIGHT:
            at = self._waiting.popleft()
            self._flying.add(at)
            if at in self._unwanted:  # removed and added again
                self._unwanted.remove(at)
                continue
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
        elif "ready" in answer:
            self.ready, self.model = answer, ModelIdentity(**answer.get("model", {}))
            self.verdicts.use_model(answer.get("rejection", {}), answer["classes"])
            self.model_ready.emit(self.model_path)
            self.verdicts.update()  # coverage or crop may have changed while it was not ready
        elif "label" in answer:
            self._read_map(answer)
        elif answer["id"] in self._unwanted:
            self._unwanted.remove(answer["id"])
        elif answer["id"] in self._flying:
            self._flying.remove(answer["id"])
            row = self.rows.rows[answer["id"]]
            found = replace(read_result(row, answer), model=self.model)
            mask = read_mask(mask_path(paths.home() / "masks", found.hash)) if found.hash and not found.leaves else None
            others = {view: one for view, one in row.others.items() if one.key == found.key}  # of the same file
            self._show(self.verdicts.decide(replace(found, mask=mask, others=others)))

    def _on_exit(self, code: int, errors: str) -> None:
        reported = not self.ready and code > 0 and not errors
        self.ready, self._left = {}, set(self._waiting)
        self.cancel()
        if code and not reported:
            text = tr("The diagnosis process ended unexpectedly (code {number}). Choose the model again.", number=code)
            self.failed.emit(text, errors)
