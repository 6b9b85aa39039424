"""The whole job in the window, by clicks, keys and drops: photos, training, mistakes, diagnosis."""

import csv
import os
import signal

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QFileDialog, QInputDialog, QPushButton

from app import resources, synthetic_leaves
from app.panels.train.gallery import GalleryDialog
from app.viewmodels.runs import RunView
from app.viewmodels.training import State
from tests.helpers.window import PATIENCE, drop

pytestmark = pytest.mark.gui


def press(qtbot, place, text):
    found = [b for b in place.findChildren(QPushButton) if b.text() == text and b.isVisible()]
    assert found, f"no button {text!r}; there are {[b.text() for b in place.findChildren(QPushButton)]}"
    qtbot.mouseClick(found[0], Qt.MouseButton.LeftButton)


def open_demo(program, qtbot, monkeypatch):
    monkeypatch.setattr(synthetic_leaves, "DEMO", {"photos_per_class": 20, "side": 48})
    press(qtbot, program.window.page("dataset"), "Open synthetic leaves")
    qtbot.waitUntil(lambda: program.document.table is not None, timeout=PATIENCE)


def set_fields(panel, **values):
    for name, value in values.items():
        panel.setup.form.fields[name].set_value(value)


def train_a_network(program, qtbot):
    """Two epochs of a small network on the demo photos; gives the panel."""
    window = program.window
    qtbot.keyClick(window, Qt.Key.Key_2, Qt.KeyboardModifier.ControlModifier)
    train = window.stack.currentWidget()
    set_fields(train, model="cnn", image_size=32, epochs=2, batch_size=16, time_every=2)
    press(qtbot, train, "Start training")
    assert program.training.state is State.RUNNING
    qtbot.waitUntil(lambda: program.training.state is State.IDLE, timeout=PATIENCE)
    view: RunView = program.training.view
    assert view.finished is not None, train.notice.text.text()
    assert (view.finished.reason, bool(view.kernels)) == ("completed", True)
    return train


def look_at_curves(program, train, qtbot, tmp_path):
    view = program.training.view
    train.tabs.setCurrentWidget(train.curves)  # a run's end shows its result; a short one ends before a curve is drawn
    qtbot.waitUntil(lambda: len(train.curves.plots["loss"].curves[0].x) == view.total_steps)
    assert len(train.curves.plots["accuracy"].curves[2].x) == 2
    written = train.curves.export(tmp_path / "curves.csv")
    assert len(written[0].read_text().splitlines()) == 1 + view.total_steps + 4


def correct_a_photo(program, train, qtbot, monkeypatch):
    """From a cell of the confusion matrix to its photos; one is given another class, and back."""
    train.tabs.setCurrentWidget(train.confusion)
    matrix, table = train.confusion.model, program.document.table
    cell = next(matrix.index(i, j) for i in range(4) for j in range(4) if matrix.counts[i][j])
    train.confusion.table.setCurrentIndex(cell)
    train.confusion.table.activated.emit(cell)
    gallery = program.window.findChild(GalleryDialog)
    assert " validation photos of this class" in gallery.state.text()
    qtbot.waitUntil(lambda: gallery.photos.rowCount() == matrix.counts[cell.row()][cell.column()], timeout=PATIENCE)
    gallery.grid.setCurrentIndex(gallery.photos.index(0))
    row = int(gallery.photos.rows[0])
    before = table.label(row)
    monkeypatch.setattr(QInputDialog, "getItem", lambda *_: ("quite another", True))
    qtbot.mouseClick(gallery.reclass, Qt.MouseButton.LeftButton)
    assert table.label(row) == "quite another"
    qtbot.mouseClick(gallery.undo, Qt.MouseButton.LeftButton)
    assert table.label(row) == before
    program.document.opened.emit()
    assert gallery.isHidden(), "its rows are of the photos before"


