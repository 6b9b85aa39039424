"""Text for terminals, JSON lines and spreadsheets, safe whatever the names in it."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

FORMULA: Final = re.compile("^(?=[=+\\-@\t\r\n＝＋－＠])|(?<=[;\t\r\n])(?=[=+\\-@＝＋－＠])")
"""Positions where a spreadsheet recognizes a formula; an apostrophe there makes it text (OWASP, CSV injection). With
decimal commas, spreadsheets split cells at semicolons."""
CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control characters, line separators, and marks that reverse the direction of the text around them."""


def printable(text: str, keep: str = "") -> str:
    """Escape control characters, which move a terminal's cursor or hide text, except those in `keep`."""
    return CONTROL.sub(lambda found: found[0] if found[0] in keep else f"\\x{ord(found[0]):02x}", text)


def json_line(value: Any) -> str:
    """The value as JSON on one line, readable in any script, control characters as ``\\uXXXX``."""
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))


def json_text(value: Any, **how: Any) -> str:
    """The value as JSON that UTF-8 can hold; surrogates, of file names that are no UTF-8, as ``\\uDCXX``."""
    return json.dumps(value, ensure_ascii=False, **how).encode("utf-8", "backslashreplace").decode()


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Rows as CSV in which spreadsheets evaluate no formula."""
    return "".join(csv_lines(map(as_cell, row) for row in rows))


def csv_lines(rows: Iterable[Iterable[object]]) -> Iterator[str]:
    """Rows as they are; Python's writer quotes a cell with a carriage return only if its own line end contains one."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    for row in rows:
        writer.writerow(row)
        yield text.getvalue()[:-2] + "\n"
        text.truncate(text.seek(0))


def as_cell(value: object) -> object:
    """The value as `csv_text` writes it."""
    if isinstance(value, str) and FORMULA.search(value):
        try:
            float(value)  # numbers may begin with a sign
        except ValueError:
            return FORMULA.sub("'", value)
    return value


def align_columns(rows: Sequence[tuple[str, ...]], right: tuple[int, ...] = ()) -> str:
    """Format rows as columns of printable text; the columns in `right` are right-aligned."""
    rows = [tuple(map(printable, row)) for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def shortest_ends(paths: Sequence[str]) -> list[str]:
    """The end of each path, with as many folders as tell it from the others."""
    parts = [Path(path).parts for path in paths]
    many = Counter(one[at:] for one in set(parts) for at in range(len(one)))
    ends = [next((one[at:] for at in reversed(range(len(one))) if many[one[at:]] == 1), one) for one in parts]
    return [str(Path(*end)) if end else path for end, path in zip(ends, paths, strict=True)]
