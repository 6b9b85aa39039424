"""The Dataset place: search, leave out, move, rename, examine, preview."""

from pathlib import Path
from threading import get_ident

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QPixmap
from PySide6.QtWidgets import QInputDialog

from app import resources
from core.data.string_array import StringArray
from tests.helpers.window import drop, write_folder

pytestmark = pytest.mark.gui


@pytest.fixture
def panel(program, qtbot, tmp_path):
    """The place with a dropped folder of three healthy and two rusty photos, one of them twice."""
    folder = write_folder(tmp_path / "leaves", {"healthy": 30, "rust": 30})
    (folder / "rust" / "copy.png").write_bytes((folder / "healthy" / "0.png").read_bytes())
    (folder / "rust" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (folder / "rust" / "phone.heic").touch()
    drop(program.window, [folder])
    made = program.window.page("dataset")
    made.program = program
    qtbot.waitUntil(lambda: made.photos.rowCount() == 62)
    return made


def test_a_search_is_made_beside_the_event_loop(panel, qtbot, monkeypatch):
    """A million names take half a second: the photos stay until the answer is there, and the last question counts."""
    searched, holding = [], StringArray.holding

    def hold(texts, wanted, cancelled):
        searched.append((wanted, get_ident()))
        return holding(texts, wanted, cancelled)

    monkeypatch.setattr(StringArray, "holding", hold)
    for text in ("rust", "broken"):
        panel.search.setText(text)
        panel.refresh()
    assert panel.photos.rowCount() == 62
    qtbot.waitUntil(lambda: panel.photos.rowCount() == 1)
    assert get_ident() not in dict((thread, wanted) for wanted, thread in searched)
    panel.refresh()
    assert panel.photos.rowCount() == 1, "what is known is not looked for again"
    panel.search.setText("no such photo")
    qtbot.waitUntil(lambda: panel.photos.rowCount() == 0)


def test_the_chosen_class_stays_chosen_when_its_photos_change_or_it_is_renamed(panel, qtbot, monkeypatch):
    assert not panel.classes._rename.isEnabled()
    panel.classes.table.selectRow(1)
    assert (panel.classes._rename.isEnabled(), panel.classes._all.isEnabled()) == (True, True)
    panel.grid.setCurrentIndex(panel.photos.index(0))
    panel._actions.exclude.trigger()
    assert (panel.classes.selected(), panel.photos.rowCount()) == (["rust"], 32)
    assert panel._actions.exclude.isEnabled(), "the same photos are shown and stay selected"
    monkeypatch.setattr(QInputDialog, "getItem", lambda *_: ("mildew", True))
    qtbot.mouseClick(panel._move, Qt.MouseButton.LeftButton)
    assert (panel.classes.selected(), panel.photos.rowCount()) == (["rust"], 31)
    assert not panel._actions.exclude.isEnabled(), "the photo has gone elsewhere, and with it the selection"
    monkeypatch.setattr(QInputDialog, "getText", lambda *_, **__: ("orange rust", True))
    panel.classes._on_rename()
    assert [name for name, _ in panel.classes.model.rows] == ["healthy", "mildew", "orange rust"]
    for _ in range(2):  # then all photos are excluded, and can be included again
        assert (panel.classes.selected(), panel.photos.rowCount()) == (["orange rust"], 31)
        panel._document.exclude(panel.photos.rows, True)
    for _ in range(2):
        panel._document.undo.undo()
    assert [name for name, _ in panel.classes.model.rows] == ["healthy", "mildew", "rust"]


def test_the_examination_finds_what_is_wrong_and_measures_the_leak(panel, qtbot):
    panel.side.setCurrentWidget(panel.health)
    qtbot.mouseClick(panel.health.check, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: not panel._examination.has_process)
    found = {f.kind: f for f in panel._examination.found}
    assert "broken.png" in panel._document.table.dataset.paths[found["unreadable"].rows[0]]
    assert len(found["two_labels"].rows) == 2
    assert {kind: count for _, count, kind in panel.health.model.rows}["unreadable"] == 2, "also one that is not listed"
    panel.health.table.setFocus()
    qtbot.waitUntil(lambda: panel.health.table.hasFocus())
    assert panel.photos.rowCount() == 62, "no finding is chosen yet"
    panel.health.table.selectRow(0)
    for tab, few in ((panel.augmentation, True), (panel.split, False), (panel.health, True)):
        panel.side.setCurrentWidget(tab)
        assert (0 < panel.photos.rowCount() < 62) == few, "one of a finding can be previewed"
    panel.which.setCurrentIndex(1)
    assert panel.photos.rowCount() == 62, "the filter was changed"
    panel.side.setCurrentWidget(panel.split)
    assert (panel._examination.split["photos"], panel._examination.split["leaked"]) == (61, 0)
    assert len(panel.split.model.rows) == 2
    assert "0.0\u00a0% of the validation and test photos show the same leaf" in panel.split.text.text()
    panel._document.exclude(np.array([0]), True)  # so that a manifest is written before the check begins
    panel.health.check.click()
    qtbot.waitUntil(lambda: panel._examination.has_process)
    assert panel.health.check.isHidden(), "it cannot be begun twice"
    panel._examination.cancel()
    assert len(panel.split.model.rows) == 2, "a check that is cancelled discards nothing"
    qtbot.waitUntil(lambda: not panel._examination.has_process)
    assert {f.kind for f in panel._examination.found} == set(found)
    panel._examination.forget()
    assert not panel.health.advice.text(), "it is about the photos before"


def test_the_preview_shows_other_draws_of_the_selected_photo(panel, qtbot):
    panel.side.setCurrentWidget(panel.augmentation)
    panel.grid.setCurrentIndex(panel.photos.index(0))

    def shown():
        return [p.pixmap().toImage() if not p.pixmap().isNull() else QPixmap() for p in panel.augmentation.pictures]

    qtbot.waitUntil(lambda: not panel.augmentation.pictures[-1].pixmap().isNull())
    first = shown()
    assert first[0] != first[1]
    panel.augmentation._on_others()
    qtbot.waitUntil(lambda: shown()[0] != first[0])


def test_a_dropped_model_is_diagnosed_with(program, qtbot, tmp_path):
    panel = program.window.go("diagnose")
    program.diagnosis.failed.emit("The model before cannot be read.", "")
    model = Path(resources.place("models")) / "leaves.safetensors"
    drop(program.window, [model])
    qtbot.waitUntil(lambda: bool(program.diagnosis.ready))
    assert panel.notice.isHidden()
    (tmp_path / "net.onnx").touch()
    drop(program.window, [tmp_path / "net.onnx"])
    panel._on_model(str(model))
    assert "is an ONNX file" in panel.notice.text.text(), "neither a photo nor a model to use here"
    assert (program.diagnosis.model_path, program.diagnosis.rows.rows) == (str(model), [])


def test_a_folder_opened_while_the_demo_is_drawn_stays_open(program, qtbot, tmp_path, monkeypatch):
    monkeypatch.setattr("app.synthetic_leaves.DEMO", {"photos_per_class": 40, "side": 48})
    folder = write_folder(tmp_path / "leaves", {"healthy": 3, "rust": 3})
    program.window.go("diagnose")
    program.window.actions_.open_demo.trigger()
    assert program.window.current == "dataset", "whose page shows the progress"
    with qtbot.waitSignal(program.document.progress):
        pass
    drop(program.window, [folder])
    qtbot.waitUntil(lambda: not program.commands._leaves.has_process and not program.document.loading)
    qtbot.wait(300)
    assert Path(program.document.source) == folder
