"""The Diagnose page without a network: the slider updates verdicts, the brush edits masks, the report shows both."""

import json
from dataclasses import replace
from unittest.mock import Mock, patch

import cv2
import numpy as np
import pytest
from PySide6.QtCore import QObject, QPointF, Qt, Signal
from PySide6.QtGui import QColor, QImage

from app.mask import LEAF, Mask, encode_mask
from app.processes.diagnose import _describe
from app.processes.writing import write_csv
from app.theme import current_theme
from app.viewmodels import process_model
from app.viewmodels.diagnosis import DiagnosisModel
from app.viewmodels.process_model import ProcessThread
from app.viewmodels.result import PhotoResult, columns, decide, doubts, from_line, read_result, to_line, verdict_text
from app.viewmodels.rows_model import ROW
from app.widgets.overlays import SICK
from app.widgets.photo_view import PhotoDialog, PhotoView
from core.diagnosis.examination import Examination, _join
from core.diagnosis.severity import Severity
from core.diagnosis.thresholds import CoveragePoint, Thresholds, untested_thresholds
from core.diagnosis.verdict import NO_LEAF, NOT_SURE, UNFAMILIAR, DecisionRule, Prediction
from tests.helpers.window import write_folder

pytestmark = pytest.mark.gui

CLASSES = ("tomato/early_blight", "tomato/healthy", "tomato/late_blight")
CURVE = (CoveragePoint(1.0, 0.3, 0.95, 0.0), CoveragePoint(0.9, 0.7, 0.99, 0.06), CoveragePoint(0.5, 0.9, 1.0, 0.47))
THRESHOLDS = Thresholds("energy", -10.0, -1, 1.0, CURVE)


def answer(probability, photo="0"):
    leaf = np.zeros((64, 64), bool)
    leaf[8:56, 8:56] = True
    rest = (1 - probability) / 2
    return {
        "id": 1, "verdict": CLASSES[0], "probabilities": [probability, rest, rest], "familiarity": 0.0,
        "top": [[CLASSES[0], probability], [CLASSES[1], rest], [CLASSES[2], rest]], "diseased": 0.0, "hash": photo * 64,
        "mask": encode_mask(Severity(leaf, np.zeros_like(leaf)), (0.0, 0.0, 1.0, 1.0)),
    }  # fmt: skip


@pytest.fixture
def panel(program, tmp_path):
    model: DiagnosisModel = program.diagnosis
    model.ready, model.verdicts.thresholds = {"classes": CLASSES, "maps": True}, THRESHOLDS
    photos = sorted(write_folder(tmp_path / "photos", {"a": 3}).rglob("*.png"))
    model.rows.append([read_result(PhotoResult(at, str(photo)), answer(p, str(at)))
                       for at, (photo, p) in enumerate(zip(photos, (0.95, 0.8, 0.5), strict=True))])  # fmt: skip
    made = program.window.go("diagnose")
    made.coverage._on_model()
    made.table.selectRow(0)
    made._show_selected()
    return made


@pytest.fixture
def model(panel):
    return panel._model


def test_the_slider_updates_all_verdicts_and_shows_its_effect(panel, model, qtbot):
    with patch("app.viewmodels.verdicts.SLICE_S", 0.0):
        panel.coverage.slider.setValue(1)  # still to do when it moves on
    panel.coverage.slider.setValue(2)
    assert [row.verdict for row in model.rows.rows] == [CLASSES[0], NOT_SURE, NOT_SURE]
    assert "50\u00a0%" in panel.coverage.caption.text()
    assert "47.0\u00a0%" in panel.coverage.caption.toolTip()
    qtbot.waitUntil(lambda: "2 not diagnosed" in panel.state.text())
    panel.coverage.slider.setValue(0)
    assert [row.verdict for row in model.rows.rows] == [CLASSES[0]] * 3


