"""The list of diagnoses: photos that come again, cancelled ones, the filter's scope, Clear taken back, and plants."""

import json
import random
import threading
from collections import deque
from dataclasses import replace
from pathlib import Path, PurePath
from unittest.mock import Mock

import numpy as np
import pytest
from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QFileDialog

from app.photo_commands import PhotoCommands
from app.processes.writing import render, write_csv
from app.viewmodels import process_model
from app.viewmodels.model_list import shipped_model
from app.viewmodels.plants import find_plants
from app.viewmodels.result import PLANT, PhotoResult, from_line, read_result, to_line
from core.data.cache_index import current_key
from core.data.source import photo_files
from core.diagnosis.model_identity import ModelIdentity
from core.diagnosis.plant import Plant, diagnose_plants
from core.diagnosis.prediction import Diagnosis
from core.diagnosis.verdict import NOT_SURE, Prediction, Verdict
from tests.app.test_diagnose_place import CLASSES, THRESHOLDS, answer, model, panel  # noqa: F401 (fixtures)
from tests.core.data.test_folder import refuse_listing
from tests.helpers.window import write_folder

pytestmark = pytest.mark.gui


def paths_of(diagnosis):
    return [row.path for row in diagnosis.rows.rows]


def test_photos_brought_again_get_no_second_row_and_are_diagnosed_if_they_lack_an_answer(panel, model, qtbot):  # noqa: F811
    before = paths_of(model)
    model._add([before[1], before[2], before[2], "/photos/new.jpg"])
    assert paths_of(model) == [*before, "/photos/new.jpg"]
    assert list(model._waiting) == [3], "what has an answer keeps it"
    assert "2 of these photos" in panel.notice.text.text()
    qtbot.waitUntil(lambda: panel.table.currentIndex().row() == 1)
    model.rows.replace(0, replace(model.rows.rows[0], cancelled=True, done=False))
    model.rows.replace(1, read_result(model.rows.rows[1], {"error": "The file is empty."}))
    model._add(2 * paths_of(model))
    assert (list(model._waiting), model.rows.rows[0].cancelled) == ([3, 0, 1], False)


def test_a_photo_whose_file_was_replaced_is_diagnosed_and_shown_again(panel, model, qtbot):  # noqa: F811
    first, folder = model.rows.rows[0].path, str(Path(model.rows.rows[0].path).parent)
    for row in model.rows.rows:
        model.rows.replace(row.id, replace(row, key=current_key(row.path)))
    model.add([first])
    qtbot.waitUntil(lambda: panel.detail.photo._photo.size() == QSize(16, 16), timeout=9000)
    assert not model.working
    for side, given in ((40, first), (64, folder)):
        QImage(side, side, QImage.Format.Format_RGB32).save(first)
        model.add([given])
        qtbot.waitUntil(lambda: list(model._waiting) == [0], timeout=9000)
        assert (model.rows.rows[0].done, "2 of these" in panel.notice.text.text()) == (False, given == folder)
        qtbot.waitUntil(lambda side=side: panel.detail.photo._photo.size() == QSize(side, side), timeout=9000)
        model._waiting.clear()
        model.rows.replace(0, read_result(model.rows.rows[0], answer(0.9) | {"key": current_key(first)}))


def test_a_photo_keeps_its_results_with_and_without_the_crop_also_when_it_is_removed(panel, model, qtbot):  # noqa: F811
    before = paths_of(model)
    panel.coverage.crop.click()
    model._waiting.remove(1)
    model._flying.add(1)
    model._read_answers([answer(0.6) | {"id": 1}])
    model.cancel()
    for leaves, waiting in ((True, [1]), (False, [])):
        model.set_view(crop=False, leaves=leaves)
        assert list(model._waiting) == waiting, "the others were cancelled"
    model.diagnose_cancelled()
    panel._remove([model.rows.rows[2]])
    panel.coverage.slider.setValue(1)
    for shown, waiting in (([0.95, 0.8], []), ([0, 0.6], [0]), ([0.95, 0.8], [])):
        panel.coverage.crop.click()
        assert ([row.probability for row in model.rows.present], list(model._waiting)) == (shown, waiting)
    model.plants.changes.undo()
    qtbot.waitUntil(lambda: [row.sure for row in model.rows.rows] == [True, True, False], timeout=9000)
    assert (paths_of(model), model.working) == (before, False)
    model._flying.add(1)
    model._read_answers([answer(0.7) | {"id": 1, "key": "of the file that replaced it"}])
    panel.coverage.crop.click()
    assert not model.rows.rows[1].done, "the other result is of the earlier file"


