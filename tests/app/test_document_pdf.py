"""A report as PDF: pictures and drawings arrive, and the page is cut into sheets between rows and lines."""

import re
import subprocess

import cv2
import numpy as np
import pytest
from PySide6.QtCore import QSizeF
from PySide6.QtGui import QTextDocument

from app.document_pdf import SHEET_WIDTH, _document, cut_sheets, write_pdf
from core.diagnosis import page
from core.diagnosis.metrics import Metrics
from core.errors import StorageError
from core.training.charts import ChartSeries, draw_bars, draw_lines
from core.training.report import _classes
from tests.helpers.programs import find_program

COLUMNS = page.Column("class", "70%"), page.Column("photos", "30%", True)


@pytest.fixture
def report():
    chart = draw_lines("Loss", [ChartSeries("training", ((0.0, 1.0), (1.0, 0.5)))], "epoch")
    rows = [[f"class {n}", str(n)] for n in range(90)]
    return page.render_page("A report", [
        "<h1>A report</h1>", page.tiles([("98.3 %", "right", "of 2600 photos")]), page.side_by_side([chart, chart]),
        draw_bars("Bars", [("one", 0.9, "#1f7a4d")]), page.table(COLUMNS, rows),
    ])  # fmt: skip


def test_a_report_becomes_sheets_of_a4_with_its_words_and_drawings(qapp, report, tmp_path):
    path = tmp_path / "report.pdf"
    sheets = write_pdf(report, path)
    data = path.read_bytes()
    assert data.startswith(b"%PDF-1.")
    assert data.rstrip().endswith(b"%%EOF")
    assert 3 <= sheets == len(re.findall(rb"/Type\s*/Page\b", data)) <= 5
    assert data.count(b"/Subtype /Image") >= 2
    find_program("pdftotext")
    text = subprocess.run(["pdftotext", str(path), "-"], capture_output=True, text=True, check=True).stdout
    for words in ("A report", "98.3 %", "class 89"):
        assert words in text
    assert re.search(r"1\s*/\s*3", text)
    assert "min-width" not in text  # the browser's style sheet is no text
    subprocess.run(["pdftoppm", "-r", "50", "-png", "-l", "1", str(path), str(tmp_path / "sheet")], check=True)
    sheet = cv2.imread(str(next(tmp_path.glob("sheet*.png")))).astype(int)
    assert (np.abs(sheet - (77, 122, 31)).max(axis=2) < 40).sum() > 100  # the green bar, BGR


def test_a_drawing_after_a_list_does_not_stand_in_its_last_line(qapp):
    """Its line is as high as the drawing only where it stands alone."""
    bars = draw_bars("Bars", [("one", 0.9, "#1f7a4d")])
    html = page.render_page("A report", [page.bullets(["first", "the last sentence of the list"]), bars])
    document = _document(html, QSizeF(720, 1000))
    lines = document.toPlainText().splitlines()
    assert "the last sentence of the list" in lines, lines


def test_a_class_and_its_figures_stand_in_one_line_each(qapp):
    html = _classes(Metrics(("cedar_apple_rust", "powdery_mildew"), ((15, 0), (0, 15)), 0.3))
    document = _document(page.render_page("A report", [html]), QSizeF(SHEET_WIDTH, 1000))
    assert document.size().height() > 0, "laid out"
    block, lines = document.begin(), {}
    while block.isValid():
        lines[block.text()] = block.layout().lineCount()
        block = block.next()
    assert {lines[text] for text in ("cedar_apple_rust", "powdery_mildew", "photos", "precision", "1.000")} == {1}


def test_a_file_that_cannot_be_written_is_told(qapp, report, tmp_path):
    with pytest.raises(StorageError):
        write_pdf(report, tmp_path / "missing" / "report.pdf")


HEIGHT = 300.0


def lay_out(*parts: str) -> QTextDocument:
    document = QTextDocument()
    document.setDocumentMargin(0)
    document.setHtml(page.render_page("A page", parts))
    document.setTextWidth(600)
    return document


def long_table(count: int) -> str:
    return page.table(COLUMNS, [[f"class {n}<br>the middle of {n}<br>the end of {n}.", str(n)] for n in range(count)])


def sheet_of(document: QTextDocument, text: str) -> int:
    sheets = cut_sheets(document, HEIGHT)
    box = document.documentLayout().blockBoundingRect(document.find(text).block())
    (found,) = [at for at, s in enumerate(sheets) if s.top <= box.top() + 1 and box.bottom() <= s.bottom + 1]
    return found


def test_rows_stay_whole_and_nothing_is_lost(qapp):
    document = lay_out("<h1>Many</h1>", long_table(40), page.paragraphs(["word " * 900]))
    sheets = cut_sheets(document, HEIGHT)
    assert len(sheets) > 5
    assert (sheets[0].top, sheets[-1].bottom) == (0, document.size().height())
    assert all(a.bottom == b.top for a, b in zip(sheets, sheets[1:], strict=False))
    for sheet in sheets:
        assert 0 < sheet.bottom - sheet.top + (sheet.header.height if sheet.header else 0) <= HEIGHT
    for number in range(40):
        sheet_of(document, f"the middle of {number}")
    assert [bool(s.header) for s in sheets[:6]] == [False, *[True] * 5]
    assert sheets[-1].header is None


@pytest.mark.parametrize("before", range(0, 16))
def test_a_heading_stays_with_the_first_row(qapp, before):
    document = lay_out(*["<p>line</p>"] * before, page.heading("Classes"), long_table(2))
    assert sheet_of(document, "Classes") == sheet_of(document, "photos") == sheet_of(document, "the middle of 0")


def test_a_row_higher_than_a_sheet_is_cut_between_lines(qapp):
    document = lay_out(page.table(COLUMNS[:1], [["word " * 2000]]))
    sheets = cut_sheets(document, HEIGHT)
    assert len(sheets) > 3
    assert all(s.bottom - s.top > HEIGHT / 2 for s in sheets[1:-1])


def test_every_row_of_the_file_is_on_one_sheet(qapp, tmp_path):
    find_program("pdftotext")
    path = tmp_path / "report.pdf"
    count = write_pdf(page.render_page("A page", [long_table(90)]), path)
    seen: list[str] = []
    for number in range(1, count + 1):
        command = ["pdftotext", "-f", str(number), "-l", str(number), str(path), "-"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "photos" in text  # the header of the table
        begun, ended = re.findall(r"class (\d+)\s", text), re.findall(r"the end of (\d+)\.", text)
        assert begun == ended
        seen += begun
    assert seen == [str(n) for n in range(90)]
