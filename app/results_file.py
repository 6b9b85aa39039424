"""Diagnoses as files: a table for spreadsheets, and a page with pictures that stands alone."""

from __future__ import annotations

import base64
import csv
import html
import io
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from app.translation import tr
from app.viewmodels.confusion import readable
from app.viewmodels.diagnosis import Result
from core.data.photo import PhotoError, read_photo
from core.data.synthetic import encode_jpeg
from core.storage import write_file

PICTURE: Final = 160
DANGEROUS: Final = ("=", "+", "-", "@", "\t", "\r")
"""A cell that begins so is run as a formula by spreadsheets; an apostrophe makes it a text."""

PAGE: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>LeafClinic</title>
<style>body{{font:15px/1.45 sans-serif;margin:2em auto;max-width:60em;padding:0 1em;color:#1c2620}}
table{{border-collapse:collapse;width:100%}}td,th{{border-bottom:1px solid #d5dcd2;padding:.5em;text-align:left;
vertical-align:top}}img{{border-radius:6px;display:block}}.muted{{color:#58655c}}</style>
<h1>{title}</h1><p class="muted">{about}</p><table><tr>{heading}</tr>
{rows}</table></html>
"""


def write_csv(path: Path, results: Sequence[Result]) -> None:
    """One row per photo: path, diagnosis, the three likeliest with probabilities, or the error. Raises StorageError."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    places = [f"{what}{n}" for n in (1, 2, 3) for what in ("class", "probability")]
    writer.writerow(["path", "diagnosis", *places, "error"])
    for result in results:
        top = [value for name, share in result.top for value in (_safe(name), f"{share:.6f}")]
        writer.writerow([_safe(result.path), _safe(result.verdict), *(top + [""] * 6)[:6], result.error])
    write_file(path, text.getvalue())


def write_html(path: Path, results: Sequence[Result], model: str) -> None:
    """The same as a page with small pictures inside. Raises StorageError."""
    heading = "".join(f"<th>{html.escape(t)}</th>" for t in (tr("Photo"), tr("Diagnosis"), tr("Likeliest classes")))
    about = tr("{count} photos, {time}, model {model}")
    page = PAGE.format(
        title=html.escape(tr("Diagnoses")),
        about=html.escape(about.format(count=len(results), time=time.strftime("%Y-%m-%d %H:%M"), model=model)),
        heading=heading,
        rows="\n".join(_row(result) for result in results),
    )
    write_file(path, page)


def _row(result: Result) -> str:
    top = "<br>".join(f"{html.escape(readable(name))} {share:.1%}" for name, share in result.top)
    verdict = html.escape(readable(result.verdict)) or f"<span class=muted>{html.escape(result.error)}</span>"
    name = html.escape(Path(result.path).name)
    return f"<tr><td>{_picture(result.path)}<span class=muted>{name}</span></td><td>{verdict}</td><td>{top}</td></tr>"


def _picture(path: str) -> str:
    try:
        jpeg = encode_jpeg(read_photo(path, PICTURE), quality=80)
    except PhotoError:
        return ""
    return f'<img width="{PICTURE}" alt="" src="data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}">'


def _safe(text: str) -> str:
    return "'" + text if text.startswith(DANGEROUS) else text