def test_a_photo_removed_and_added_again_is_diagnosed_once_and_names_that_several_have_are_longer(panel, model):  # noqa: F811
    model._thread, photo, name = Mock(), "/photos/leaf.jpg", model.rows.columns[0].text
    model.add([photo])
    assert name(model.rows.rows[3]) == "leaf"
    panel._remove([model.rows.rows[3]])
    model.add([photo, "/photos/leaf.png"])
    assert [name(row) for row in model.rows.rows[2:]] == ["2", "leaf.jpg", "leaf.png"]
    sent = [json.loads(call.args[0])["id"] for call in model._thread.send.call_args_list]
    assert (sent, sorted(model._flying)) == ([3, 4], [3, 4])
    model._read_answers([answer(0.9) | {"id": 3}])
    assert (model.rows.rows[3].done, model._flying) == (True, {4})
    panel._remove(model.rows.rows[4:])
    model._read_answers([answer(0.9) | {"id": 4}])
    model.add(["/photos/leaf.png"])
    assert model._thread.send.call_count == 3, "its answer came while it was removed"
    model.add(["/ann/leaf.jpg", "/ben/may/leaf.jpg", "/ben/rust.jpg", "/ann/may/leaf.jpg"])
    plants = {f"/{at}/leaf.{end}": f"/{at}" for at, end in (("photos", "jpg"), ("photos", "png"), ("ann", "jpg"))}
    plants["/ben/may/leaf.jpg"] = "1"  # grouped by hand
    model.plants.found = {path: Plant(name, 1, 1, Verdict(NOT_SURE)) for path, name in plants.items()}
    shown = ["leaf.jpg", "leaf.png", "leaf.jpg", "ben/may/leaf.jpg", "rust", "ann/may/leaf.jpg"]
    assert list(map(name, model.rows.rows[3:])) == shown


def test_photos_of_one_name_that_come_one_by_one_are_not_all_named_again(model, monkeypatch):  # noqa: F811
    parts, asked = PurePath.parts, []
    monkeypatch.setattr(PurePath, "parts", property(lambda path: asked.append(path) or parts.fget(path)))
    for number in range(50):
        model._add([f"/photos/{number}/leaf.jpg"])
    assert (len(asked) < 200, model.titles["/photos/0/leaf.jpg"]) == (True, "0/leaf.jpg")


def test_a_folder_that_is_being_listed_when_a_model_is_chosen_is_diagnosed(model, tmp_path, qtbot, monkeypatch):  # noqa: F811
    monkeypatch.setattr(process_model.ProcessModel, "_start_process", Mock())
    model.add([str(write_folder(tmp_path / "more", {"a": 4}))])
    model.load("other.safetensors")
    qtbot.waitUntil(lambda: len(model.rows.rows) == 7, timeout=5000)


def test_thousands_of_files_and_of_selected_results_do_not_stop_the_window(panel, model, monkeypatch, qtbot):  # noqa: F811
    """Files are looked at in a thread; Qt's header would ask the model about every selected cell."""
    main, seen, asked = threading.main_thread(), [], []
    monkeypatch.setattr("os.path.isdir", lambda path: seen.append(threading.current_thread()))
    model.add([f"/photos/{number}.jpg" for number in range(2000)])
    qtbot.waitUntil(lambda: len(model.rows.rows) == 2003)
    assert main not in seen
    panel.table.selectAll()
    counting = type("Counting", (tuple,), {"__len__": lambda columns: asked.append(0) or tuple.__len__(columns)})
    model.rows.columns = counting(model.rows.columns)
    panel.table.horizontalHeader().grab()
    assert len(panel.table.selected_rows()) == 2003 > len(asked)
    left = model.rows.rows[5:]
    panel._remove(model.rows.rows[:5])
    assert all(row is same for row, same in zip(model.rows.present, left, strict=True)), "20,000 copies take 0.2 s"


