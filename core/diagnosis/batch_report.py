"""The report of a batch of diagnoses: one HTML page that needs nothing else, with pictures and the model card."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final, final

import cv2
import numpy as np

from core.data.synthetic import encode_jpeg
from core.diagnosis import page
from core.diagnosis.examination import Examination
from core.diagnosis.model_card import TEST, render_card_html
from core.diagnosis.model_file import ModelFile
from core.diagnosis.prediction import Diagnosis, Guess
from core.diagnosis.severity import SCALE
from core.diagnosis.verdict import NO_LEAF, NOT_SURE, is_healthy
from core.ops.contract import Array
from core.percent import stated

PICTURE: Final = 256
SHOWN: Final = 150
"""Side of a picture in the file and on the page, pixels; two of them take about 40 KB."""
WIDTHS: Final = ("24%", "24%", "30%", "22%")
QUALITY: Final = 82
LESION: Final = (220, 40, 30)
LEAF: Final = (40, 170, 90)
WARM: Final = (255, 190, 0)
BAR: Final = 14
"""Characters of the longest bar of a probability."""
LEAST: Final = 0.005
"""Probability below which a further class says nothing."""


@final
@dataclass(frozen=True, slots=True)
class Entry:
    """A diagnosed photo and its pictures as JPEG files: as it was looked at, and with what was found marked on it."""

    diagnosis: Diagnosis
    photo: bytes = b""
    marked: bytes = b""


def make_entry(diagnosis: Diagnosis, found: Examination | None) -> Entry:
    """The entry of an examined photo, or of one that could not be read."""
    if found is None:
        return Entry(diagnosis)
    return Entry(diagnosis, _jpeg(found.photo), _jpeg(mark(found)))


def mark(found: Examination) -> Array:
    """The photo with the class map laid over it, its leaf and lesions outlined; uint8 RGB ``(side, side, 3)``."""
    photo: Array = found.photo.astype(np.float32)
    if found.heat is not None:
        weight = 0.55 * np.clip(found.heat, 0, 1)[..., None]
        photo = photo * (1 - weight) + np.array(WARM, np.float32) * weight
    marked = np.ascontiguousarray(photo.astype(np.uint8))
    for mask, colour in ((found.severity.leaf, LEAF), (found.severity.lesions, LESION)):
        outlines, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
        cv2.drawContours(marked, outlines, -1, colour, 1, cv2.LINE_AA)
    return marked


def render_batch(entries: Sequence[Entry], model: ModelFile, name: str) -> str:
    """The whole page; `name` is the model's."""
    title = "LeafClinic: diagnoses"
    when = time.strftime("%Y-%m-%d %H:%M")
    told = [f"{len(entries)} photos, {when}, model {name}."]
    marks = ("In the second picture of a photo the leaf's outline is green, diseased area red, and what speaks for the "
             f"likeliest answer is yellow. Grades are of the {SCALE} scale, 0 to 11.")  # fmt: skip
    return page.render_page(title, [
        f"<h1>{escape(title)}</h1>", page.paragraphs(told, "muted"),
        *_summary(entries), *_caution(model),
        page.heading("Photo by photo"), page.paragraphs([marks], "muted") if any(e.marked for e in entries) else "",
        page.table(("photo", "", "diagnosis", "likeliest"), [_row(entry) for entry in entries], (), WIDTHS),
        page.heading("Model card"), render_card_html(model),
    ])  # fmt: skip


def _summary(entries: Sequence[Entry]) -> list[str]:
    words = Counter("not readable" if e.diagnosis.error else e.diagnosis.verdict for e in entries)
    doubtful = [word for word in (NOT_SURE, NO_LEAF, "not readable") if words[word]]
    named = sum(count for word, count in words.items() if word not in doubtful)
    shown = [(str(named), "named", f"of {len(entries)} photos")]
    shown += [(str(words[word]), word, "") for word in doubtful]
    classes = ", ".join(f"{readable(word)}: {count}" for word, count in words.most_common() if word not in doubtful)
    return [page.tiles(shown), page.paragraphs([f"{classes}."], "lead") if classes else ""]


def _caution(model: ModelFile) -> list[str]:
    """How good the model was on photos never seen, lab beside field."""
    parts = model.sections.get(TEST, {}).get("parts", ())
    told = [f"{row['name']} {100 * row['right']:.1f} % ({page.interval(tuple(row['interval']))})" for row in parts
            if row["name"] == "all" or "photos" in row["name"]]  # fmt: skip
    caution = "This is a machine's opinion on a photo; where much depends on it, ask somebody who sees the plant."
    known = f"On photos never seen this model named right: {'; '.join(told)}. " if told else ""
    return [page.note(known + caution)]


def _row(entry: Entry) -> list[str]:
    found = entry.diagnosis
    name = escape(Path(found.path).name)
    photo = page.picture(entry.photo, SHOWN, name) if entry.photo else ""
    marked = page.picture(entry.marked, SHOWN, f"{name}, marked") if entry.marked else ""
    said = [f'<p><b class="{_kind(found)}">{escape(readable(found.verdict) or "not readable")}</b></p>']
    said += [f"<p>{escape(text)}</p>" for text in (found.error, found.reason) if text]
    said += [f'<p class="sick">{escape(text)}</p>' for text in found.notes]
    if found.diseased is not None:
        said.append(f"<p>{page.percent(found.diseased / 100)} of the leaf diseased<br>(grade {found.grade} of 11)</p>")
    return [f'{photo}<br><small class="muted">{name}</small>', marked, "".join(said),
            "".join(_guess(g) for i, g in enumerate(found.top) if not i or g.probability >= LEAST)]  # fmt: skip


def _guess(guess: Guess) -> str:
    bar = "\u2588" * round(BAR * guess.probability) or "\u258f"
    return (f'<p>{escape(readable(guess.label))} <b>{escape(stated(guess.probability))}</b><br>'
            f'<small style="color:{page.GREEN}">{bar}</small></p>')  # fmt: skip


def _kind(found: Diagnosis) -> str:
    if found.error or found.verdict in (NOT_SURE, NO_LEAF):
        return "muted"
    return "well" if is_healthy(found.verdict) else "sick"


def readable(label: str) -> str:
    """A class name as a person reads it: ``tomato/late_blight`` is "tomato: late blight"."""
    return label.replace("/", ": ").replace("_", " ")


def _jpeg(rgb: Array) -> bytes:
    return encode_jpeg(cv2.resize(rgb, (PICTURE, PICTURE), interpolation=cv2.INTER_AREA), QUALITY)
