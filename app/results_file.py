"""Diagnoses as files: a table for spreadsheets, and a page with pictures that stands alone, also as PDF."""

from __future__ import annotations

import csv
import io
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final, TypeAlias, final

import cv2
import numpy as np

from app.cards import disease_name
from app.document_pdf import write_pdf
from app.mask import DISEASED, GROUND, Mask
from app.translation import sentence, tr
from app.viewmodels.result import Result, doubts, evidence_text, severity_text, verdict_text
from core.data.photo import PhotoError, read_photo
from core.data.synthetic import encode_jpeg
from core.diagnosis import page
from core.diagnosis.severity import grade
from core.ops.contract import Array
from core.percent import stated
from core.storage import write_file

PICTURE: Final = 336
"""Pixels of a picture's side in the file; it is shown at half of that, and printed sharp."""
SHOWN: Final = 168
LEAF_RIM: Final = (40, 170, 90)
SICK_RIM: Final = (220, 40, 30)
TOLD: Final = 1000
"""Rows of the table between two tellings of how far it is."""
DANGEROUS: Final = ("=", "+", "-", "@", "\t", "\r")
"""A cell that begins so is run as a formula by spreadsheets; an apostrophe makes it a text."""
LEAST: Final = 0.005
"""Probability below which a further class says nothing."""
HEAD: Final = ("leaf_diseased_percent", "grade", "corrected_by_hand", "evidence_off_leaf", "reason", "error")
Progress: TypeAlias = Callable[[int, int], None]


@final
@dataclass(frozen=True, slots=True)
class Batch:
    """What is told of all photos together: the model file, and how sure an answer had to be, as a sentence."""

    model: str = ""
    judged: str = ""


def quiet(done: int, total: int) -> None:
    """Progress that nobody asked for."""


def write_csv(path: Path, results: Sequence[Result], batch: Batch, progress: Progress = quiet) -> None:
    """One row per photo: path, diagnosis, the three likeliest with probabilities, how much of the leaf is diseased
    with its Horsfall-Barratt grade, the share of the evidence off the leaf, why there is no answer, or the error.
    Raises StorageError."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    places = [f"{what}{n}" for n in (1, 2, 3) for what in ("class", "probability")]
    writer.writerow(["path", "diagnosis", *places, *HEAD])
    for at, result in enumerate(results):
        if at % TOLD == 0:
            progress(at, len(results))
        writer.writerow(_cells(result))
    write_file(path, text.getvalue())


def _cells(result: Result) -> list[object]:
    top = [value for name, share in result.top for value in (_safe(name), f"{share:.6f}")]
    percent = result.shown_percent
    amount = ["", ""] if percent is None else [f"{percent:.2f}", grade(percent)]
    hand = "yes" if result.mask is not None else "no" if result.done and not result.error else ""
    beside = "" if result.off_leaf is None else f"{result.off_leaf:.4f}"
    why = verdict_text(result) if result.given_up else result.error
    return [_safe(result.path), _safe(result.verdict), *(top + [""] * 6)[:6], *amount, hand, beside,
            _safe(doubts(result)), why]  # fmt: skip


def write_html(path: Path, results: Sequence[Result], batch: Batch, progress: Progress = quiet) -> None:
    """The same as a page with pictures inside. Raises StorageError."""
    write_file(path, render(results, batch, progress))


def write_results_pdf(path: Path, results: Sequence[Result], batch: Batch, progress: Progress = quiet) -> None:
    """The page as PDF. Raises StorageError."""
    write_pdf(render(results, batch, progress), path, progress)


WRITERS: Final = {"csv": write_csv, "html": write_html, "pdf": write_results_pdf}


def render(results: Sequence[Result], batch: Batch, progress: Progress = quiet) -> str:
    """The page, in the language of the window."""
    about = tr("{count} photos, {time}, model {model}", count=len(results), time=time.strftime("%Y-%m-%d %H:%M"),
               model=Path(batch.model).name)  # fmt: skip
    caution = tr("This is a machine's opinion on a photo; where much depends on it, ask somebody who sees the plant.")
    marks = tr("In the second picture the leaf is outlined in green and what was taken for diseased in red.")
    heading = (tr("Photo"), "", tr("Diagnosis"), tr("Likeliest classes"))
    rows = []
    for at, result in enumerate(results):
        progress(at, len(results))
        rows.append(_row(result))
    return page.render_page(tr("Diagnoses"), [
        f"<h1>{escape(tr('Diagnoses'))}</h1>", page.paragraphs([about], "muted"), _summary(results),
        page.note(caution), page.paragraphs([text for text in (batch.judged, marks) if text], "muted"),
        page.table([escape(text) for text in heading], rows, widths=("24%", "24%", "28%", "24%")),
    ])  # fmt: skip


def _summary(results: Sequence[Result]) -> str:
    words = Counter(tr("Not readable") if result.error else verdict_text(result) for result in results)
    return page.paragraphs([", ".join(f"{word}: {many}" for word, many in words.most_common())], "lead")


def _row(result: Result) -> list[str]:
    name = f'<small class="muted">{escape(Path(result.path).name)}</small>'
    photo, marked = _pictures(result)
    name = f"<br>{name}" if photo else name
    kind = "muted" if result.error or not result.sure else "well" if result.healthy else "sick"
    named = tr("Not readable") if result.error else verdict_text(result)
    said = [f'<p><b class="{kind}">{escape(named)}</b></p>']
    texts = (sentence(result.error), doubts(result), severity_text(result), evidence_text(result))
    said += [f"<p>{escape(text)}</p>" for text in texts if text]
    guesses = [guess for at, guess in enumerate(result.top) if not at or guess[1] >= LEAST]
    top = "".join(f"<p>{escape(disease_name(label))} <b>{stated(share)}</b></p>" for label, share in guesses)
    return [photo + name, marked, "".join(said), top]


def _pictures(result: Result) -> tuple[str, str]:
    """The photo's square, and the same with its leaf and diseased area outlined, where there is a leaf."""
    if result.error:
        return "", ""
    try:
        photo = read_photo(result.path, PICTURE)
    except PhotoError:  # it has gone since
        return "", ""
    name, area = Path(result.path).name, result.area()
    plain = page.picture(encode_jpeg(photo, 82), SHOWN, name)
    if area is None or not (area.labels > GROUND).any():
        return plain, ""
    return plain, page.picture(encode_jpeg(outline(photo, area), 82), SHOWN, name)


def outline(photo: Array, area: Mask) -> Array:
    """The photo, uint8 RGB ``(side, side, 3)``, with the rims of leaf and diseased area drawn on it."""
    side = photo.shape[0]
    y0, x0, y1, x1 = (round(side * share) for share in area.box)
    whole = np.zeros((side, side), np.uint8)
    size = (max(x1 - x0, 1), max(y1 - y0, 1))
    part = cv2.resize(area.labels, size, interpolation=cv2.INTER_NEAREST)
    whole[y0 : y0 + size[1], x0 : x0 + size[0]] = part[: side - y0, : side - x0]
    marked = np.ascontiguousarray(photo)
    for mask, colour in ((whole > GROUND, LEAF_RIM), (whole == DISEASED, SICK_RIM)):
        rims, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
        cv2.drawContours(marked, rims, -1, colour, 2, cv2.LINE_AA)
    return marked


def _safe(text: str) -> str:
    return "'" + text if text.startswith(DANGEROUS) else text
