"""A report as PDF: the HTML page laid out by Qt and cut into A4 sheets between table rows and text lines."""

from __future__ import annotations

import re
from base64 import b64decode
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Final, TypeAlias

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QMarginsF, QRectF, QSizeF, Qt, QUrl
from PySide6.QtGui import (
    QAbstractTextDocumentLayout,
    QColor,
    QFont,
    QImage,
    QPageLayout,
    QPageSize,
    QPainter,
    QPdfWriter,
    QTextBlock,
    QTextCursor,
    QTextDocument,
    QTextTable,
)
from PySide6.QtSvg import QSvgRenderer

from core.storage import write_file

SHEET_WIDTH: Final = 720.0
"""Width of the text in the page's own pixels."""
MARGIN_MM: Final = 15.0
RESOLUTION: Final = 300
CHART_SCALE: Final = 3
"""Rendered pixels per page pixel of a chart: 310 dots per inch."""
FOOTER_HEIGHT: Final = 30.0
FONT_PIXELS: Final = 12
DRAWING: Final = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
EMBEDDED_IMAGE: Final = re.compile(r'src="data:image/jpeg;base64,([^"]+)"')
"""Qt decodes such an address again whenever it lays out or draws the image."""
BROWSER_STYLE: Final = re.compile(r"<style media=.*?</style>", re.DOTALL)
"""Style sheets that Qt's rich text does not support."""