def test_while_another_model_is_loaded_nothing_is_said_of_the_one_before(panel, model, monkeypatch):
    model.ready = {**model.ready, "adapted": True}
    panel.coverage._on_model()
    panel.detail.show_result(PhotoResult(0, "/photos/leaf.jpg"))
    assert panel.coverage.caption.text().startswith("Before it was adapted, the model diagnosed 1")
    monkeypatch.setattr(process_model, "ProcessThread", lambda *_, **__: Mock(spec=ProcessThread))
    model.load("/models/another.safetensors")
    assert not panel.coverage.caption.text()
    assert not panel.coverage.slider.isEnabled()
    assert panel.detail.verdict.text() == "Preparing the model…"
    model.ready = {"classes": ["healthy"]}
    model.model_ready.emit(model.model_path)
    assert panel.detail.verdict.text() == "Diagnosing…"


def test_the_slider_has_a_place_for_each_coverage_and_none_without_thresholds(panel, model):
    model.verdicts.thresholds = replace(THRESHOLDS, curve=(CURVE[0], CURVE[0], *CURVE))
    panel.coverage._on_model()
    assert panel.coverage.slider.maximum() == 2
    wrong = replace(THRESHOLDS, curve=(CoveragePoint(1.0, 0.02, 0.0, 0.0),))  # as of a model that learned nothing
    for thresholds, measured in ((replace(THRESHOLDS, curve=CURVE[:1]), True), (wrong, True),
                                 (untested_thresholds(3), False), (None, False)):  # fmt: skip
        model.verdicts.thresholds = thresholds
        panel.coverage._on_model()
        assert not panel.coverage.slider.isEnabled()
        assert ("at least 50\u00a0%" in panel.coverage.caption.text()) != measured
    assert decide(model.rows.rows[2], DecisionRule(CLASSES, None)).verdict == CLASSES[0]


def test_outlines_are_shown_first_and_class_maps_are_computed_when_asked_for(panel, model):
    panel.window().show()
    which, detail = panel.detail.which, panel.detail
    assert [which.itemText(at) for at in range(which.count())] == [
        "Outlines", "Class map: Early blight of tomato", "Class map: Healthy tomato leaf",
        "Class map: Late blight of tomato", "Photo only"]  # fmt: skip
    assert which.currentText() == "Outlines"
    assert not detail.legend.isVisible()
    model._thread = Mock(spec=ProcessThread)
    which.setCurrentIndex(2)
    detail.slider.setValue(40)
    ((line,),) = [call.args for call in model._thread.send.call_args_list]  # requested once
    asked = json.loads(line)
    assert (asked["label"], asked["box"], asked["leaves"]) == (CLASSES[1], [0, 0, 1, 1], [])
    assert not detail.legend.isVisible()
    found = {name: asked[name] for name in ("id", "path", "label")}
    model._read_answers([found | {"map": {"height": 1, "width": 2, "data": "AP8="}}])
    assert detail.legend.isVisible()
    assert which.currentIndex() == 2
    panel.table.selectRow(1)
    panel._show_selected()
    assert which.currentText().startswith("Class map"), "the kind stays for the next photo"
    assert [list(row.maps) for row in model.rows.rows] == [[CLASSES[1]], [], []]
    model._thread = None
    which.setCurrentIndex(4)
    assert detail.photo._layer.isNull()


def test_lesions_are_outlined_only_where_a_disease_is_named(panel, model):
    leaf = np.zeros((64, 64), bool)
    leaf[8:56, 8:56] = True
    sick = np.zeros_like(leaf)
    sick[20:30, 20:30] = True
    spotted = {**answer(0.95), "diseased": 4.0, "mask": encode_mask(Severity(leaf, sick), (0.0, 0.0, 1.0, 1.0))}
    row = read_result(model.rows.rows[0], spotted)
    for share, said in ((0.0, "No diseased area was found."), (0.5, "Diseased share of the leaf area: <\u00a01")):
        panel.detail.show_result(replace(row, diseased=share))
        assert panel.detail.notes.text().startswith(said)
        assert columns(lambda _: None, {})[3].text(panel.detail.shown) == ("<\u00a01\u00a0%" if share else "")
    assert SICK in colours_of(panel.detail.photo._layer)
    for other in (CLASSES[1], NOT_SURE):
        panel.detail.show_result(replace(row, verdict=other))
        assert SICK not in colours_of(panel.detail.photo._layer)


