"""Divides a long page into sheets of paper, between table rows and text lines.

Qt's own pagination breaks a row at any line and moves its pictures to the next sheet.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Final, TypeAlias, final

from PySide6.QtCore import QRectF
from PySide6.QtGui import QTextBlock, QTextCursor, QTextDocument, QTextTable

Span: TypeAlias = tuple[float, float]
"""Top and bottom in the page's pixels."""

NARROW: Final = 0.5
"""Pixels that do not count as crossing an edge."""


@final
@dataclass(frozen=True, slots=True)
class TableHeader:
    """The header rows of a table, repeated on every sheet of the table; `end` is the table's."""

    top: float
    bottom: float
    end: float

    @property
    def height(self) -> float:
        return self.bottom - self.top


@final
@dataclass(frozen=True, slots=True)
class Sheet:
    """One sheet: the header of a table that began earlier, if any, and the page from top to bottom."""

    header: TableHeader | None
    top: float
    bottom: float


def cut_sheets(document: QTextDocument, height: float) -> list[Sheet]:
    """The sheets of a document that is laid out as one page, each at most so many pixels high.

    A row or line higher than a sheet is cut. Headings stay with what follows them, table headers with a row.
    """
    spans, headers = _measure(document)
    total = document.size().height()
    sheets: list[Sheet] = []
    top = 0.0
    while not sheets or top < total - NARROW:
        header = next((h for h in headers if h.bottom - NARROW <= top < h.end - NARROW and 2 * h.height < height), None)
        room = height - (header.height if header else 0.0)
        bottom = _end(spans, top, room) if top + room < total else total
        sheets.append(Sheet(header, top, bottom))
        top = bottom
    return sheets


def _end(spans: Sequence[Span], top: float, room: float) -> float:
    """The lowest position on a sheet at which nothing is cut; `spans` are sorted."""
    end = top + room
    near = spans[bisect_left(spans, (top + NARROW, inf)) : bisect_left(spans, (end, 0.0))]
    whole = [s for s in near if s[1] - s[0] <= room]
    while crossed := [s[0] for s in whole if s[0] < end - NARROW and s[1] > end + NARROW]:
        end = min(crossed)
    return end


def _measure(document: QTextDocument) -> tuple[list[Span], list[TableHeader]]:
    """What must not be cut, and the headers of the tables."""
    layout = document.documentLayout()
    spans: list[Span] = []
    tables: dict[int, QTextTable] = {}
    rows: dict[tuple[int, int], Span] = {}
    title: float | None = None
    block = document.begin()
    while block.isValid():
        box = layout.blockBoundingRect(block)
        for table in _tables_around(block):
            place = (table.objectIndex(), table.cellAt(block.position()).row())
            before = rows.get(place, (box.top(), box.bottom()))
            tables[place[0]], rows[place] = table, (min(before[0], box.top()), max(before[1], box.bottom()))
        lines = _lines(block, box.top())
        if title is not None and lines:
            spans.append((title, lines[0][1]))
        spans += lines
        title = box.top() if block.blockFormat().headingLevel() else None
        block = block.next()
    headers = []
    for index, table in tables.items():
        edges = _edges(layout.frameBoundingRect(table), [rows[at] for at in sorted(rows) if at[0] == index])
        spans += edges
        count = table.format().toTableFormat().headerRowCount()
        if 0 < count < len(edges):
            headers.append(TableHeader(edges[0][0], edges[count - 1][1], edges[-1][1]))
            spans.append((edges[0][0], edges[count][1]))
    return sorted(spans), headers


def _tables_around(block: QTextBlock) -> Iterator[QTextTable]:
    """The tables that contain a block, from the innermost."""
    frame = QTextCursor(block).currentFrame()
    while frame is not None:
        if isinstance(frame, QTextTable):
            yield frame
        frame = frame.parentFrame()


def _lines(block: QTextBlock, top: float) -> list[Span]:
    laid = block.layout()
    found = [laid.lineAt(at) for at in range(laid.lineCount())]
    return [(top + line.y() - found[0].y(), top + line.y() - found[0].y() + line.height()) for line in found]


def _edges(box: QRectF, rows: Sequence[Span]) -> list[Span]:
    """The rows of a table with their spacing: each begins where the previous one ends."""
    between = [(above[1] + below[0]) / 2 for above, below in pairwise(rows)]
    return list(pairwise([box.top(), *between, box.bottom()]))
