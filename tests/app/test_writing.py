"""Results and reports become files in a process of their own; the window tells how far it is, and opens them."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QFileDialog, QMessageBox

from app.mask import DISEASED, LEAF, Mask
from app.photo_commands import photos_for
from app.processes.writing import write_csv
from app.viewmodels.result import PhotoResult, from_line, to_line
from app.viewmodels.writing import Writing
from core.config import from_dict, to_dict
from core.diagnosis.model_identity import ModelIdentity
from tests.app.test_models import write_small
from tests.helpers.window import write_folder

pytestmark = pytest.mark.gui

SICK = PhotoResult(
    3, "/photos/leaf.jpg", True, "tomato/rust", (("tomato/rust", 0.9), ("tomato/healthy", 0.1)), notes=("n",),
    diseased=4.0, hash="0" * 64, model=ModelIdentity("tomato", "0" * 64, "2026-11-22"),
)  # fmt: skip


@pytest.fixture
def writing(qapp, home, nothing_left):
    made = Writing()
    yield made
    made.close()


@pytest.fixture
def results(tmp_path):
    photos = sorted(write_folder(tmp_path / "photos", {"a": 3}).rglob("*.png"))
    return [replace(SICK, id=at, path=str(photo)) for at, photo in enumerate(photos)]


def wait_for(qtbot, writing, **asked):
    told = []
    writing.written.connect(told.append)
    writing.failed.connect(lambda sentence, details: told.append(sentence))
    writing.start(**asked)
    assert writing.has_process
    qtbot.waitUntil(lambda: not writing.has_process)
    assert len(told) == 1
    return told[0]


def test_a_line_holds_what_a_file_tells_of_a_photo():
    labels = np.array([[LEAF, DISEASED], [0, LEAF]], np.uint8)
    result = replace(SICK, mask=Mask(labels, (0.0, 0.0, 0.5, 0.5), corrected=True))
    back = from_line(json.loads(json.dumps(to_line(result))))
    assert replace(back, mask=None) == replace(result, mask=None)
    assert np.array_equal(back.mask.labels, labels)
    assert (back.mask.box, back.mask.corrected) == ((0.0, 0.0, 0.5, 0.5), True)


def test_every_column_of_a_table_is_filled(tmp_path):
    shown = replace(SICK, top=(*SICK.top, ("tomato/scab", 0.1)), plant=("p", 2, 1, "tomato/rust", "0.9", "Plant p"))
    leaf = replace(shown, leaves=(), share=4.0)
    write_csv(tmp_path / "table.csv", [replace(shown, leaves=(leaf, leaf)), replace(SICK, error="No photo.")])
    rows = list(csv.DictReader((tmp_path / "table.csv").read_text("utf-8").splitlines()))
    assert not [name for name in rows[0] if not any(row[name] for row in rows)], "_row in app/processes/writing.py"


@pytest.mark.parametrize("kind", ["csv", "html", "pdf"])
def test_results_are_written_by_a_process_of_their_own(kind, writing, results, qtbot, tmp_path, monkeypatch):
    target = tmp_path / f"out.{kind}"
    monkeypatch.setattr("app.viewmodels.writing.language", lambda: "vi")
    said = wait_for(qtbot, writing, kind=kind, target=str(target), rows=results,
                    remarks=["Answers 97 % of the photos."])  # fmt: skip
    assert said == {"written": str(target), "notes": []}
    data = target.read_bytes()
    if kind == "csv":
        assert data.count(b"\n") == 4
    if kind == "html":
        assert [data.count(word) for word in (b"Answers 97", b'<html lang="vi">', b"data:image/jpeg")] == [1, 1, 3]
    if kind == "pdf":
        assert data.startswith(b"%PDF")


def test_a_report_is_printed_by_a_process_too(writing, qtbot, tmp_path):
    (tmp_path / "report.html").write_bytes(b"<h1>A run of gr\xe4ser</h1>")
    target = tmp_path / "run.pdf"
    wait_for(qtbot, writing, kind="print", target=str(target), source=str(tmp_path / "report.html"))
    assert target.read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(("kind", "name"), [("csv", "gone/out.csv"), ("no such kind", "out")])
def test_a_missing_folder_and_a_process_that_dies_are_told(writing, results, qtbot, tmp_path, kind, name):
    said = wait_for(qtbot, writing, kind=kind, target=str(tmp_path / name), rows=results, remarks=[])
    assert "could not be saved" in said


def test_what_was_there_stays_when_it_is_given_up(writing, results, qtbot, tmp_path):
    target = tmp_path / "out.pdf"
    target.write_text("before")
    told = []
    writing.progress.connect(lambda done, total: told.append(done))
    writing.start("pdf", str(target), results * 50, remarks=[])
    qtbot.waitUntil(lambda: bool(told))
    writing.cancel()
    assert not writing.has_process
    qtbot.wait(300)
    assert target.read_text() == "before"


def test_the_window_goes_on_and_opens_what_was_written(program, results, qtbot, tmp_path, monkeypatch, answers):
    program.diagnosis.rows.append(results * 20)
    program.diagnosis.plants.group(results[:1])
    panel = program.window.go("diagnose")
    target = tmp_path / "diagnoses.html"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *a: (str(target.with_suffix("")), ""))
    monkeypatch.setattr("app.widgets.notice.QAccessible.updateAccessibility", heard := Mock())
    program.window.actions_.export_html.trigger()
    assert program.exports.has_process
    assert panel.notice.isVisible() or panel.notice.do.text() == "Cancel"
    answers.reply = QMessageBox.StandardButton.Cancel
    program.window.close()
    assert (len(answers), program.window.isVisible()) == (1, True)
    assert answers[0].startswith("A file is being saved. 3 results are not exported. Unfinished work is lost. Only")
    qtbot.waitUntil(lambda: not program.exports.has_process)
    assert panel.notice.text.text() == f"Saved to {target}"
    assert [call.args[0].message() for call in heard.call_args_list] == ["Saving diagnoses.html…", f"Saved to {target}"]
    opened = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: opened.append(Path(url.toLocalFile())))
    panel.notice.do.click()
    assert opened == [target]
    for name in ("cancelled.csv", "gone/lost.csv", "second.csv", "third.csv"):
        program.exports.start("csv", str(tmp_path / name), results, remarks=[])
    panel.notice.do.click()
    qtbot.waitUntil(lambda: not program.exports.has_process)
    assert sorted(path.name for path in tmp_path.glob("*.csv")) == ["second.csv", "third.csv"], "each in its turn"
    assert "lost.csv could not be saved" in panel.notice.text.text()
    program.window.close()
    assert (len(answers), program.window.isVisible()) == (1, False)


def test_closing_offers_to_export_results_that_no_file_has(program, results, qtbot, monkeypatch):
    diagnosis, window = program.diagnosis, program.window
    diagnosis.rows.append([replace(results[0], id=at, path=f"/photos/{at}.png") for at in range(13)])
    diagnosis.exported = diagnosis.contents(diagnosis.rows.rows[:2])
    window.actions_.export_html.setEnabled(True)
    monkeypatch.setattr(QMessageBox, "exec", lambda box: next(b for b in box.buttons() if "Export" in b.text()).click())
    monkeypatch.setattr(diagnosis, "contents", Mock(wraps=diagnosis.contents))
    with qtbot.waitSignal(window.actions_.export_html.triggered):
        window.close()
    assert diagnosis.contents.call_count == 1, "100,000 results take a while"
    diagnosis.exported |= diagnosis.contents(diagnosis.rows.rows[2:3])
    assert (window.isVisible(), program.commands._work("")) == (True, {}), "ten are few"


def write_small_run(folder, photos):
    """A run's folder with an untrained model of two classes, and the settings that name its photos."""
    model = write_small(folder / "best.safetensors", "")
    config = from_dict({"data": str(photos), "out": str(folder), "model": "cnn", "image_size": 32, "test": 0})
    (folder / "config.json").write_text(json.dumps(to_dict(config)))
    return Path(model)