def colours_of(picture):
    image = picture.toImage()
    return {image.pixelColor(x, y).getRgb()[:3] for x in range(image.width()) for y in range(image.height())}


def test_below_the_threshold_no_bar_is_green_and_the_threshold_is_shown(panel):
    panel.coverage.slider.setValue(2)
    panel._show_selected()
    bars, accent = panel.detail.bars, QColor(current_theme().colours.accent).getRgb()[:3]
    assert accent in colours_of(bars.grab())
    assert panel.detail.threshold.isHidden()
    panel.table.selectRow(1)  # 80 %, where 90 % are asked for
    panel._show_selected()
    assert panel.detail.verdict.text() == "Not sure"
    assert accent not in colours_of(bars.grab())
    assert ("90\u00a0%" in panel.detail.threshold.text(), panel.detail.threshold.isHidden()) == (True, False)


def test_all_labels_of_a_photo_are_shown_with_their_thresholds_and_cards(panel, model):
    top = [["tomato/late_blight", 0.6], ["tomato/leaf_mold", 0.3], ["tomato/healthy", 0.2]]
    several = {"verdict": "tomato/late_blight+leaf_mold", "top": top, "limits": [0.5, 0.2, 0.4]}
    row = from_line(to_line(read_result(model.rows.rows[0], {**answer(0.95), **several})))
    assert row.labels == ("tomato/late_blight", "tomato/leaf_mold")
    panel.detail.show_result(row)
    assert panel.detail.verdict.text() == "Late blight of tomato + Leaf mold of tomato"
    assert panel.detail.card.toPlainText().count("Symptoms") == 2
    panel.detail.show_result(replace(row, limits=(0.5, 0.2, 0.1)))
    assert "Nothing to do" not in panel.detail.card.toPlainText(), "a leaf that is healthy, too, needs treatment"
    assert not panel.detail.threshold.isHidden()
    bars = panel.detail.bars
    assert bars.accessibleName().startswith("Late blight of tomato 60.0\u00a0% (Minimum confidence: 50.0\u00a0%), Leaf")
    theme, second_line = current_theme().colours, bars.grab().copy(0, bars.line, 400, bars.line)
    assert {QColor(theme.accent).getRgb()[:3], QColor(theme.warning).getRgb()[:3]} <= colours_of(second_line)


def test_the_whole_photo_is_shown_with_what_was_looked_at(panel, model, qtbot, tmp_path):
    wide = np.zeros((60, 90, 3), np.uint8)
    wide[:, :5] = (0, 0, 255)  # red, left of the square
    (tmp_path / "wide.png").write_bytes(cv2.imencode(".png", wide)[1].tobytes())
    view = panel.detail.photo
    panel._settle.stop()  # or it shows the selected row's photo again
    panel.detail.show_result(replace(model.rows.rows[0], path=str(tmp_path / "wide.png")))
    qtbot.waitUntil(lambda: view._photo.width() == 90)
    view.resize(300, 300)
    whole, square = view.whole(), view.place()
    assert (round(whole.width()), round(whole.height())) == (300, 200)
    assert (round(square.x()), round(square.y()), round(square.width())) == (50, 50, 200)
    pixels = view.grab().toImage()
    assert pixels.pixelColor(5, 150).red() > 100
    assert pixels.pixelColor(51, 150).red() == 255, "the frame"
    panel.detail.show_result(replace(model.rows.rows[0], path=str(tmp_path / "gone.png"), error="It does not exist."))
    assert not panel.detail.card.toPlainText(), "a file that does not exist cannot be saved as JPEG"
    qtbot.waitUntil(lambda: view._missing)
    view.show_map(np.ones((4, 4), np.float32))
    view.resize(400, 200)
    assert len(colours_of(view.grab().copy(0, 0, 140, 60))) == 1, "a map of no photo"


