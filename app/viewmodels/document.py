"""The open dataset: scanned in the background, edited with undo, locked against a second window."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
from PySide6.QtCore import QLockFile, QObject, QTimer, Signal
from PySide6.QtGui import QUndoCommand, QUndoStack

from app import paths, project
from app.cards import disease_name, find_class
from app.moved_photos import find_edits, mark_photos
from app.paths import PHOTO_FOLDERS
from app.task import Task
from app.translation import tr
from app.viewmodels.photos import Search
from core.data.dataset import Dataset, ReportProgress
from core.data.source import open_photos
from core.errors import StorageError
from core.ops.contract import Array
from core.storage import storage_error

SAVE_MS: Final = 400
"""Edits are written this long after the last one, so that moving a thousand photos writes once."""

NEEDS_NORMALISING: Final = re.compile(r"^/|//|/$|(^|/)\.\.?(/|$)|[:\\]").search
"""Matches absolute paths and paths with empty or dot components."""
_Opened: TypeAlias = tuple[project.EditedDataset, project.Edits, dict[str, int], list[project.Edits]]


class Document(QObject):
    """What the Dataset page shows and training uses.

    Signals: `opening(source)`, `progress(done, total)`, `opened()`, `failed(sentence, details)`, `changed()`;
    `found_edits(list)` of the same photos in other folders, of which a single one is used; `drawing(done, total)` while
    synthetic leaves are generated, `given_up()` when the user cancels.
    """

    opening = Signal(str)
    progress = Signal(int, int)
    drawing = Signal(int, int)
    given_up = Signal()
    opened = Signal()
    failed = Signal(str, str)
    changed = Signal()
    found_edits = Signal(list)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.source = ""
        self.table: project.EditedDataset | None = None
        self.undo = QUndoStack(self)
        self.search = Search(self)
        self.folder = Path()
        self._others = project.Edits()  # what is saved beside the table: names, and edits of photos it does not have
        self._rows: dict[str, int] = {}
        self._task: Task | None = None
        self._writing: Task | None = None
        self._wanted: list[tuple[Callable[[str], None], Callable[[str, str], None]]] = []
        self.asked = ""
        """The source requested last, opened or not."""
        self._next: tuple[Path, QLockFile | None] | None = None  # project of what is being opened, and its lock
        self._lock: QLockFile | None = None
        self._saving = QTimer(self, singleShot=True, interval=SAVE_MS)
        self._saving.timeout.connect(self.save)

    @property
    def loading(self) -> bool:
        return self._task is not None and self._task.active

    def open(self, source: str) -> None:
        """Scan a folder or manifest in the background, and apply the stored edits of its project."""
        self.cancel()
        if self._saving.isActive():
            self.save()
        self.asked = source
        try:
            folder, _ = self._next = self._claim(source)
        except StorageError as error:
            self.failed.emit(str(error), "")
            return
        self.opening.emit(source)
        self._task = Task(lambda report, cancelled: _open(source, folder, report), self,
                          progress=self.progress, done=self._on_opened, failed=self._on_failed)  # fmt: skip

    def _claim(self, source: str) -> tuple[Path, QLockFile | None]:
        """The project folder of a source, and its lock, None if this window has it already. Raises StorageError."""
        folder = paths.folder("projects/" + project.project_folder(Path(), source).name)
        if folder == self.folder and self._lock is not None:
            return folder, None
        lock = QLockFile(str(folder / "lock"))
        if not lock.tryLock(0):
            raise _not_locked(lock, folder)
        return folder, lock

    def cancel(self) -> None:
        """Cancel an active scan; what was open stays open."""
        if self._next is not None:
            _release(*self._next)
            self._next = None
        if self._task is not None:
            self._task.cancel()

    def give_up(self) -> None:
        self.cancel()
        self.given_up.emit()

    def close(self) -> None:
        """Write pending edits and release the project."""
        self.cancel()
        self.search.forget()
        self._wanted.clear()
        if self._writing is not None and self._writing.active:
            self._writing.dispose()
        if self._saving.isActive():
            self.save()
        _release(self.folder, self._lock)
        self._lock = None

    def exclude(self, rows: Array, excluded: bool) -> None:
        if self.table is not None:
            self._set_rows(self.table.excluded, rows, excluded)

    def move(self, rows: Array, name: str) -> None:
        """Set the class of photos; the name is as written or as shown in the window."""
        if self.table is not None and len(rows) and name.strip():
            self._set_rows(self.table.labels, rows, self.table.code(find_class(name, self.table.classes)))

    def rename(self, old: str, new: str) -> None:
        """Rename a class with photos; an existing name, as written or as shown, merges the two."""
        if self.table is None or not new.strip() or old not in self.table.named():
            return
        new = find_class(new, (name for name in self.table.classes if name != old))
        if disease_name(new) != disease_name(old) or new in self.table.classes and new != old:
            self._rename(self.table, old, new)

    def _set_rows(self, array: Array, rows: Array, value: int) -> None:
        """Set these rows of an array of the table, the labels or the exclusions, if any has another value."""
        before = array[rows]  # a copy
        if np.all(before == value):
            return

        def put(values: Array | int) -> None:
            array[rows] = values
            self.touched()

        self.undo.push(Edit(partial(put, value), partial(put, before)))

    def _rename(self, table: project.EditedDataset, old: str, new: str) -> None:
        names = {k: (new if v == old else v) for k, v in self._others.names.items()}
        if old in table.dataset.classes:
            names[old] = new
        labels = table.labels.copy()
        labels[labels == table.classes.index(old)] = table.code(new)
        self._replace(table, replace(self._others, names=names), labels=labels)

    def _replace(self, table: project.EditedDataset, others: project.Edits, **arrays: Array) -> None:
        """Replace `_others`, and arrays of the table as a whole."""
        before = self._others, {name: getattr(table, name).copy() for name in arrays}

        def put(others: project.Edits, arrays: dict[str, Array]) -> None:
            self._others = others
            for name, values in arrays.items():
                getattr(table, name)[:] = values
            self.touched()

        self.undo.push(Edit(partial(put, others, arrays), partial(put, *before)))

    @property
    def confirmed(self) -> dict[str, str]:
        """The labels that the user has confirmed, by path."""
        return self._others.confirmed

    def confirm(self, row: int) -> None:
        """Confirm the label of a photo, also for later reviews."""
        if (table := self.table) is not None:
            confirmed = self.confirmed | {table.dataset.paths[row]: table.label(row)}
            self._replace(table, replace(self._others, confirmed=confirmed))

    def take_over(self, found: project.Edits) -> None:
        """Use edits of the same photos in another folder instead; undo discards them for good."""
        if (table := self.table) is not None:
            new = project.apply_edits(table.dataset, found)
            labels = np.array([table.code(name) for name in new.classes], np.int32)[new.labels]
            earlier = tuple(dict.fromkeys((*self._others.earlier, *found.earlier, found.identity)))
            self._others = now = replace(self._others, earlier=earlier)
            others = replace(found.of_missing(table.dataset), source=now.source, photos=now.photos, earlier=earlier)
            self._replace(table, others, labels=labels, excluded=new.excluded)

    def with_manifest(self, use: Callable[[str], None], failed: Callable[[str, str], None]) -> None:
        """Call `use` with the source for training: the source itself without edits, else the project's manifest.

        The manifest is written first; a million photos take seconds, in the background.
        """
        if self.table is None or not self.table.edited:
            use(self.source if self.table is not None else "")
            return
        self._wanted.append((use, failed))
        if len(self._wanted) == 1:
            self._write_manifest()

    def _write_manifest(self) -> None:
        assert self.table is not None
        manifest, now = self.folder / project.MANIFEST, self.table.copy()
        self._writing = Task(lambda report, cancelled: str(project.write_photos(manifest, now)), self,
                             done=self._on_written, failed=self._on_not_written)  # fmt: skip

    def _on_written(self, manifest: str) -> None:
        self._end_writing()[0](manifest)

    def _on_not_written(self, message: str, details: str) -> None:
        self._end_writing()[1](message, details)

    def _end_writing(self) -> tuple[Callable[[str], None], Callable[[str, str], None]]:
        """Report to the first caller; those who asked meanwhile get the current photos."""
        first = self._wanted.pop(0)
        if self._wanted:
            self._write_manifest()
        return first

    def row_of(self, path: str) -> int | None:
        return self._rows.get(os.path.normpath(path))

    def save(self) -> None:
        self._saving.stop()
        if self.table is None:
            return
        try:
            project.write_edits(self.folder, project.collect_edits(self.table, self._others))
        except StorageError as error:  # a full disk must not stop the program, nor its closing
            self.failed.emit(str(error), "")

    def touched(self) -> None:
        self._saving.start()
        self.changed.emit()
        if self._next is not None and self._next[0] == self.folder:
            self.open(self.asked)  # the same photos again: with this edit

    def _on_opened(self, opened: _Opened) -> None:
        """Take over the opened photos. The previous dataset is closed only now: edits until now belong to it."""
        assert self._next is not None
        table, self._others, self._rows, found = opened
        source, (folder, lock), self._next = self.asked, self._next, None
        self.cancel()
        if lock is not None:
            self.close()
            self._lock, self.folder = lock, folder
        self.source, self.table = source, table
        PHOTO_FOLDERS.add(source)
        self.undo.clear()
        self.opened.emit()
        self.changed.emit()
        if len(found) == 1:
            self.take_over(found[0])
        if found:
            self.found_edits.emit(found)

    def _on_failed(self, message: str, details: str) -> None:
        self.cancel()
        self.failed.emit(message, details)


def places(dataset: Dataset) -> dict[str, int]:
    """Rows by absolute path, without "..": fast, because few paths need normalising."""
    root = os.path.join(os.path.normpath(dataset.root), "")
    return {
        os.path.normpath(os.path.join(root, path)) if NEEDS_NORMALISING(path) else root + path.replace("/", os.sep): row
        for row, path in enumerate(dataset.paths)
    }


def _release(folder: Path, lock: QLockFile | None) -> None:
    """Unlock a project that this window has locked, and remove its folder if it is empty."""
    if lock is not None:
        lock.unlock()
        with suppress(OSError):
            folder.rmdir()


def _not_locked(lock: QLockFile, folder: Path) -> StorageError:
    if lock.error() is QLockFile.LockError.LockFailedError:
        return StorageError(tr("This folder is open in another LeafClinic window. Close it there first."))
    return storage_error(folder, OSError(tr("no write permission, or no disk space")))


def _open(source: str, folder: Path, report: ReportProgress) -> _Opened:
    """The photos with the stored edits; the rest of these; `places`; edits of the same photos in other folders. A
    million names take seconds. Raises InputError."""
    dataset = open_photos(source, progress=report)
    edits = project.read_edits(folder)
    others = replace(edits.of_missing(dataset), source=source, photos=mark_photos(dataset, report))
    found = find_edits(folder, edits, dataset, report)
    return project.apply_edits(dataset, edits), others, places(dataset), found


class Edit(QUndoCommand):
    """An edit as two functions; pushing it on the stack does it."""

    def __init__(self, do: Callable[[], None], undo: Callable[[], None]) -> None:
        super().__init__()
        self._do, self._undo = do, undo

    def redo(self) -> None:
        self._do()

    def undo(self) -> None:
        self._undo()
