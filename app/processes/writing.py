"""Writes one file for the window: results as a table, page or PDF, a report as PDF, a model as ONNX."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from PySide6.QtGui import QGuiApplication

from app import translation
from app.cards import disease_name
from app.document_pdf import write_pdf
from app.mask import BACKGROUND, DISEASED, Mask
from app.processes.entry import Channel
from app.translation import sentence, tr, translate_page
from app.viewmodels.result import PhotoResult, doubts, findings, from_line, severity_text, verdict_text
from core.cores import usable_cores
from core.data.dataset import ReportProgress, ignore
from core.data.photo import PhotoError
from core.data.photo_reader import read_photo
from core.diagnosis.batch_report import Entry, draw_picture, picture_side, render_batch
from core.diagnosis.diagnosis_output import COLUMNS, WITH_LEAVES, cells, make_row
from core.diagnosis.prediction import Diagnosis
from core.diagnosis.verdict import ClassProbability
from core.percent import stated
from core.storage import write_file
from core.text import csv_text

PROGRESS_ROWS: Final = 1000
"""Rows of the table between two reports of progress."""
PLANT_COLUMNS: Final = ("plant", "plant_photos", "plant_used", "plant_diagnosis", "plant_probability")
TABLE: Final = {name: digits for name, digits in {
    **COLUMNS, **dict.fromkeys(("corrected_by_hand", *PLANT_COLUMNS), ""), **WITH_LEAVES,
}.items() if name != "milliseconds"}  # fmt: skip
"""The columns of `leafclinic diagnose --csv --leaves` without the time, and what only the window knows."""
Remarks: TypeAlias = Sequence[str]
"""Sentences on all photos together, such as which share of them the model diagnoses."""


def work(channel: Channel, asked: dict[str, Any]) -> None:
    """`asked`: kind, target (a path), language, and what the kind needs.

    Sends `done` and `total` as progress, and `written` at the end, with notes on the file as `notes`.
    """
    application = QGuiApplication([])  # for fonts and pictures; no window
    translation.install(application, str(asked["language"]))
    notes = KINDS[asked["kind"]](channel, asked)
    channel.send(written=asked["target"], notes=notes)


def _results(channel: Channel, asked: dict[str, Any]) -> list[str]:
    """Read results from the lines after the first, as many as `count` says; `remarks`: notes on all of them."""
    channel.send(ready=True)
    rows: list[PhotoResult] = []
    while len(rows) < int(asked["count"]):
        line = channel.requests.get()
        if line is None:
            raise SystemExit(0)  # cancelled
        rows.append(from_line(line))
    WRITERS[asked["kind"]](Path(asked["target"]), rows, asked["remarks"], channel.progress)
    return []


def _print(channel: Channel, asked: dict[str, Any]) -> list[str]:
    html = translate_page(Path(asked["source"]).read_text("utf-8", "replace"))  # names of files may be other bytes
    write_pdf(html, Path(asked["target"]), channel.progress)
    return []


def _export(channel: Channel, asked: dict[str, Any]) -> list[str]:
    """Write the model file or run folder `model` as ONNX, as `leafclinic export` does.

    `eight`: in 8 bits, with the photos `data` if the run has none of its own.
    """
    from core.export import export

    options = ["--int8"] if asked["eight"] else []
    options += ["--data", str(asked["data"])] if asked["eight"] and asked["data"] else []
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        export([str(asked["model"]), "--onnx", str(asked["target"]), *options],
               lambda stage, done, total: channel.progress(done, total))
    return printed.getvalue().splitlines()[:-1]  # the last line names the file, as the window does


def write_csv(path: Path, results: Sequence[PhotoResult], progress: ReportProgress = ignore) -> None:
    """Write one row per photo, and below it one for each of its leaves where it shows several. Raises StorageError."""
    rows, done = [[*TABLE]], [one for one in results if one.done]
    for at, result in enumerate(done):
        if at % PROGRESS_ROWS == 0:
            progress(at, len(done))
        leaves = (replace(leaf, model=result.model, plant=result.plant) for leaf in result.leaves)
        rows += [cells(_row(part, number), TABLE) for number, part in enumerate((result, *leaves))]
    write_file(path, csv_text(rows))


def _row(result: PhotoResult, number: int) -> dict[str, Any]:
    """The values of TABLE of a photo, or of its leaf of this number, from 1."""
    top = tuple(ClassProbability(*guess) for guess in result.top)
    found = Diagnosis(result.path, result.verdict, top, error=sentence(result.error), reason=doubts(result),
                      diseased=result.shown_percent)
    hand = "yes" if result.mask is not None else "" if result.error else "no"
    leaf = dict(zip(("leaf", "y0", "x0", "y1", "x1"), (number, *result.box), strict=True)) if number else {}
    plant = dict(zip(PLANT_COLUMNS, result.plant, strict=False))
    return {**make_row(found, result.model), "corrected_by_hand": hand, **leaf, **plant}


def render(results: Sequence[PhotoResult], remarks: Remarks = (), progress: ReportProgress = ignore) -> str:
    """The page, in the language of the window."""
    done = [one for one in results if one.done]
    side, entries = picture_side(len(done)), []
    with ThreadPoolExecutor(usable_cores()) as pool:
        pictures = pool.map(lambda result: _picture(result, side), done)
        for at, (result, picture) in enumerate(zip(done, pictures, strict=True)):
            progress(at, len(done))
            entries.append(_entry(result, picture))
    return render_batch(entries, remarks, say=tr, language=translation.language())


def write_html(path: Path, results: Sequence[PhotoResult], *more: Any) -> None:
    """Write the page with pictures. Raises StorageError."""
    write_file(path, render(results, *more))


def _entry(result: PhotoResult, picture: bytes) -> Entry:
    if result.error:
        return Entry(result.path, tr("Unreadable"), sentences=(sentence(result.error),), model=result.model)
    kind = "muted" if not result.sure else "well" if result.healthy else "sick"
    found = "; ".join(findings(result))
    leaves = (_leaf_text(number, leaf) for number, leaf in enumerate(result.leaves, 1))
    sentences = (found, doubts(replace(result, leaves=())), severity_text(result), *leaves, *result.plant[-1:])
    guesses = () if result.unfamiliar else tuple((disease_name(label), share) for label, share in result.top)
    answer = verdict_text(replace(result, leaves=()))
    return Entry(result.path, answer, kind, sentences, guesses, result.shown_percent, picture, result.model)


def _leaf_text(number: int, leaf: PhotoResult) -> str:
    verdict = tr("Leaf {number}: {verdict}", number=number, verdict=verdict_text(leaf))
    return f"{verdict} {stated(leaf.probability)}. {severity_text(leaf)}" if leaf.sure else f"{verdict}."


def _picture(result: PhotoResult, side: int) -> bytes:
    """The photo's square with the leaf outlined, and the diseased area if it is meaningful."""
    if result.error:
        return b""
    try:
        photo = read_photo(result.path, side)
    except PhotoError:  # the file is gone
        return b""
    area = result.area() or Mask(np.zeros((1, 1), np.uint8))
    lesions = None if result.shown_percent is None else area.labels == DISEASED
    return draw_picture(photo, area.labels > BACKGROUND, lesions, side, area.box, [leaf.box for leaf in result.leaves])


WRITERS: Final[dict[str, Callable[..., object]]] = {
    "csv": lambda path, rows, remarks, progress: write_csv(path, rows, progress),
    "html": write_html,
    "pdf": lambda path, rows, *more: write_pdf(render(rows, *more), path, more[-1]),
}
KINDS: Final[dict[str, Callable[[Channel, dict[str, Any]], list[str]]]] = {
    "csv": _results, "html": _results, "pdf": _results, "print": _print, "onnx": _export,
}  # fmt: skip