@pytest.mark.parametrize("eight", [False, True])
def test_a_model_becomes_an_onnx_file_that_was_checked_and_eight_bits_say_what_they_cost(
    writing, qtbot, tmp_path, eight
):
    photos = write_folder(tmp_path / "photos", {"a": 12, "b": 12})
    model = write_small_run(tmp_path / "run", photos)
    target, counts = tmp_path / "model.onnx", []
    writing.progress.connect(lambda *count: counts.append(count))
    said = wait_for(qtbot, writing, kind="onnx", target=str(target), model=str(model), eight=eight, data=str(photos))
    assert target.stat().st_size > 1000
    assert said["notes"][-1].startswith(("Checked", "Not checked"))
    assert any("in 8 bits" in text for text in said["notes"]) == bool(counts) == eight


def test_eight_bits_are_offered_where_photos_are(start, qtbot, tmp_path, monkeypatch):
    program = start()
    model = write_small_run(tmp_path / "run", tmp_path / "photos")
    lone = tmp_path / "lone.safetensors"
    lone.write_bytes(model.read_bytes())
    assert photos_for(str(model), "/opened") == (str(model.parent), "")
    assert photos_for(str(lone), "/opened") == (str(lone), "/opened")
    program.diagnosis.model_path = str(lone)
    program.window.actions_.export_model.trigger()
    float32, eight, _ = program.window.findChild(QMessageBox).buttons()
    assert not eight.isEnabled()
    asked = []
    monkeypatch.setattr(program.exports, "start", lambda *of, **named: asked.append((of, named)))
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *a: (str(tmp_path / "out.onnx"), ""))
    float32.click()
    assert asked == [(("onnx", str(tmp_path / "out.onnx")), {"model": str(lone), "eight": False, "data": ""})]