def diagnose_two_photos(program, train, qtbot, monkeypatch, tmp_path):
    window = program.window
    train.tabs.setCurrentWidget(train.outcome)
    assert train.outcome.words.text()
    press(qtbot, train, "Diagnose with this model")
    photos = [program.document.table.dataset.path(at) for at in (0, 1)]
    drop(window, photos)
    listed = program.diagnosis.rows
    qtbot.waitUntil(lambda: [r.done for r in listed.rows] == [True] * 2, timeout=PATIENCE)
    results = listed.rows
    panel = window.stack.currentWidget()
    qtbot.waitUntil(lambda: panel.detail.shown is not None and panel.detail.shown.top == results[0].top)
    assert 0.99 < sum(p for _, p in results[0].top) + 0.5 < 1.51
    which, names = panel.detail.which, [name for name, _ in results[0].top]
    assert [which.itemData(at) for at in range(1, 4)] == names
    which.setCurrentIndex(2)
    qtbot.waitUntil(lambda: set(program.diagnosis.rows.rows[0].maps) == {names[1]}, timeout=PATIENCE)
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(tmp_path / "out.csv"), ""))
    window.actions_.export_csv.trigger()
    qtbot.waitUntil((tmp_path / "out.csv").exists, timeout=PATIENCE)  # written by a process, and whole when it is there
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [r["path"] for r in rows] == photos
    assert rows[0]["label1"] == results[0].top[0][0]


def test_from_the_demo_photos_to_a_table_of_diagnoses(program, qtbot, monkeypatch, tmp_path):
    qtbot.waitUntil(program.window.isActiveWindow)
    open_demo(program, qtbot, monkeypatch)
    assert len(program.document.table.classes) == 4
    train = train_a_network(program, qtbot)
    look_at_curves(program, train, qtbot, tmp_path)
    correct_a_photo(program, train, qtbot, monkeypatch)
    diagnose_two_photos(program, train, qtbot, monkeypatch, tmp_path)


def test_pause_kill_resume_and_close_while_training(program, qtbot, monkeypatch, answers):
    window, session = program.window, program.training
    open_demo(program, qtbot, monkeypatch)
    train = window.go("train")
    set_fields(train, model="mlp", image_size=16, epochs=100_000, batch_size=16, checkpoint_seconds=0.2)
    press(qtbot, train, "Start training")
    qtbot.waitUntil(lambda: program.training.view.step > 20, timeout=PATIENCE)

    press(qtbot, train, "Pause")
    qtbot.waitUntil(lambda: "Paused" in train.stage.text())
    qtbot.wait(300)
    held = program.training.view.step
    qtbot.wait(300)
    assert program.training.view.step == held
    press(qtbot, train, "Resume")
    qtbot.waitUntil(lambda: program.training.view.step > held + 20, timeout=PATIENCE)

    os.kill(session._thread._process.pid, signal.SIGKILL)
    qtbot.waitUntil(lambda: session.state is State.IDLE, timeout=PATIENCE)
    assert "killed" in train.notice.text.text()
    press(qtbot, train, "Resume")
    qtbot.waitUntil(lambda: program.training.view.started.step > 0 and session.busy, timeout=PATIENCE)
    again = program.training.view.started.step
    qtbot.waitUntil(lambda: program.training.view.step > again, timeout=PATIENCE)
    assert len(program.training.view.curves("loss")[0].x) >= again

    answers.reply = QDialog.DialogCode.Rejected
    window.close()
    assert window.isVisible()
    assert session.state is State.RUNNING
    answers.reply = answers.__class__.reply
    window.close()
    qtbot.waitUntil(lambda: not window.isVisible(), timeout=PATIENCE)
    assert (program.training.view.finished.reason, train.notice.do.text()) == ("stopped", "Resume")
    assert answers[0].startswith("A training is running.")


def test_photos_without_a_model_are_told(start, tmp_path, monkeypatch, qtbot):
    program, broken = start(), tmp_path / "broken.jpg"
    broken.write_bytes(b"\xff\xd8\xff\xe0 no photo")
    monkeypatch.setattr(resources, "place", lambda name: str(tmp_path / "no models"))
    drop(program.window, [broken])
    place = program.window.stack.currentWidget()
    assert place is program.window.page("diagnose")
    qtbot.waitUntil(lambda: "There is no file" in place.notice.text.text(), timeout=PATIENCE)
