"""Names from outside: nothing that a terminal or a spreadsheet obeys."""

import csv
import io
import json
from unittest.mock import Mock

import numpy as np
import pytest

from core import diagnose, evaluate
from core.diagnosis.page import render_page
from core.text import align_columns, csv_text, json_line, printable
from core.training.events import Warned
from core.training.run_folder import RunFolder
from core.training.terminal import TerminalReader
from tests.helpers.models import write_small_model
from tests.helpers.tiny_photos import write_photos

ESCAPE, FORMULA = "rust\x1b[2J\x9b31m\r\x07\u202e", '=HYPERLINK("http://x","y")'
OBEYED = ("\x1b", "\x9b", "\r", "\x07", "\u202e")


@pytest.fixture
def model(tmp_path):
    return write_small_model(tmp_path / "m.safetensors", (ESCAPE, FORMULA, "@SUM(1)"))


@pytest.mark.parametrize("form", [(), ("--json",), ("--csv",)])
def test_class_and_file_names_leave_the_terminal_as_it_is(model, tmp_path, capsys, monkeypatch, form):
    photos = write_photos(tmp_path / "photos", classes=("green",))
    photo = photos / "green" / "\x1b[2Jleaf\x9b.png"
    next(photos.rglob("*.png")).rename(photo)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert diagnose.main([str(model), str(photo), str(tmp_path / "gone\x1b[2J\udcff"), *form]) != 2
    said = capsys.readouterr()
    assert "rust" in said.out
    assert not [sign for sign in OBEYED if sign in said.out + said.err]


def test_a_file_keeps_names_as_they_are_and_runs_no_formula(model, tmp_path, capsys):
    photos = write_photos(tmp_path / "photos", classes=("green",))
    assert diagnose.main([str(model), str(photos), "--csv"]) == 0
    for row in csv.reader(io.StringIO(capsys.readouterr().out, newline="")):
        assert not [cell for cell in row if cell.startswith(("=", "@"))]
        assert row[0] == "path" or {"'" + FORMULA, "'@SUM(1)", ESCAPE} <= set(row)


def test_mistakes_and_confusion_run_no_formula(tmp_path):
    mistake = evaluate.Mistake("=photo.jpg", FORMULA, "+1+cmd|' /C calc'!A0", 0.5)
    evaluate.write_mistakes(tmp_path / "mistakes.csv", [mistake])
    folder, figures = Mock(spec=RunFolder), Mock(classes=(FORMULA, "rust"), confusion=((1, 2), (0, 3)))
    RunFolder.write_confusion(folder, figures)
    assert next(csv.reader([folder.write.call_args.args[1].splitlines()[0]]))[1:] == ["'" + FORMULA, "rust"]
    rows = list(csv.reader((tmp_path / "mistakes.csv").read_text("utf-8").splitlines()))
    assert rows[1] == ["'=photo.jpg", "'" + FORMULA, "'+1+cmd|' /C calc'!A0", "0.5000"]


def test_numbers_stay_numbers_and_behind_semicolons_no_formula_runs_either():
    rows: list = [["-0.5", "+3", "-inf", -1.5, np.float32(-2), None], ["-1+1", "＝1", "\t=1", "a=b", "-", ""]]
    assert csv_text(rows[:2]) == "-0.5,+3,-inf,-1.5,-2.0,\n'-1+1,'＝1,'\t'=1,a=b,'-,\n"
    said = csv_text([["rust;=1+1;x", "a\n@SUM(1)", "leaf; -3 at night", "a;b=c"]])
    cells = next(csv.reader(io.StringIO(said, newline="")))
    assert cells == ["rust;'=1+1;x", "a\n'@SUM(1)", "leaf; -3 at night", "a;b=c"]


def test_lines_of_a_run_pages_and_json_hold_no_control_characters():
    assert not any(mark in render_page(ESCAPE, [ESCAPE]) for mark in OBEYED)
    stream = io.StringIO()
    for moving in (True, False):
        TerminalReader(stream, moving).show(Warned(f"class {ESCAPE}\nnext line"))
    assert stream.getvalue().count("\n") == 4
    assert not [sign for sign in OBEYED if sign in stream.getvalue()]
    line = json_line({"label": ESCAPE, "ü": "\udcff"})
    assert not [sign for sign in OBEYED if sign in line]
    assert "ü" in line
    assert json.loads(line) == {"label": ESCAPE, "ü": "\udcff"}
    assert printable("a\nb\tü\udcff", "\n") == "a\nb\\x09ü\udcff"
    assert printable("a\nb\x1b[2J/lá 🍃 d'\".jpg") == "a\\x0ab\\x1b[2J/lá 🍃 d'\".jpg"


def test_columns_stay_aligned_whatever_their_names():
    lines = align_columns([("a\nb", "1"), (ESCAPE, "22")], right=(1,)).split("\n")
    assert [line[-4:] for line in lines] == ["   1", "  22"]
    assert len({len(line) for line in lines}) == 1
