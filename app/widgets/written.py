"""Messages about a file while and after it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from PySide6.QtCore import QUrl
from PySide6.QtGui import QDesktopServices

from app.translation import sentence, tr
from app.viewmodels.writing import Writing
from app.widgets.notice import Notice
from app.widgets.slot import Slot

READABLE: Final = frozenset({".csv", ".html", ".pdf"})


def show_written(notice: Notice, name: str, *more: str) -> None:
    """Say where the file was saved, notes on it, and offer to open it or its folder."""
    text = " ".join([tr("Saved to {name}", name=name), *map(sentence, more)])
    path = Path(name)
    shown, verb = (path, tr("Open")) if path.suffix.lower() in READABLE else (path.parent, tr("Open folder"))
    notice.show_message(text, verb, lambda: QDesktopServices.openUrl(QUrl.fromLocalFile(str(shown))))


def follow_writing(notice: Notice, writing: Writing) -> None:
    """Show messages for everything that `writing` writes."""

    def going(done: int = 0, total: int = 0) -> None:
        name = Path(writing.target).name
        text = tr("Saving {name}: {done} of {total}", name=name, done=f"{done:,}", total=f"{total:,}")
        notice.show_message(text if total else tr("Saving {name}…", name=name), tr("Cancel"), writing.cancel)

    def written(answer: dict[str, Any]) -> None:
        show_written(notice, str(answer["written"]), *answer["notes"])

    writing.busy.connect(Slot(notice, lambda busy: going() if busy else None).call)
    writing.progress.connect(Slot(notice, going).call)
    writing.written.connect(Slot(notice, written).call)
    writing.failed.connect(notice.alarm)