def test_a_photo_opens_large_by_double_click_and_by_the_keyboard(panel, qtbot):
    panel.table.selectRow(1)
    qtbot.mouseDClick(panel.detail.photo, Qt.MouseButton.LeftButton)
    qtbot.keyClick(panel.table, Qt.Key.Key_Return)
    shown = panel.findChildren(PhotoDialog)
    assert [dialog.windowTitle() for dialog in shown] == ["Early blight of tomato"] * 2
    assert {dialog.findChild(PhotoView)._photos for dialog in shown} == {panel._photos}, "which threads decode"
    for dialog in shown:
        dialog.reject()


@pytest.mark.parametrize("sorted_by", [-1, 1])
def test_a_photo_that_is_brought_is_the_one_shown(panel, model, qtbot, sorted_by):
    panel.table.sortByColumn(sorted_by, Qt.SortOrder.AscendingOrder)
    panel.table.selectRow(1)
    model._add(["/photos/new.jpg", "/photos/other.jpg"])
    qtbot.waitUntil(lambda: panel.table.currentIndex().data(ROW).path == "/photos/new.jpg")
    qtbot.waitUntil(lambda: panel.detail.shown.path == "/photos/new.jpg")
    panel.table.selectRow(0)
    model.rows.replace(0, model.rows.rows[0])
    qtbot.wait(50)
    assert panel.table.currentIndex().row() == 0, "what is chosen afterwards stays"


def test_a_correction_belongs_to_the_photo_and_not_to_its_name(model):
    again = read_result(PhotoResult(3, "/elsewhere/copy.png"), answer(0.9, "0"))
    model.rows.append([again])
    model.correct(model.rows.rows[0], Mask(np.full((64, 64), LEAF, np.uint8), corrected=True))
    assert (model.rows.rows[3].mask is None, model.rows.rows[1].mask) == (False, None)
    for n, several in enumerate(((), [answer(0.9) | {"box": (0.1, 0.0, 0.5, 0.4)}] * 2)):
        model.rows.replace(n, replace(model.rows.rows[n], done=False, mask=None))
        model._flying.add(n)
        model._read_answers([answer(0.9, "0") | {"id": n, "leaves": several, "mask": None}])
    assert model.rows.rows[0].mask is not None
    assert model.rows.rows[1].area() is None, "a correction is of one leaf"


def test_cutting_out_can_be_switched_off_all_photos_wait_again_and_what_is_cut_out_is_framed(panel, model):
    panel.coverage.crop.click()
    assert (model.crop, model.progress) == (False, (3, 3))
    assert not any(row.done for row in model.rows.rows)
    assert panel.detail.photo._frame == (0.0, 0.0, 1.0, 1.0)
    leaf = np.ones((8, 8), bool)
    cut = {**answer(0.9), "mask": encode_mask(Severity(leaf, ~leaf), (0.25, 0.25, 0.75, 0.75))}
    panel.detail.show_result(read_result(model.rows.rows[0], cut))
    assert panel.detail.photo._frame == (0.25, 0.25, 0.75, 0.75)


def test_photos_added_during_a_diagnosis_continue_the_count_and_a_model_loaded_again_keeps_its_name(qapp, monkeypatch):
    model = DiagnosisModel()
    model.add(["a.jpg", "b.jpg", "c.jpg"])
    model._waiting.popleft()  # one is done
    model.add(["d.jpg"])
    assert model.progress == (3, 4)
    model.cancel()
    assert model.progress == (0, 1)
    model.add(["e.jpg", "f.jpg"])
    assert model.progress == (2, 2)
    monkeypatch.setattr(process_model, "ProcessThread", Mock())
    model.load("m.safetensors")
    model.sender = lambda: model._thread
    model._on_bundle([{"ready": True, "classes": CLASSES, "rejection": {}, "model": {"name": "my model"}}])
    model.load("m.safetensors")
    assert model.model.name == "my model"
    model.load("other.safetensors")
    assert model.model.name == ""
    model.close()


