"""The report of a batch of diagnoses: a self-contained HTML page with a summary table and every photo."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median
from typing import Final, TypeAlias

import cv2
import numpy as np

from core.data.photo import encode_jpeg, place_in_square, square
from core.diagnosis import page
from core.diagnosis.boxes import WHOLE, Box
from core.diagnosis.model_identity import ModelIdentity
from core.ops.contract import Array
from core.percent import percent, stated, whole_percent
from core.text import shortest_ends

SIDES: Final = ((200, 336), (10**9, 192))
"""(largest number of photos, side of their pictures in the file in pixels): a report of 800 photos is under 10 MB."""
SHOWN: Final = {336: 168, 192: 120}
"""Side of such a picture on the page, pixels."""
QUALITY: Final = 78
LEAF: Final = (40, 170, 90)
LESION: Final = (220, 40, 30)
LEAST: Final = 0.005
"""Smallest probability of a further class that is listed."""

Say: TypeAlias = Callable[[str], str]
"""Translates English text."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One photo of the report, in the reader's language.

    answer: the diagnosis, or why there is none; kind: "sick", "well", or "muted" without a diagnosis; guesses: the most
    probable classes with their probabilities; diseased: percent of the leaf's area, of diseased leaves; picture: JPEG.
    """

    path: str
    answer: str
    kind: str = "muted"
    sentences: tuple[str, ...] = ()
    guesses: tuple[tuple[str, float], ...] = ()
    diseased: float | None = None
    picture: bytes = b""
    model: ModelIdentity = ModelIdentity()


def picture_side(photos: int) -> int:
    """Side of the pictures in a report of this many photos, in pixels."""
    return next(side for most, side in SIDES if photos <= most)


def draw_picture(
    photo: Array, leaf: Array, lesions: Array | None, side: int, box: Box = WHOLE, boxes: Iterable[Box] = ()
) -> bytes:
    """A photo as JPEG, with outlines of its leaf and of its lesions if given, and numbered boxes of its leaves.

    photo: uint8 RGB ``(height, width, 3)``; leaf and lesions: masks bool of the part `box` (y0, x0, y1, x1, shares).
    """
    marked = square(photo, side).copy()
    for mask, colour in ((leaf, LEAF), (lesions, LESION)):
        if mask is not None and mask.any():
            placed = (place_in_square(mask, box, side) > 0.5).astype(np.uint8)
            outlines, _ = cv2.findContours(placed, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
            cv2.drawContours(marked, outlines, -1, colour, 1 + side // 256, cv2.LINE_AA)
    for number, (y0, x0, y1, x1) in enumerate(boxes, 1):
        corners = (round(side * x0), round(side * y0)), (round(side * x1), round(side * y1))
        cv2.rectangle(marked, *corners, LEAF, 1 + side // 256)
        foot = max(corners[0][0], 0) + side // 60, max(corners[0][1], 0) + side // 14
        cv2.putText(marked, str(number), foot, cv2.FONT_HERSHEY_SIMPLEX, side / 420, LEAF, 1 + side // 256, cv2.LINE_AA)
    return encode_jpeg(marked, QUALITY)


def render_batch(
    entries: Sequence[Entry], remarks: Iterable[str] = (), appendix: str = "", say: Say = str, language: str = "en"
) -> str:
    """The page. remarks: sentences on all photos; appendix: HTML for its end; language: of what `say` returns."""
    title = say("Diagnoses")
    marks = say("The leaf is outlined in green; on diseased leaves, diseased areas are outlined in red.")
    pictures = any(entry.picture for entry in entries)
    models = Counter(entry.model for entry in entries)
    about = say("{time}. Photos: {n}.").format(time=time.strftime("%Y-%m-%d %H:%M"), n=len(entries))
    used = [_describe(model, many, say) for model, many in models.most_common() if model.name]
    caution = say("These diagnoses were made by a program from photos. Before costly decisions, ask an expert who "
                  "sees the plants.")
    columns = (page.Column(say("Photo"), "25%"), page.Column(say("Diagnosis"), "45%"),
               page.Column(say("Most probable classes"), "30%"))  # fmt: skip
    shown = SHOWN[picture_side(len(entries))]
    names = shortest_ends([entry.path for entry in entries])
    rows = [_row(entry, name, shown, len(models) > 1) for entry, name in zip(entries, names, strict=True)]
    return page.render_page(title, [
        f"<h1>{escape(title)}</h1>", page.paragraphs([about, *used], "muted"), _summary(entries, say),
        page.note(caution), page.paragraphs(remarks, "muted"),
        page.heading(say("Photo by photo")), page.paragraphs([marks], "muted") if pictures else "",
        page.table(columns, rows), appendix,
    ], language)  # fmt: skip


def _summary(entries: Sequence[Entry], say: Say) -> str:
    """One row per diagnosis, the most frequent first, photos without a diagnosis last."""
    found: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        found.setdefault((entry.answer, entry.kind), []).append(entry)
    rows = []
    for (answer, kind), those in sorted(found.items(), key=lambda pair: (pair[0][1] == "muted", -len(pair[1]))):
        highest = [entry.guesses[0][1] for entry in those if entry.guesses and kind != "muted"]
        areas = [entry.diseased / 100 for entry in those if entry.diseased is not None]
        rows.append([
            f'<span class="{kind}">{escape(answer)}</span>', f"{len(those):,}", percent(len(those) / len(entries)),
            escape(stated(median(highest))) if highest else "", escape(whole_percent(median(areas))) if areas else "",
        ])  # fmt: skip
    columns = (page.Column(say("Diagnosis"), "42%"), page.Column(say("Photos"), "10%", True),
               page.Column(say("Share"), "10%", True), page.Column(say("Probability (median)"), "19%", True),
               page.Column(say("Leaf diseased (median)"), "19%", True))  # fmt: skip
    return page.table(columns, rows)


def _describe(model: ModelIdentity, photos: int, say: Say) -> str:
    more = ", ".join(text for text in (model.date, model.short_hash) if text)
    return say("Model: {name} ({more}). Photos: {n}.").format(name=model.name, more=more, n=photos)


def _row(entry: Entry, name: str, shown: int, several: bool) -> list[str]:
    """The cells of an entry; shown: side of its picture in pixels; several: whether to name the model."""
    caption = f'<small class="muted">{escape(name)}</small>'
    photo = f"{page.picture(entry.picture, shown, name)}<br>{caption}" if entry.picture else caption
    paragraphs = [f'<p><b class="{entry.kind}">{escape(entry.answer)}</b></p>']
    paragraphs += [f"<p>{escape(text)}</p>" for text in entry.sentences if text]
    if several and entry.model.name:
        paragraphs.append(f'<p><small class="muted">{escape(entry.model.name)} ({entry.model.short_hash})</small></p>')
    guesses = [guess for at, guess in enumerate(entry.guesses) if not at or guess[1] >= LEAST]
    bars = "".join(f"<p>{escape(label)} <b>{escape(stated(p))}</b></p>" for label, p in guesses)
    return [photo, "".join(paragraphs), bars]
