"""The open photos: scanned in the background, changed with undo, locked against a second window."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

import numpy as np
from PySide6.QtCore import QLockFile, QObject, QTimer, Signal
from PySide6.QtGui import QUndoCommand, QUndoStack

from app import paths
from app.crash import sentence
from app.project import (
    Edits,
    Table,
    apply_edits,
    collect_edits,
    project_folder,
    read_edits,
    write_edits,
    write_manifest,
)
from app.task import Report, Task
from app.translation import count, tr
from core.data.dataset import Dataset
from core.errors import StorageError
from core.ops.contract import Array

SAVE_MS: Final = 400
"""Edits are written this long after the last one, so that moving a thousand photos writes once."""


@final
class Document(QObject):
    """What the Dataset place shows and training uses.

    Signals: `opening(source)`, `progress(done, total)`, `opened()`, `failed(sentence, details)`, `changed()`.
    """

    opening = Signal(str)
    progress = Signal(int, int)
    opened = Signal()
    failed = Signal(str, str)
    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.source = ""
        self.table: Table | None = None
        self.undo = QUndoStack(self)
        self.folder = Path()
        self._names: dict[str, str] = {}
        self._rows: dict[str, int] = {}
        self._task: Task | None = None
        self._loading = False
        self._asked = ""
        self._lock: QLockFile | None = None
        self._saving = QTimer(self, singleShot=True, interval=SAVE_MS)
        self._saving.timeout.connect(self.save)

    @property
    def loading(self) -> bool:
        return self._loading

    def open(self, source: str) -> None:
        """Look through a folder or manifest in the background."""
        self.cancel()
        self.opening.emit(source)
        task = Task(lambda report, cancelled: _scan(source, report, cancelled), self)
        task.progress.connect(self.progress)
        task.done.connect(self._on_scanned)
        task.failed.connect(self._on_failed)
        self._task, self._loading, self._asked = task, True, source
        task.start()

    def cancel(self) -> None:
        """Give up a scan that is going on; what was open stays open."""
        task, self._task, self._loading = self._task, None, False
        if task is not None:
            task.dispose()

    def close(self) -> None:
        """Write what is not written yet and let others open the project."""
        self.cancel()
        if self._saving.isActive():
            self.save()
        if self._lock is not None:
            self._lock.unlock()
            self._lock = None

    def exclude(self, rows: Array, excluded: bool) -> None:
        """Leave photos out, or take them in again."""
        rows = np.asarray(rows, np.int64)
        if self.table is not None and len(rows) and np.any(self.table.excluded[rows] != excluded):
            text = count(len(rows), "exclude {n} photo", "exclude {n} photos")
            if not excluded:
                text = count(len(rows), "include {n} photo", "include {n} photos")
            self.undo.push(_SetRows(self, text, rows, excluded=excluded))

    def move(self, rows: Array, name: str) -> None:
        """Give photos another class."""
        rows = np.asarray(rows, np.int64)
        if self.table is not None and len(rows) and name.strip():
            text = tr("move {photos} to {name}", photos=count(len(rows), "{n} photo", "{n} photos"), name=name)
            self.undo.push(_SetRows(self, text, rows, label=name.strip()))

    def rename(self, old: str, new: str) -> None:
        """Give a class another name; a name that is there already joins the two."""
        if self.table is not None and new.strip() and new.strip() != old and old in self.table.classes:
            self.undo.push(_Rename(self, old, new.strip()))

    def manifest(self) -> str:
        """What training is given: the source itself while nothing was changed, else the project's manifest."""
        if self.table is None:
            return ""
        if not self.table.edited:
            return self.source
        return str(write_manifest(self.folder, self.table))

    def row_of(self, path: str) -> int | None:
        """The row of a file by its absolute path."""
        if self.table is None:
            return None
        if not self._rows:
            dataset = self.table.dataset
            self._rows = {os.path.normpath(dataset.path(row)): row for row in range(len(dataset))}
        return self._rows.get(os.path.normpath(path))

    def save(self) -> None:
        self._saving.stop()
        if self.table is None:
            return
        try:
            write_edits(self.folder, self.source, collect_edits(self.table, self._names))
        except StorageError as error:  # a full disk must not keep the program from going on, nor from closing
            self.failed.emit(str(error), "")

    def touched(self) -> None:
        """An edit was done or undone."""
        self._saving.start()
        self.changed.emit()

    def set_names(self, names: dict[str, str]) -> None:
        self._names = names

    def names(self) -> dict[str, str]:
        return dict(self._names)

    def _on_scanned(self, dataset: Dataset) -> None:
        source, self._loading = self._asked, False
        folder = project_folder(paths.folder("projects"), source)
        folder.mkdir(parents=True, exist_ok=True)
        lock = QLockFile(str(folder / "lock"))
        if folder != self.folder or self._lock is None:
            if not lock.tryLock(0):
                self.failed.emit(tr("This folder is open in another LeafClinic window. Close it there first."), "")
                return
            self.close()
            self._lock, self.folder = lock, folder
        try:
            edits = read_edits(folder)
        except (OSError, ValueError, KeyError, TypeError) as error:
            edits = Edits()
            self.failed.emit(tr("Earlier changes of this project cannot be read; it starts without them."), str(error))
        self.source, self.table = source, apply_edits(dataset, edits)
        self._names = dict(edits.names)
        self._rows = {}
        self.undo.clear()
        self.opened.emit()
        self.changed.emit()

    def _on_failed(self, error: Exception, details: str) -> None:
        self._loading = False
        self.failed.emit(sentence(error), details)


def _scan(source: str, report: Report, cancelled: Callable[[], bool]) -> Dataset:
    from core.data.source import open_photos  # brings OpenCV; not needed before the first folder is opened

    return open_photos(source, progress=report, cancelled=cancelled)


class _SetRows(QUndoCommand):
    """Some photos get a class or are left out; remembers what they were."""

    def __init__(
        self, document: Document, text: str, rows: Array, label: str | None = None, excluded: bool | None = None
    ) -> None:
        super().__init__(text)
        assert document.table is not None
        self._document, self._rows, self._label, self._excluded = document, rows, label, excluded
        self._before = (document.table.labels[rows].copy(), document.table.excluded[rows].copy())

    def redo(self) -> None:
        table = self._document.table
        assert table is not None
        if self._label is not None:
            table.labels[self._rows] = table.code(self._label)
        if self._excluded is not None:
            table.excluded[self._rows] = self._excluded
        self._document.touched()

    def undo(self) -> None:
        table = self._document.table
        assert table is not None
        table.labels[self._rows], table.excluded[self._rows] = self._before
        self._document.touched()


class _Rename(QUndoCommand):
    """A class gets another name, or joins the class of that name."""

    def __init__(self, document: Document, old: str, new: str) -> None:
        super().__init__(tr("rename {old} to {new}", old=old, new=new))
        assert document.table is not None
        self._document, self._old, self._new = document, old, new
        self._labels, self._names = document.table.labels.copy(), document.names()

    def redo(self) -> None:
        table = self._document.table
        assert table is not None
        names = {k: (self._new if v == self._old else v) for k, v in self._names.items()}
        if self._old in table.dataset.classes:
            names[self._old] = self._new
        table.labels[table.labels == table.classes.index(self._old)] = table.code(self._new)
        self._document.set_names(names)
        self._document.touched()

    def undo(self) -> None:
        table = self._document.table
        assert table is not None
        table.labels[:] = self._labels
        self._document.set_names(self._names)
        self._document.touched()