def test_a_photo_does_not_stay_beside_the_diagnosis_of_another(qtbot):
    class Pictures(QObject):
        ready = Signal(str)

        def get(self, path):
            return None  # is never decoded

    view = PhotoView("photo")
    qtbot.addWidget(view)
    view.show_photo(QImage(8, 8, QImage.Format.Format_RGB32))
    pictures = Pictures()
    view.request(pictures, "another.jpg")
    qtbot.waitUntil(lambda: view._photo.isNull())


def test_no_disease_is_described_where_the_photo_is_like_none_or_has_no_leaf(panel, model):
    known = model.rows.rows[0]
    panel.detail.show_result(replace(known, verdict=NOT_SURE, reason="It may be one or the other."))
    assert "Early blight" in panel.detail.card.toPlainText()
    panel.detail.show_result(replace(known, verdict=NOT_SURE, reason=UNFAMILIAR))
    said = panel.detail.card.toPlainText()
    assert ("Early blight" in said, "take the photo again" in said) == (False, True)
    assert (panel.detail.bars._top, panel.detail.threshold.text()) == ((), ""), "they do not apply"
    bare = replace(known, verdict=NO_LEAF, top=(("background/none", 0.99), *known.top[1:]))
    panel.detail.show_result(bare)
    assert "Not certain" not in panel.detail.card.toPlainText()


def test_an_uncertain_photo_is_listed_with_its_class_and_an_unfamiliar_one_without_probability(model):
    row = replace(model.rows.rows[0], verdict=NOT_SURE, top=(("potato/early_blight", 0.4),))
    for reason, shown in (("", ["Not sure: Early blight of potato?", "40.0\u00a0%"]),
                          (UNFAMILIAR, ["Not sure: unfamiliar photo", ""])):  # fmt: skip
        assert [column.text(replace(row, reason=reason)) for column in columns(lambda _: None, {})[1:3]] == shown


def test_why_a_photo_is_unreadable_takes_no_room_from_the_names_of_photos_and_is_translated(language):
    column, row = columns(lambda _: None, {})[1], PhotoResult(0, "a.jpg", True, error="The file is empty.")
    shown = {"en": ("Unreadable", "The file is empty."), "vi": ("Không đọc được", "Tệp rỗng.")}[language]
    assert (column.text(row), column.tip(row)) == shown


def test_cancelling_gives_up_what_waits_at_once_and_calls_it_so(panel, model, tmp_path):
    panel.table.sortByColumn(1, Qt.SortOrder.AscendingOrder)
    model.rows.replace(2, replace(model.rows.rows[2], error="The file is empty."))
    told = []
    model.rows.dataChanged.connect(lambda *of: told.append(of))
    model._add([str(tmp_path / f"{at}.jpg") for at in range(100)])
    panel._on_busy(1, 3)
    assert panel.state.text() == "2 of 3 done"
    model.cancel()
    assert len(told) == 1, "one by one, 100,000 photos in a sorted table took 21 seconds"
    assert panel.state.text() == "103 photos, 1 unreadable, 100 cancelled"
    model.verdicts.set_coverage(1.0)
    assert (model.rows.rows[50].cancelled, model.working) == (True, False)
    write_csv(tmp_path / "table.csv", model.rows.shown_rows())
    rows = (tmp_path / "table.csv").read_text().splitlines()
    assert len(rows) == 4, "photos without an answer are not listed"


