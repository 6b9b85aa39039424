"""A report as PDF: sheets, pictures and drawings arrive; nothing of the browser's style is garbled."""

import re
import subprocess

import cv2
import numpy as np
import pytest
from PySide6.QtCore import QSizeF

from app.document_pdf import _document, write_pdf
from core.diagnosis import page
from core.errors import StorageError
from core.training.charts import ChartSeries, draw_bars, draw_lines
from tests.helpers.programs import find_program


@pytest.fixture
def report():
    chart = draw_lines("Loss", [ChartSeries("training", ((0.0, 1.0), (1.0, 0.5)))], "epoch")
    rows = [[f"class {n}", str(n)] for n in range(90)]
    return page.render_page("A report", [
        "<h1>A report</h1>", page.tiles([("98.3 %", "right", "of 2600 photos")]), page.side_by_side([chart, chart]),
        draw_bars("Bars", [("one", 0.9, "#1f7a4d")]), page.table(("class", "photos"), rows, (1,), ("70%", "30%")),
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


def test_a_file_that_cannot_be_written_is_told(qapp, report, tmp_path):
    with pytest.raises(StorageError):
        write_pdf(report, tmp_path / "missing" / "report.pdf")
