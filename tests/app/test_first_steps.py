"""What somebody meets first: an empty place, the demo photos while they are drawn, photos without classes."""

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton

from app import commands, resources
from tests.helpers.window import drop, write_folder

pytestmark = pytest.mark.gui


def test_an_empty_program_also_offers_a_diagnosis(start):
    panel = start().window.place("dataset")
    assert "Diagnose photos" in [b.text() for b in panel.empty.findChildren(QPushButton)]
    assert "diagnosed" in panel.empty.text.text()


def test_demo_photos_are_drawn_not_found_and_can_be_given_up(start, qtbot, monkeypatch):
    monkeypatch.setattr(commands, "DEMO", {"photos_per_class": 400, "side": 160})
    program = start()
    panel = program.window.place("dataset")
    program.window.actions_.open_demo.trigger()
    assert panel.busy.text() == "Drawing the demo photos…"
    qtbot.waitUntil(lambda: "of 1,600" in panel.busy.text(), timeout=60_000)
    qtbot.mouseClick(panel.cancel, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: program.commands._demo is None, timeout=20_000)
    assert panel.stack.currentIndex() == 0
    assert program.document.table is None


@pytest.mark.parametrize(("folder", "words"), [("field", "one class"), ("field/walk", "have no class")])
def test_photos_without_classes_are_offered_a_diagnosis(folder, words, start, qtbot, tmp_path):
    write_folder(tmp_path / "field", {"walk": 3})
    program, source = start(), tmp_path / folder
    panel = program.window.place("dataset")
    drop(program.window, [source])
    qtbot.waitUntil(panel.notice.isVisible, timeout=30_000)
    assert words in panel.notice.text.text()
    asked = []
    program.diagnosis.model_path = "/a/model"
    program.diagnosis.add = asked.append
    qtbot.mouseClick(panel.notice.do, Qt.MouseButton.LeftButton)
    assert asked == [[str(source)]]
    assert program.window.stack.currentWidget().objectName() == "place_diagnose"


def test_drawings_are_sharp_on_screens_of_twice_the_pixels(qapp):
    found = resources.pixmap("dataset", "#000000", 56, 2.0)
    assert (found.width(), found.deviceIndependentSize().width()) == (112, 56)


def test_an_empty_folder_leaves_the_open_photos_and_their_report(start, qtbot, tmp_path):
    program = start(write_folder(tmp_path / "photos", {"healthy": 3, "rust": 3}))
    qtbot.waitUntil(lambda: program.document.table is not None)
    program.examination.split = {"classes": ["healthy", "rust"]}
    panel = program.window.place("dataset")
    panel.show_rows([0, 1], "blurred")
    (tmp_path / "empty").mkdir()
    program.commands.open([str(tmp_path / "empty")])
    qtbot.waitUntil(panel.notice.isVisible)
    assert "no photos" in panel.notice.text.text()
    assert program.document.source == str(tmp_path / "photos")
    assert program.examination.split, "the report is of the photos that are open"
    assert panel.shown.text() == "blurred: 2 photos"