def test_leaves_of_a_photo_are_boxes_that_a_click_selects(panel, model, qtbot, tmp_path):
    parts = [answer(p) | {"box": box} for p, box in ((0.95, (0.1, 0.0, 0.5, 0.4)), (0.5, (0.1, 0.6, 0.5, 1.0)))]
    photo = model.rows.rows[0]
    model.rows.replace_all([read_result(photo, answer(0.95) | {"mask": None, "leaves": parts})])
    result = model.rows.rows[0]
    assert verdict_text(result) == "2 of 2 leaves: Early blight of tomato"
    detail, view = panel.detail, panel.detail.photo
    panel.window().show()
    detail.show_result(replace(result, measured=photo.measured), 0.7)
    assert detail.correct.isHidden(), "a correction is of one leaf"
    detail.show_result(result, 0.7)
    assert [detail.which.itemText(at) for at in range(3)] == [
        "Leaf 1: Early blight of tomato", "Leaf 2: Early blight of tomato", "Photo only"]
    area = view.place()
    qtbot.mouseClick(view, Qt.MouseButton.LeftButton,
                     pos=QPointF(area.x() + 0.8 * area.width(), area.y() + 0.3 * area.height()).toPoint())  # fmt: skip
    assert (detail.which.currentData(), detail.bars._top[0][1]) == (1, 0.5)
    assert detail.verdict.text() == "Leaf 2: Early blight of tomato"
    detail.which.setCurrentIndex(2)
    assert detail.bars._top[0][1] == 0.95, "without a leaf, the photo's own"
    both = replace(result.leaves[1], verdict="tomato/early_blight+late_blight", limits=(0.5, 0.9, 0.2))
    detail.show_result(replace(result, leaves=(result.leaves[0], both)), maps=True)
    assert [detail.which.itemData(at) for at in range(2, detail.which.count() - 1)] == [*CLASSES], "not of label sets"
    changed = decide(result, DecisionRule(CLASSES, THRESHOLDS, 0.9))
    assert verdict_text(changed) == "1 of 2 leaves: Early blight of tomato"
    assert [leaf.sure for leaf in changed.leaves] == [True, False]
    assert doubts(changed).startswith("1 of 2 leaves: Not sure.")
    detail.show_result(changed)
    detail.which.setCurrentIndex(1)
    assert detail.doubt.text().startswith("It may be Early blight of tomato"), "the reason is the leaf's own"
    panel.coverage.slider.setValue(2)
    assert [leaf.sure for leaf in model.rows.rows[0].leaves] == [True, False]
    write_csv(tmp_path / "table.csv", [from_line(to_line(model.rows.rows[0]))])
    rows = [row.split(",") for row in (tmp_path / "table.csv").read_text().splitlines()]
    assert [row[1] for row in rows[1:]] == [CLASSES[0], CLASSES[0], NOT_SURE]
    assert rows[3][-4:] == ["0.1000", "0.6000", "0.5000", "1.0000"]


def test_the_diseased_area_of_several_leaves_follows_their_verdicts():
    def examine(probability):
        rest = (1 - probability) / 2
        prediction, rule = Prediction(np.array([probability, rest, rest]), 0.0), DecisionRule(CLASSES, THRESHOLDS, 0.9)
        half = np.indices((32, 32))[0] < 16
        return Examination(rule.decide(prediction), rule.list_top(prediction), prediction,
                           np.zeros((32, 32, 3), np.uint8), (0.0, 0.0, 1.0, 1.0), Severity(np.ones_like(half), half))

    boxes = ((0.0, 0.0, 0.5, 0.5), (0.5, 0.5, 1.0, 1.0))
    found = [(box, replace(examine(p), box=box)) for box, p in zip(boxes, (0.95, 0.6), strict=True)]
    photo = np.zeros((64, 64, 3), np.uint8)
    same = [(boxes[0], replace(one, box=boxes[0])) for _, one in found]
    assert _join(photo, same).severity.percent == pytest.approx(50), "healthy leaves hide no lesions of others"
    result = read_result(PhotoResult(0, "p.jpg"), _describe(_join(photo, found)))
    for coverage, percent, sick in ((0.9, 25, 1), (1.0, 50, 2), (0.9, 25, 1)):
        result = decide(result, DecisionRule(CLASSES, THRESHOLDS, coverage))
        for shown in (result, from_line(json.loads(json.dumps(to_line(result))))):
            assert shown.shown_percent == pytest.approx(percent)
            assert shown.area().severity.percent == pytest.approx(percent)
            assert [leaf.shown_percent for leaf in shown.leaves] == [pytest.approx(50)] * sick + [None] * (2 - sick)
    third = examine(1 / 3)
    assert _describe(third)["probabilities"] == third.prediction.probabilities.tolist(), "not rounded"