def test_a_known_crop_excludes_other_classes_without_a_new_diagnosis(panel, model):  # noqa: F811
    classes = ("apple/scab", *CLASSES[1:])
    model.ready = {"classes": classes}
    model.model_ready.emit("")
    choice = panel.known_crop
    assert [choice.itemText(at) for at in range(choice.count())] == ["Crop: any", "Crop: Apple", "Crop: Tomato"]
    choice.setCurrentIndex(2)
    assert [row.top[0] for row in model.rows.rows] == [(CLASSES[1], pytest.approx(0.5))] * 3
    assert [row.verdict for row in model.rows.rows] == [CLASSES[1]] * 3
    for leaves in ((), model.rows.rows[:1]):
        rows = [replace(row, leaves=tuple(leaves)) for row in model.rows.rows]
        plant, *_ = find_plants("folder", {}, rows, model._of_this_model()[1]).values()
        assert {one.label: one.probability for one in plant.top} == pytest.approx(dict.fromkeys(CLASSES[1:], 0.5))
    choice.setCurrentIndex(1)
    assert [(row.verdict, row.top[0][1]) for row in model.rows.rows] == [("apple/scab", pytest.approx(1.0))] * 3
    choice.setCurrentIndex(0)
    assert model.rows.rows[1].top[0] == ("apple/scab", pytest.approx(0.8))
    model.ready = {}  # the process starts again
    choice.setCurrentIndex(2)
    model._read({"ready": True, "classes": list(classes)})
    assert [row.top[0][0] for row in model.rows.rows] == [CLASSES[1]] * 3
    model._read({"ready": True, "classes": list(CLASSES)})
    assert choice.isHidden(), "of one crop none can be excluded"


def test_an_error_about_a_folder_goes_with_new_photos_and_photos_are_diagnosed_after_all(panel, model):  # noqa: F811
    model.failed.emit("There are no photos in this folder.", "")
    assert not panel.notice.isHidden()
    model._add(["/photos/unwanted.jpg"])
    panel._show(model.rows.rows[3])
    panel.cancel.click()
    assert (panel.rest.isHidden(), panel.detail.verdict.text()) == (False, "Cancelled")
    model._add(["/photos/new.jpg"])
    assert panel.notice.isHidden()
    panel.preparation.show_progress(3, 9)
    model._on_exit(-9, "")
    model.ended.emit()
    assert (panel.preparation.isHidden(), "Choose the model again" in panel.notice.text.text()) == (True, True)
    assert not panel.start.known.text(), "no model is being loaded"
    assert [row.cancelled for row in model.rows.rows] == [False] * 3 + [True] * 2, "nothing diagnoses them"
    model.load("/models/another.safetensors")
    assert list(model._waiting) == [4], "the next model diagnoses what the user has not cancelled"
    panel.rest.click()
    assert (list(model._waiting), panel.detail.shown) == ([4, 3], model.rows.rows[3])
    assert (any(row.cancelled for row in model.rows.rows), panel.rest.isHidden()) == (False, True)


