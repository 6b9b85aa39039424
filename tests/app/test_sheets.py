"""Where a page is cut into sheets: between rows and lines, with the heads of tables again on each."""

import re
import subprocess

import pytest
from PySide6.QtGui import QTextDocument

from app.document_pdf import cut_sheets, write_pdf
from core.diagnosis import page
from tests.helpers.programs import find_program

HEIGHT = 300.0


def lay_out(*parts: str) -> QTextDocument:
    document = QTextDocument()
    document.setDocumentMargin(0)
    document.setHtml(page.render_page("A page", parts))
    document.setTextWidth(600)
    return document


def long_table(count: int) -> str:
    rows = [[f"class {n}<br>the middle of {n}<br>the end of {n}.", str(n)] for n in range(count)]
    return page.table(("class", "photos"), rows, (1,), ("70%", "30%"))


def sheet_of(document: QTextDocument, text: str) -> int:
    """The one sheet on which a text stands whole."""
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
    document = lay_out(page.table(("a",), [["word " * 2000]]))
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
