"""What somebody meets first: an empty place, the demo photos while they are drawn, photos without classes."""

import pytest
from PySide6.QtCore import QMimeData, Qt
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication, QFileDialog, QLabel

from app import synthetic_leaves
from app.viewmodels.result import PhotoResult
from app.viewmodels.training import State
from core.training.events import RunFinished
from tests.helpers.window import drop, write_folder

pytestmark = pytest.mark.gui


def test_the_first_start_opens_on_diagnose_and_says_what_the_model_knows_and_how_to_take_a_photo(start, qtbot):
    program = start(first=True)
    panel = program.window.stack.currentWidget()
    assert (panel.objectName(), panel.stack.currentWidget()) == ("page_diagnose", panel.start)
    assert program.diagnosis.model_path.endswith("leaves.safetensors")
    qtbot.waitUntil(lambda: "Tomato" in panel.start.known.text())
    assert ["Early blight of tomato" in (said := panel.start.known.text()), "Healthy" in said] == [True, False]
    assert any("in focus" in text.text() for text in panel.start.findChildren(QLabel))
    assert not program.window.actions_.exclude.isEnabled(), "Del removes results here"
    program.window.actions_.paste.trigger()  # nothing was copied
    assert panel.notice.isVisible()
    drop(program.window, ["https://example.org/leaf.jpg"])
    assert "Copy it there" in panel.notice.text.text()


def test_chosen_and_pasted_photos_are_diagnosed(opened, monkeypatch, tmp_path, qtbot):
    asked, photo = [], str(tmp_path / "leaf.jpg")
    opened.diagnosis.model_path, opened.diagnosis.add = "/a/model", asked.append
    monkeypatch.setattr(QFileDialog, "getOpenFileNames", lambda *_: ([photo], ""))
    monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *_: str(tmp_path))
    actions = [("diagnose_photos", 8), ("diagnose_folder", 8), ("paste", 8), ("paste", 8), ("paste", 9)]
    for many, (action, side) in enumerate(actions):
        (image := QImage(side, side, QImage.Format.Format_RGB32)).fill(0)
        (picture := QMimeData()).setImageData(image)
        QApplication.clipboard().setMimeData(picture)
        getattr(opened.window.actions_, action).trigger()
        assert len(asked) == many + (action != "paste"), "saving a picture of 12 megapixels takes seconds: in a thread"
        qtbot.waitUntil(lambda many=many: len(asked) > many)
    QApplication.clipboard().clear()
    widths, twice = [QImage(*one).width() for one in asked[2:]], asked[2] == asked[3]
    assert (asked[:2], widths, twice) == ([[photo], [str(tmp_path)]], [8, 8, 9], True), "each picture has one file"


def test_a_photo_that_waits_for_the_model_says_that_it_is_prepared_and_how_long(program, qtbot):
    panel, model = program.window.go("diagnose"), program.diagnosis
    model.rows.append([PhotoResult(0, "/photos/leaf.jpg")])
    panel.table.selectRow(0)
    panel._show_selected()
    assert panel.preparation.isHidden()
    model.stage.emit("compile", 0, 9)
    model.stage.emit("compile", 3, 9)
    assert panel.preparation.isVisible()
    assert all(part in panel.preparation.text.text() for part in ("step 4 of 9", "s left"))
    assert panel.detail.verdict.text() == "Preparing the model…"
    model.stage.emit("compile", 9, 9)
    assert (panel.preparation.isHidden(), panel.detail.verdict.text()) == (True, "Diagnosing…")


def test_the_synthetic_leaves_lead_through_a_training_to_a_diagnosis(start, qtbot, monkeypatch, tmp_path):
    program = start()
    window, session, done = program.window, program.training, []
    monkeypatch.setattr(program.photo_commands, "use_model", lambda path: done.append(path))
    monkeypatch.setattr(program.photo_commands, "diagnose", lambda found: done.append(len(found)))
    window.actions_.start.triggered.disconnect()
    window.actions_.start.triggered.connect(lambda: done.append("start"))
    window.actions_.open_demo.triggered.disconnect()
    drawn = write_folder(tmp_path / "demo", {"a": 20, "b": 12})
    window.actions_.open_demo.triggered.connect(lambda: program.document.open(str(drawn)))
    window.go("diagnose").start.synthetic.click()
    qtbot.waitUntil(lambda: done == ["start"])
    assert window.stack.currentWidget().objectName() == "page_train"
    session._set(State.RUNNING)
    notice = window.page("train").notice
    qtbot.waitUntil(lambda: notice.isVisible() and "Step 2 of 3" in notice.text.text())
    program.training.view.finished = RunFinished("completed", 9, 1, 0.9, 0.9, "/runs/best.safetensors", "", 60.0)
    session._set(State.IDLE)
    qtbot.waitUntil(lambda: len(done) == 3)
    assert done == ["start", "/runs/best.safetensors", 8]
    assert "Step 3 of 3" in window.page("diagnose").notice.text.text()
    session._set(State.RUNNING)
    session._set(State.IDLE)
    qtbot.wait(50)
    assert len(done) == 3, "the next training is no tour"