def test_the_filter_says_how_many_are_shown_and_so_exported(panel, model, monkeypatch, qtbot, tmp_path):  # noqa: F811
    actions = panel._actions
    model.rows.append([PhotoResult(3, "/photos/1.png", cancelled=True), PhotoResult(4, "/photos/1.png")])
    panel.search.setText("1.png")
    assert panel.state.text() == "1 of 3 results"
    asked, chosen = [], str(tmp_path / "out" / "may.csv")
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda _, *given: (asked.extend(given[:2]), (chosen, ""))[1])
    actions.export_csv.trigger()
    panel.search.clear()
    assert panel.state.text() == "3 photos"
    model.rows.append([PhotoResult(5, "/photos/2.png", done=True)])
    actions.export_csv.trigger()
    assert asked[::2] == ["Export results: 1 of 3 results", "Export results: 4 results"]
    assert asked[1::2] == [str(place / "diagnoses.csv") for place in (Path.home(), tmp_path / "out")]


def test_clear_is_taken_back_to_the_old_places_except_photos_added_again(panel, model, qtbot):  # noqa: F811
    before = list(model.rows.rows)
    model._add(["/photos/a.jpg"])
    panel.search.setText("a filter that none passes")
    for place in (2, 0):
        panel.coverage.slider.setValue(place)
    assert panel.detail.shown == model.rows.rows[0], "its buttons act"
    panel._remove(model.rows.present)
    assert (panel.notice.text.text(), model.rows.present) == ("4 results removed.", [])
    panel.notice.do.click()
    assert [row.verdict for row in model.rows.present[:3]] == [row.verdict for row in before]
    assert (model.rows.rows[3].cancelled, panel.stack.currentIndex()) == (True, 1), "what had no answer is cancelled"
    panel._remove(model.rows.present)
    model.set_view(crop=True, leaves=True)  # results of the other kind are not restored
    model._add(["/photos/new.jpg", before[2].path])
    assert ([row.id for row in model.rows.present], list(model._waiting)) == ([2, 4], [2, 4])
    model.plants.changes.undo()
    assert [(row.id, row.cancelled) for row in model.rows.present] == [(at, at not in (2, 4)) for at in range(5)]
    assert list(model._waiting) == [2, 4]
    panel.search.clear()
    qtbot.waitUntil(lambda: panel.table.currentIndex().row() == 0)


@pytest.mark.parametrize("flying", [[], [3]])
def test_del_and_undo_change_only_what_the_page_shows(opened, flying, qtbot):
    rows, diagnosis, window = opened.diagnosis.rows, opened.diagnosis, opened.window
    qtbot.waitUntil(lambda: len(window.page("dataset").photos.rows) == 6)
    opened.document.exclude([0], True)
    window.page("dataset").grid.selectAll()
    rows.append([PhotoResult(at, f"/photos/{at}.jpg", done=at < 3) for at in range(6)])
    diagnosis._flying, diagnosis._waiting, diagnosis._total = set(flying), deque([3, 4, 5][len(flying) :]), 6
    table = window.go("diagnose").table
    table.setFocus()
    table.clearSelection()
    table.setSelectionMode(table.SelectionMode.MultiSelection)
    for at in (1, 3):
        table.selectRow(at)
    qtbot.keyClick(table, Qt.Key.Key_Delete)
    assert (list(diagnosis._waiting), diagnosis._flying, diagnosis.progress) == ([4, 5], set(), (2, 5))
    diagnosis._read_answers([answer(0.9) | {"id": 3}])
    assert (rows.rows[3].done, table.currentIndex().row()) == (False, 3), "removed while it was being diagnosed"
    table.clearSelection()
    qtbot.keyClick(table, Qt.Key.Key_Delete)  # removes nothing, and keeps the Undo of the first
    window.page("diagnose").notice.do.click()
    for act, left in ((lambda: None, "012345"), (window.actions_.redo.trigger, "0245"),
                      (window.actions_.undo.trigger, "012345")):  # fmt: skip
        act()
        assert [row.path[8] for row in rows.shown_rows()] == list(left)
    table.sortByColumn(0, Qt.SortOrder.DescendingOrder)
    table.selectRow(2)
    for removed, current in ((6, 2), (1, 5)):  # Clear, then one row, which is shown by Undo
        window.page("diagnose")._remove(rows.rows[:removed])
        window.actions_.undo.trigger()
        assert table.currentIndex().row() == current
    assert window.page("diagnose").notice.isHidden(), "its Undo has nothing left to undo"
    window.actions_.undo.trigger()
    assert opened.document.table.excluded.tolist() == [True] + [False] * 5


