"""Writes one file for the window: results as a table, page or PDF, a report as PDF, a model as ONNX."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from PySide6.QtGui import QGuiApplication

from app import translation
from app.processes.protocol import Channel, serve
from core.data.dataset import Cancelled

if TYPE_CHECKING:
    from app.viewmodels.result import PhotoResult


def main() -> int:
    return serve(_work)


def _work(channel: Channel, asked: dict[str, Any]) -> None:
    """`asked`: kind, target (a path), language, and what the kind needs.

    Sends `done` and `total` as progress, and `written` at the end, with notes on the file as `notes`.
    """
    application = QGuiApplication([])  # for fonts and pictures; no window
    translation.install(application, str(asked["language"]))
    notes = KINDS[asked["kind"]](channel, asked)
    channel.send(written=asked["target"], notes=notes)


def _progress(channel: Channel) -> Callable[[int, int], None]:
    def report(done: int, total: int) -> None:
        if channel.ended():
            raise Cancelled("Writing was given up.")
        channel.send(done=done, total=total)

    return report


def _results(channel: Channel, asked: dict[str, Any]) -> list[str]:
    """Read results from the lines after the first, as many as `count` says; `remarks`: notes on all of them."""
    from app.results_file import WRITERS
    from app.viewmodels.result_line import from_line

    channel.send(ready=True)
    rows: list[PhotoResult] = []
    while len(rows) < int(asked["count"]):
        line = channel.requests.get()
        if line is None:
            raise Cancelled("Writing was given up.")
        rows.append(from_line(line))
    WRITERS[asked["kind"]](Path(asked["target"]), rows, asked["remarks"], _progress(channel))
    return []


def _print(channel: Channel, asked: dict[str, Any]) -> list[str]:
    """Write the page `source` as PDF."""
    from app.document_pdf import write_pdf

    channel.send(ready=True)
    write_pdf(Path(asked["source"]).read_text("utf-8"), Path(asked["target"]), _progress(channel))
    return []


def _export(channel: Channel, asked: dict[str, Any]) -> list[str]:
    """Write the model file or run folder `model` as ONNX, as `leafclinic export` does.

    `eight`: in 8 bits, with the photos `data` if the run has none of its own.
    """
    from core.export import export

    options = ["--int8"] if asked["eight"] else []
    options += ["--data", str(asked["data"])] if asked["eight"] and asked["data"] else []
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        export([str(asked["model"]), "--onnx", str(asked["target"]), *options])
    return printed.getvalue().splitlines()[:-1]  # the last line names the file, as the window does


KINDS: Final[dict[str, Callable[[Channel, dict[str, Any]], list[str]]]] = {
    "csv": _results, "html": _results, "pdf": _results, "print": _print, "onnx": _export,
}  # fmt: skip
