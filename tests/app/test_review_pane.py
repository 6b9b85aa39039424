"""The Review tab: suspects in order, decided by keys, undone, and saved outside the photo folder."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog, QMessageBox

from app.panels.dataset.review import NextPhotosDialog
from app.processes import review
from app.viewmodels import process_model
from core.data.source import open_photos
from tests.app.test_keyboard_and_wheel import focused_and_pressed
from tests.app.test_small_window import in_sight
from tests.core.test_adapt import known  # noqa: F401 (fixture)
from tests.core.test_review import CLASSES, WRONG
from tests.core.test_review import folder as reviewed  # noqa: F401 (fixture)
from tests.helpers.window import write_folder

pytestmark = pytest.mark.gui


@pytest.fixture
def panel(start, qtbot, tmp_path, monkeypatch):
    """The Dataset page with a finished review: three suspects among eight photos, the second healthy one first."""
    folder = write_folder(tmp_path / "leaves", {"healthy": 4, "rust": 4})
    made = start(folder).window.page("dataset")
    qtbot.waitUntil(lambda: made.photos.rowCount() == 8)
    requests = []
    monkeypatch.setattr(
        process_model.ProcessModel, "_start_process", lambda self, name, request: requests.append((name, request))
    )
    made.side.setCurrentWidget(made.review)
    made.review.start.click()
    assert requests == [("review", {"data": str(folder), "model": "leaves", "unlabelled": ""})]
    found = [("healthy/1.png", "healthy", "rust", 0.9, 5), ("rust/2.png", "rust", "healthy", 0.8, 4),
             ("healthy/3.png", "healthy", "rust", 0.7, 3)]  # fmt: skip
    names = ("path", "label", "suggested", "probability", "agreeing")
    suspects = [dict(zip(names, (str(folder / one[0]), *one[1:]), strict=True)) for one in found]
    made.answer = {"suspects": suspects, "agreement": 0.625, "photos": 8, "few": ["scab"], "learned": 2}
    made._review._read_answers([deepcopy(made.answer)])
    made.folder, made.requests = folder, requests
    return made


def listed(panel):
    return [panel.photos.table.dataset.paths[row] for row in panel.photos.rows]


def press(qtbot, panel, key, place=None):
    place = place or panel.grid
    place.setFocus()
    qtbot.waitUntil(place.hasFocus)
    qtbot.keyClick(place, key)


def test_keys_decide_about_one_suspect_after_the_other_and_undo(panel, qtbot):
    assert (listed(panel), panel._document.undo.canUndo()) == (["healthy/1.png", "rust/2.png", "healthy/3.png"], False)
    assert "5 of the 5 most similar photos" in panel.review.reason.text()
    table = panel.photos.table
    first, second, third = panel.photos.rows.tolist()
    press(qtbot, panel, Qt.Key.Key_R, panel.side.tabBar())
    assert (table.label(first), listed(panel)) == ("rust", ["rust/2.png", "healthy/3.png"])
    assert "4 of the 5" in panel.review.reason.text(), "the next suspect is shown"
    press(qtbot, panel, Qt.Key.Key_S)
    assert panel.grid.currentIndex().row() == 1
    press(qtbot, panel, Qt.Key.Key_K)
    assert (table.label(third), listed(panel)) == ("healthy", ["rust/2.png"])
    press(qtbot, panel, Qt.Key.Key_U)
    assert panel.photos.rows[panel.grid.currentIndex().row()] == third, "the suspect that came back is the next one"
    press(qtbot, panel, Qt.Key.Key_U)
    assert (table.label(first), panel._document.undo.canUndo()) == ("healthy", False)
    assert (listed(panel), table.label(second)) == (["healthy/1.png", "rust/2.png", "healthy/3.png"], "rust")


def test_the_decisions_are_in_sight_in_a_small_window(panel, qtbot):
    panel.window().resize(960, 640)
    qtbot.waitUntil(lambda: in_sight(panel.review.save), timeout=2000)
    panel.review.show_suspect(replace(panel.review._shown, label="x" * 80, suggested="y" * 80))
    button = panel.review.relabel
    assert button.fontMetrics().horizontalAdvance(button.text()) < button.width(), "Qt would cut both ends"
    assert panel.review.minimumSizeHint().width() <= panel.review.width(), "the text would get too few lines"
    panel.search.setText("no such photo")
    qtbot.waitUntil(panel.review.relabel.isHidden, timeout=2000)
    panel.search.clear()
    qtbot.waitUntil(panel.review.relabel.isVisible, timeout=2000)
    panel.which.setCurrentIndex(1)
    assert len(listed(panel)) == 3, "the suspects, not all photos in use"


def test_confirmed_labels_are_remembered_until_they_change(panel, qtbot):
    focused_and_pressed(qtbot, panel.review.keep)
    qtbot.wait(1)
    assert (listed(panel), panel.review.keep.hasFocus()) == (["rust/2.png", "healthy/3.png"], True)
    panel._review.forget()
    assert len(listed(panel)) == 8, "without suspects all photos are listed"
    panel._review._read_answers([deepcopy(panel.answer)])
    assert listed(panel) == ["rust/2.png", "healthy/3.png"]
    panel._document.undo.undo()
    assert (len(listed(panel)), panel._document.confirmed) == (3, {})


def test_photos_to_label_next_are_listed_and_saved(panel, qtbot, tmp_path, monkeypatch):
    unlabelled = tmp_path / "unlabelled"
    unlabelled.mkdir()
    monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *_: str(unlabelled))
    panel.review.next.click()
    assert panel.requests[-1][1] == {"data": str(panel.folder), "model": "leaves", "unlabelled": str(unlabelled)}
    assert len(panel._review.suspects()) == 3, "the review stays"
    chosen = [str(panel.folder / name) for name in ("rust/0.png", "healthy/2.png")]
    panel._review._read_answers([{"chosen": chosen}])
    (dialog,) = panel.review.findChildren(NextPhotosDialog)
    assert [dialog.list.item(at).text() for at in range(2)] == ["0.png", "2.png"]
    inside, saved = [unlabelled / "next.csv", panel.folder / "rust" / "next.csv"], tmp_path / "next.csv"
    for place in (*inside, saved, tmp_path / "gone" / "next.csv"):
        monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_, place=place: (str(place), ""))
        dialog.save.click()
        said = f"Saved as {saved}." if place == saved else "could not be saved" if place not in inside else ""
        assert (said in dialog.saved.text(), place.exists()) == (True, place == saved)
    boxes = dialog.findChildren(QMessageBox)
    assert all(f"{p} is inside the photo folder" in b.text() for p, b in zip(inside, boxes, strict=True))
    assert (tmp_path / "next.csv").read_text("utf-8").split() == ["path", *chosen]
    dialog.close()


def test_another_tab_shows_all_photos_and_the_keys_rest(panel, qtbot):
    panel.side.setCurrentWidget(panel.split)
    assert panel.photos.rowCount() == 8
    panel.grid.setCurrentIndex(panel.photos.index(1))
    press(qtbot, panel, Qt.Key.Key_R)
    assert not panel.photos.table.edited


def test_the_corrections_are_saved_as_a_manifest_but_not_among_the_photos(panel, qtbot, tmp_path, monkeypatch):
    panel.review.relabel.click()
    answers = [str(tmp_path / "own.csv"), str(panel.folder / "own.csv")]
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (answers.pop(0), ""))
    with qtbot.waitSignal(panel._review.saved):
        panel.review.save.click()
    assert open_photos(str(tmp_path / "own.csv")).counts() == {"healthy": 3, "rust": 5}
    panel.review.save.click()
    assert "inside the photo folder" in panel.review.findChild(QMessageBox).text()
    assert not (panel.folder / "own.csv").exists()


def test_a_review_of_edited_photos_shows_its_progress(panel, qtbot, monkeypatch):
    """Their manifest is written first, in the background."""
    panel.review.relabel.click()
    monkeypatch.setattr(process_model.ProcessModel, "_start_process", lambda self, *_: setattr(self, "_thread", Mock()))
    panel.review.start.click()
    qtbot.waitUntil(lambda: panel._review.has_process)
    assert (panel.review.stop.isHidden(), panel.review.start.isHidden()) == (False, True)
    panel._document.move(panel.photos.rows[:1], "scab")
    panel._review._thread = None  # cancelled: what was found before stays
    panel._review.ended.emit()
    assert listed(panel) == ["healthy/3.png"]
    panel._document.undo.undo()
    assert listed(panel) == ["rust/2.png", "healthy/3.png"]


def test_suspects_follow_a_class_that_is_renamed(panel):
    panel._document.rename("rust", "leaf rust")
    assert panel.review.relabel.accessibleName() == "Relabel as leaf rust"
    named = [(one.label, one.suggested) for one in panel._review.suspects()]
    assert named == [("healthy", "leaf rust"), ("leaf rust", "healthy"), ("healthy", "leaf rust")]
    panel._document.undo.undo()
    assert {one.suggested for one in panel._review.suspects()} == {"rust", "healthy"}
    panel._document.rename("rust", "healthy")
    assert not panel._review.suspects(), "both labels are one class now"
    panel.answer["suspects"][0]["label"] = "healthy leaf"
    panel._review._read_answers([deepcopy(panel.answer)])
    assert not panel._review.suspects(), "the photo has another class than the reviewed one"


def test_classes_with_too_few_leaves_are_named_and_other_photos_have_no_suspects(panel, qtbot, tmp_path):
    assert "too few leaves: scab. The model was trained on 2 of these photos" in panel.review.state.text()
    panel._document.open(str(write_folder(tmp_path / "others", {"a": 2, "b": 2})))
    qtbot.waitUntil(lambda: panel.photos.rowCount() == 4)
    assert not panel._review.suspects()
    assert not panel.review.relabel.isVisible()


def test_the_process_answers_what_the_page_reads(panel, reviewed):  # noqa: F811
    asked, channel = {"data": str(reviewed / "photos"), "model": str(reviewed / "known.safetensors")}, Mock()
    review.work(channel, asked)
    answer = channel.send.call_args.kwargs
    assert (answer.keys(), answer["photos"], answer["learned"], answer["few"]) == (panel.answer.keys(), 48, 0, [])
    found = answer["suspects"][0]
    assert found.keys() == panel.answer["suspects"][0].keys()
    assert (Path(found["path"]).name, found["label"], found["suggested"]) == (f"{WRONG}.png", CLASSES[2], CLASSES[0])
    review.work(channel, {**asked, "unlabelled": str(reviewed / "new")})
    assert {Path(path).parent for path in channel.send.call_args.kwargs["chosen"]} == {reviewed / "new"}