def test_a_folder_without_rights_is_not_called_empty(panel, model, tmp_path, monkeypatch, qtbot):  # noqa: F811
    folder = write_folder(tmp_path / "x", {"a": 2, "secret": 1})
    (folder / "phone.HEIC").touch()  # gets an answer, which says that this format is not read
    refuse_listing(monkeypatch, "secret")
    _, found, refused, _ = photo_files([str(folder), "/not/there.jpg"], {})
    assert (len(found), found[-1], refused) == (4, "/not/there.jpg", [str(folder / "secret")])
    model.add([str(folder / "secret")])
    qtbot.waitUntil(lambda: "secret cannot be read" in panel.notice.text.text())


def test_results_of_another_model_keep_their_verdicts_and_are_diagnosed_again_when_added_again(model, monkeypatch):  # noqa: F811
    monkeypatch.setattr(process_model, "ProcessThread", Mock())
    model.sender = lambda: model._thread
    before = list(model.rows.rows)

    def use(path, name, digit):
        model.load(path)
        assert all(row is kept for row, kept in zip(model.rows.rows, before, strict=True)), "100,000 copies take 0.3 s"
        model._on_bundle([{"ready": True, "classes": CLASSES, "model": {"name": name, "hash": digit, "date": ""}}])

    use("other.safetensors", "other", "1" * 64)
    model.verdicts.thresholds = THRESHOLDS
    model.verdicts.set_coverage(0.5)
    assert model.rows.rows == before
    model._add(paths_of(model)[:1])
    assert list(model._flying) == [0]
    model._flying.clear()
    before = list(model.rows.rows)
    use("first.safetensors", "", "")
    model._add(paths_of(model)[1:])
    assert not model.working


def test_listed_photos_are_offered_to_another_model_and_to_a_process_that_has_ended(panel, model, monkeypatch):  # noqa: F811
    monkeypatch.setattr(process_model, "ProcessThread", Mock())
    for digit, text in (("", ""), ("1", "3 listed photos were diagnosed by another model.")):
        model.model = ModelIdentity(hash=digit)
        panel.window().findChild(PhotoCommands).use_model(shipped_model("small"))
        assert panel.notice.text.text() == text
    panel.notice.do.click()
    assert model.progress == (3, 3)
    for act, many in ((panel.coverage.leaves.click, 3), (lambda: model._add(["/photos/new.jpg"]), 4)):
        model._end_process()
        act()
        assert (model.has_process, model.progress) == (True, (many, many))