def write_pdf(html: str, path: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> int:
    """Write the page as a PDF file and return its number of sheets; calls `progress(sheets, of)` before each.

    Raises StorageError. Needs a QGuiApplication. Inline SVG is rendered first; everything else must be in the subset of
    HTML and CSS that Qt's rich text supports (`core.diagnosis.page` uses only this subset).
    """
    data = QByteArray()
    buffer = QBuffer(data)
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    sheets = _paint(html, buffer, progress)
    buffer.close()
    write_file(path, bytes(data.data()))
    return sheets


def _paint(html: str, device: QIODevice, progress: Callable[[int, int], None]) -> int:
    writer = QPdfWriter(device)
    writer.setResolution(RESOLUTION)
    writer.setCreator("LeafClinic")
    margins = QMarginsF(MARGIN_MM, MARGIN_MM, MARGIN_MM, MARGIN_MM)
    writer.setPageLayout(QPageLayout(QPageSize(QPageSize.PageSizeId.A4), QPageLayout.Orientation.Portrait, margins,
                                     QPageLayout.Unit.Millimeter))  # fmt: skip
    scale = writer.width() / SHEET_WIDTH
    sheet = QSizeF(SHEET_WIDTH, writer.height() / scale - FOOTER_HEIGHT)
    document = _document(html, sheet)
    writer.setTitle(document.metaInformation(QTextDocument.MetaInformation.DocumentTitle))
    painter = QPainter(writer)
    painter.scale(scale, scale)
    sheets = cut_sheets(document, sheet.height())
    for number, cut in enumerate(sheets):
        progress(number, len(sheets))
        if number:
            writer.newPage()
        painter.save()
        if cut.header:
            _paint_part(painter, document, cut.header.top, cut.header.bottom)
        _paint_part(painter, document, cut.top, cut.bottom)
        painter.restore()
        _number(painter, sheet, f"{number + 1} / {len(sheets)}")
    painter.end()
    return len(sheets)


def _paint_part(painter: QPainter, document: QTextDocument, top: float, bottom: float) -> None:
    """Paint the part of the page between two heights; the painter's origin moves below it."""
    painter.save()
    painter.translate(0, -top)
    document.drawContents(painter, QRectF(0, top, document.textWidth(), bottom - top))
    painter.restore()
    painter.translate(0, bottom - top)


def _document(html: str, sheet: QSizeF) -> QTextDocument:
    """The page as a document of the width of a sheet and unlimited height."""
    font = QFont()
    font.setPixelSize(FONT_PIXELS)
    document = QTextDocument(documentMargin=0, defaultFont=font)
    drawn = DRAWING.sub(lambda found: _draw(found.group(), document, sheet.width()), BROWSER_STYLE.sub("", html))
    add = partial(_add, document)
    document.setHtml(EMBEDDED_IMAGE.sub(lambda found: f'src="{add(QImage.fromData(b64decode(found[1])))}"', drawn))
    document.setTextWidth(sheet.width())
    return document


def _draw(svg: str, document: QTextDocument, widest: float) -> str:
    """The SVG as an image of the document, no wider than the sheet."""
    renderer = QSvgRenderer(QByteArray(svg.encode()))
    size = QSizeF(renderer.defaultSize())
    if not renderer.isValid() or size.isEmpty():
        return ""
    if size.width() > widest:
        size *= widest / size.width()
    image = QImage((size * CHART_SCALE).toSize(), QImage.Format.Format_RGB32)
    image.fill(QColor(Qt.GlobalColor.white))  # with transparency, PDF readers draw dark rims
    painter = QPainter(image)
    renderer.render(painter)
    painter.end()
    picture = f'<img src="{_add(document, image)}" width="{size.width():.0f}" height="{size.height():.0f}">'
    return f"<div>{picture}</div>"  # as in a browser; otherwise it joins the last line of the list before it


def _add(document: QTextDocument, image: QImage) -> str:
    name = f"image-{image.cacheKey():x}"
    document.addResource(QTextDocument.ResourceType.ImageResource, QUrl(name), image)
    return name


def _number(painter: QPainter, sheet: QSizeF, text: str) -> None:
    font = QFont()
    font.setPixelSize(10)
    painter.setFont(font)
    painter.setPen(QColor("#5c6b62"))
    painter.drawText(QRectF(0, sheet.height(), sheet.width(), FOOTER_HEIGHT),
                     Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignBottom, text)  # fmt: skip


Span: TypeAlias = tuple[float, float]
"""Top and bottom in the page's pixels."""

SLACK: Final = 0.5
"""Pixels that do not count as crossing an edge."""


@dataclass(frozen=True, slots=True)
class TableHeader:
    """The header rows of a table, repeated on every sheet of the table; `end` is the table's."""

    top: float
    bottom: float
    end: float

    @property
    def height(self) -> float:
        return self.bottom - self.top


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
    while not sheets or top < total - SLACK:
        header = next((h for h in headers if h.bottom - SLACK <= top < h.end - SLACK and 2 * h.height < height), None)
        room = height - (header.height if header else 0.0)
        bottom = _end(spans, top, room) if top + room < total else total
        sheets.append(Sheet(header, top, bottom))
        top = bottom
    return sheets


def _end(spans: Sequence[Span], top: float, room: float) -> float:
    """The lowest position on a sheet at which nothing is cut; `spans` are sorted."""
    end = top + room
    near = spans[bisect_left(spans, (top + SLACK, inf)) : bisect_left(spans, (end, 0.0))]
    whole = [s for s in near if s[1] - s[0] <= room]
    while crossed := [s[0] for s in whole if s[0] < end - SLACK and s[1] > end + SLACK]:
        end = min(crossed)
    return end


def _measure(document: QTextDocument) -> tuple[list[Span], list[TableHeader]]:
    """What must not be cut, and the headers of the tables."""
    layout = document.documentLayout()
    spans: list[Span] = []
    tables: dict[int, QTextTable] = {}
    title: float | None = None
    block = document.begin()
    while block.isValid():
        if table := QTextCursor(block).currentTable():  # no table is within another
            tables[table.objectIndex()] = table
        top = layout.blockBoundingRect(block).top()
        lines = _lines(block, top)
        if title is not None and lines:
            spans.append((title, lines[0][1]))
        spans += lines
        title = top if block.blockFormat().headingLevel() else None
        block = block.next()
    headers = []
    for table in tables.values():
        rows, count = _rows(table, layout), table.format().toTableFormat().headerRowCount()
        spans += rows
        if 0 < count < len(rows):
            headers.append(TableHeader(rows[0][0], rows[count - 1][1], rows[-1][1]))
            spans.append((rows[0][0], rows[count][1]))
    return sorted(spans), headers


def _lines(block: QTextBlock, top: float) -> list[Span]:
    laid = block.layout()
    found = [laid.lineAt(at) for at in range(laid.lineCount())]
    return [(top + line.y() - found[0].y(), top + line.y() - found[0].y() + line.height()) for line in found]


def _rows(table: QTextTable, layout: QAbstractTextDocumentLayout) -> list[Span]:
    """The rows of a table with their spacing: each begins where the previous one ends."""
    box = layout.frameBoundingRect(table)
    cells = [[table.cellAt(row, at) for at in range(table.columns())] for row in range(table.rows())]
    tops = [min(layout.blockBoundingRect(cell.firstCursorPosition().block()).top() for cell in row) for row in cells]
    ends = [max(layout.blockBoundingRect(cell.lastCursorPosition().block()).bottom() for cell in row) for row in cells]
    between = [(end + top) / 2 for end, top in zip(ends, tops[1:], strict=False)]
    return list(pairwise([box.top(), *between, box.bottom()]))
