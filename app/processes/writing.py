"""Writes one file for the window: results as a table, a page or sheets, a page of a report as sheets, a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from PySide6.QtGui import QGuiApplication

from app import translation
from app.processes.protocol import Channel, serve
from core.data.dataset import Cancelled

if TYPE_CHECKING:
    from app.viewmodels.result import Result


def main() -> int:
    return serve(_work)


def _work(channel: Channel, asked: dict[str, Any]) -> None:
    """`asked`: kind, target (a path), language, and what the kind needs. Tells `done` and `total` as it goes on, and
    `written` at the end."""
    application = QGuiApplication([])  # fonts and pictures of the sheets; no window
    translation.install(application, str(asked["language"]))
    KINDS[asked["kind"]](channel, asked)
    channel.tell(written=asked["target"])


def _progress(channel: Channel) -> Callable[[int, int], None]:
    def tell(done: int, total: int) -> None:
        if channel.ended():
            raise Cancelled("Writing was given up.")
        channel.tell(done=done, total=total)

    return tell


def _results(channel: Channel, asked: dict[str, Any]) -> None:
    """Results as lines after the first, as many as `count` says; `batch`: what is told of all of them."""
    from app.results_file import WRITERS, Batch
    from app.viewmodels.result_line import from_line

    channel.tell(ready=True)
    rows: list[Result] = []
    while len(rows) < int(asked["count"]):
        line = channel.requests.get()
        if line is None:
            return
        rows.append(from_line(line))
    WRITERS[asked["kind"]](Path(asked["target"]), rows, Batch(**asked["batch"]), _progress(channel))


def _print(channel: Channel, asked: dict[str, Any]) -> None:
    """The page `source` on sheets of paper."""
    from app.document_pdf import write_pdf

    channel.tell(ready=True)
    write_pdf(Path(asked["source"]).read_text("utf-8"), Path(asked["target"]), _progress(channel))


KINDS: Final[dict[str, Callable[[Channel, dict[str, Any]], None]]] = {
    "csv": _results, "html": _results, "pdf": _results, "print": _print,
}  # fmt: skip