def test_demo_photos_are_drawn_not_found_and_can_be_given_up(program, qtbot, monkeypatch):
    monkeypatch.setattr(synthetic_leaves, "DEMO", {"photos_per_class": 400, "side": 160})
    panel = program.window.page("dataset")
    program.window.go("diagnose").start.synthetic.click()
    assert panel.busy.text() == "Generating synthetic leaves…"
    qtbot.waitUntil(lambda: "of 1,600" in panel.busy.text())
    assert (panel.notice.isVisible(), "Step 1 of 3" in panel.notice.text.text()) == (True, True)
    qtbot.mouseClick(panel.cancel, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: not program.commands._leaves.has_process)
    assert panel.stack.currentIndex() == 0
    assert (panel.notice.isHidden(), program.document.table) == (True, None)
    program.window.actions_.open_demo.trigger()
    program.commands._leaves._thread.kill()
    qtbot.waitUntil(panel.notice.isVisible)
    assert ("ended unexpectedly" in panel.notice.text.text(), panel.stack.currentIndex()) == (True, 0)


@pytest.mark.parametrize(("folders", "words"), [
    (["field"], "one class"), (["field/visit"], "are not in class folders"), (["field/visit", "field"], "contains"),
])  # fmt: skip
def test_photos_without_classes_and_several_folders_are_offered_a_diagnosis(folders, words, start, qtbot, tmp_path):
    write_folder(tmp_path / "field", {"visit": 3})
    program, sources = start(), [str(tmp_path / folder) for folder in folders]
    panel = program.window.page("dataset")
    drop(program.window, sources)
    qtbot.waitUntil(panel.notice.isVisible)
    assert words in panel.notice.text.text()
    asked = []
    program.diagnosis.model_path = "/a/model"
    program.diagnosis.add = asked.append
    qtbot.mouseClick(panel.notice.do, Qt.MouseButton.LeftButton)
    assert (asked, program.window.stack.currentWidget().objectName()) == ([sources], "page_diagnose")


def test_a_start_that_waits_for_a_manifest_is_offered_again_when_other_photos_open(opened):
    opened.change_language("vi")  # whose window is another one
    opened.document.exclude([0], True)
    opened.document._write_manifest = lambda: None  # of very many photos
    opened.window.actions_.start.trigger()
    assert not opened.window.actions_.start.isEnabled()
    opened.thumbnails._cache["of a file that was replaced since"] = None
    opened.document.opened.emit()
    assert (opened.window.actions_.start.isEnabled(), len(opened.thumbnails._cache)) == (True, 0)


def test_photos_that_open_while_a_class_is_asked_for_keep_theirs(opened, qtbot, monkeypatch, tmp_path):
    panel, other = opened.window.page("dataset"), str(write_folder(tmp_path / "other", {"healthy": 3, "rust": 2}))

    def ask(*_):
        with qtbot.waitSignal(opened.document.opened):
            opened.document.open(other)
        return "rust"

    monkeypatch.setattr("app.panels.dataset.panel.ask_class", ask)
    panel.grid.setCurrentIndex(panel.photos.index(0))
    panel._move.click()
    assert (opened.document.source, opened.document.table.edited) == (other, False)


def test_an_empty_folder_leaves_the_open_photos_and_their_report(opened, qtbot, tmp_path):
    opened.examination.split = {"classes": ["healthy", "rust"]}
    panel = opened.window.page("dataset")
    panel.show_rows([0, 1], "blurred")
    (tmp_path / "empty").mkdir()
    for named in ("n" * 300, str(tmp_path / "empty")):  # the system refuses to look for the first
        opened.window.go("dataset")
        opened.commands.open([named])
    qtbot.waitUntil(panel.notice.isVisible)
    assert "no photos" in panel.notice.text.text()
    assert opened.document.source == str(tmp_path / "photos")
    assert opened.examination.split, "the report is of the photos that are open"
    assert panel.shown.text() == "blurred: 2 photos"