def test_photos_of_a_plant_have_one_diagnosis_by_folder_by_time_or_by_hand(panel, model, qtbot, tmp_path):  # noqa: F811
    other = [read_result(PhotoResult(at, f"/b/{at}.png"), answer(0.45, str(at)) | {"taken": at}) for at in (3, 4)]
    model.rows.append([*other, replace(other[0], id=5, path="/b/old.png", model=ModelIdentity("another", hash="0"))])
    rows, of, column = model.rows.rows, model.plants.of, model.rows.columns[PLANT].text

    def shows(*names):
        qtbot.waitUntil(lambda: [of(row) and Path(of(row).name).name for row in rows] == list(names))
        current = [row for row in model.rows.rows[:5] if of(row)]
        found = [Diagnosis(r.path, prediction=Prediction(np.array(r.probabilities), r.familiarity)) for r in current]
        plants = diagnose_plants(found, [of(r).name for r in current], model.verdicts.rule(CLASSES))
        assert {plant.name: plant for plant in plants} == {of(row).name: of(row) for row in current}

    assert panel.table.isColumnHidden(PLANT)
    panel.plants.setCurrentIndex(1)
    shows("a", "a", "a", "b", "b", None)
    assert (of(rows[0]).photos, of(rows[3]).photos) == (3, 2), "what another model diagnosed does not count"
    assert not panel.table.isColumnHidden(PLANT)
    assert column(rows[0]) == "a: Early blight of tomato 95.3\u00a0% (3 photos)"
    assert panel.detail.plant.text() == f"Plant {column(rows[0])}"
    panel.coverage.slider.setValue(2)
    qtbot.waitUntil(lambda: not of(rows[3]).verdict.is_class)
    shows("a", "a", "a", "b", "b", None)
    panel.plants.setCurrentIndex(2)
    shows("0.png", "1.png", "2.png", "3.png", "3.png", None)
    panel.window().show()
    panel.table.setFocus()
    panel.table.selectRow(2)
    qtbot.keyClick(panel.table, Qt.Key.Key_Down, Qt.KeyboardModifier.ShiftModifier)
    qtbot.keyClick(panel.table, Qt.Key.Key_G, Qt.KeyboardModifier.ControlModifier)
    shows("0.png", "1.png", "1", "1", "3.png", None)
    written = [from_line(json.loads(json.dumps(to_line(row)))) for row in model.plants.with_plants(rows[2:])]
    assert f"Plant {column(rows[2])}" in render(written[:1])
    write_csv(tmp_path / "table.csv", written)
    assert f",1,2,2,{NOT_SURE},0." in (tmp_path / "table.csv").read_text().splitlines()[1]
    by_hand, ungroup, edit = (None, None, "1", "1", None, None), panel.table.actions()[2], panel._actions
    for act, names in ((lambda: panel.plants.setCurrentIndex(0), by_hand), (ungroup.trigger, [None] * 6),
                       (edit.undo.trigger, by_hand), (edit.redo.trigger, [None] * 6)):  # fmt: skip
        act()
        shows(*names)
    assert panel.detail.plant.isHidden()


@pytest.mark.parametrize("seed", range(3))
def test_rows_have_their_positions_and_results_after_any_sequence_of_actions(panel, model, monkeypatch, seed):  # noqa: F811
    monkeypatch.setattr(process_model, "ProcessThread", lambda *_, **__: Mock())
    chance, changes, known = random.Random(seed), model.plants.changes, {"name": "first", "hash": "h"}

    def take_answer():
        if not model.ready:
            model._read_answers([{"ready": True, "classes": CLASSES, "model": known}])
        for sent in model._thread.send.call_args_list[1:2]:
            asked = json.loads(sent.args[0])
            found = answer(chance.random()) if chance.random() < 0.8 else {"error": "The file is empty."}
            model._read_answers([found | {"id": asked["id"], "key": asked["path"], "taken": asked["crop"]}])
            del model._thread.send.call_args_list[1]

    def rename():
        known["name"] += "+"
        model.rename_model(ModelIdentity(**known))

    rare = (model.cancel, model.diagnose_cancelled, changes.undo, changes.redo, rename,
            lambda: model.set_view(crop=not model.crop, leaves=False),
            lambda: panel._remove(chance.sample(model.rows.present, min(4, len(model.rows.present)))))  # fmt: skip
    often = take_answer, take_answer, lambda: model.add([f"/photos/{chance.randrange(60)}.jpg" for _ in range(4)])
    model.load("model.safetensors")
    for _ in range(400):
        chance.choice(rare if chance.random() < 0.2 else often)()
        rows, present, queued = model.rows.rows, model.rows.present, [*model._waiting, *model._flying]
        assert ([row.id for row in rows], len(set(paths_of(model)))) == (list(range(len(rows))), len(rows))
        assert sorted(queued) == [row.id for row in present if not (row.done or row.cancelled)]
        assert sorted(row.id for row in model.rows.shown_rows()) == [row.id for row in present]
        assert len(queued) == model.progress[0] <= model.progress[1]
        for row in rows:
            for crop, one in ((model.crop, row), *((crop, one) for (crop, _), one in row.others.items())):
                assert (one.key, one.taken) == (row.path, crop) or not one.key
                assert one.model.name in ("", known["name"])
