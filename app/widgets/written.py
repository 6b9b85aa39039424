"""What is told of a file while it is written, and what can be done with it then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from PySide6.QtCore import QUrl
from PySide6.QtGui import QDesktopServices

from app.translation import tr
from app.viewmodels.writing import Writing
from app.widgets.notice import Notice


def tell_written(notice: Notice, name: str, *more: str) -> None:
    """The file is there: where, what is to be known of it, and a button that opens it."""
    text = " ".join([tr("Written: {name}", name=name), *more])
    notice.tell(text, tr("Open"), lambda: QDesktopServices.openUrl(QUrl.fromLocalFile(name)))


def follow_writing(
    notice: Notice, writing: Writing, said: Callable[[dict[str, Any]], str] = lambda answer: ""
) -> None:
    """Tell of everything that `writing` writes; `said`: what the answer says of the file besides its name."""

    def going(done: int = 0, total: int = 0) -> None:
        name = Path(writing.target).name
        text = tr("Writing {name}: {done} of {total}", name=name, done=f"{done:,}", total=f"{total:,}")
        notice.tell(text if total else tr("Writing {name}…", name=name), tr("Cancel"), writing.cancel)

    def written(answer: dict[str, Any]) -> None:
        tell_written(notice, str(answer["written"]), *filter(None, [said(answer)]))

    writing.busy.connect(lambda busy: going() if busy else None)
    writing.progress.connect(going)
    writing.written.connect(written)
    writing.failed.connect(notice.alarm)
