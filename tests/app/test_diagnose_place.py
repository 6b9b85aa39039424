"""The Diagnose place without a network: the slider judges anew, the brush corrects, the report shows it."""

from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest

from app.mask import LEAF, Mask, encode_mask
from app.panels.diagnose.brush import BrushDialog
from app.results_file import write_csv, write_html
from app.viewmodels.diagnosis import DiagnosisModel
from app.viewmodels.result import Result, judge, read_result
from app.viewmodels.table import ROW
from app.widgets.photo_view import PhotoDialog
from core.diagnosis.coverage import CoveragePoint
from core.diagnosis.severity import Severity
from core.diagnosis.verdict import NO_LEAF, NOT_SURE, UNLIKE, Thresholds
from tests.helpers.window import write_folder

pytestmark = pytest.mark.gui

CLASSES = ("tomato/early_blight", "tomato/healthy", "tomato/late_blight")
CURVE = (CoveragePoint(1.0, 0.3, 0.95, 0.0), CoveragePoint(0.9, 0.7, 0.99, 0.06), CoveragePoint(0.5, 0.9, 1.0, 0.47))
THRESHOLDS = Thresholds("energy", -10.0, -1, 1.0, CURVE)


def answer(probability, photo="0"):
    """What the process says of one photo."""
    leaf = np.zeros((64, 64), bool)
    leaf[8:56, 8:56] = True
    rest = (1 - probability) / 2
    return {
        "verdict": CLASSES[0], "sure": True, "probabilities": [probability, rest, rest], "familiarity": 0.0,
        "off_leaf": 0.38,
        "top": [[CLASSES[0], probability], [CLASSES[1], rest], [CLASSES[2], rest]], "diseased": 0.0, "hash": photo * 64,
        "maps": {name: {"height": 1, "width": 2, "data": "AP8="} for name in CLASSES},
        "mask": encode_mask(Severity(leaf, np.zeros_like(leaf)), (0.0, 0.0, 1.0, 1.0)),
    }  # fmt: skip


@pytest.fixture
def place(start, tmp_path):
    """The place with three answered photos, and what it stands on."""
    program = start()
    model: DiagnosisModel = program.diagnosis
    model.ready, model.thresholds = {"classes": CLASSES}, THRESHOLDS
    photos = sorted(write_folder(tmp_path / "photos", {"a": 3}).rglob("*.png"))
    model.rows.append([read_result(Result(at, str(photo)), answer(p, str(at)))
                       for at, (photo, p) in enumerate(zip(photos, (0.95, 0.8, 0.5), strict=True))])  # fmt: skip
    panel = program.window.go("diagnose")
    panel.coverage._on_model()
    panel.table.selectRow(0)
    panel._show_selected()
    return panel, model


def test_the_slider_judges_all_photos_anew_and_says_what_it_costs(place):
    panel, model = place
    panel.coverage.slider.setValue(2)
    assert [row.verdict for row in model.rows.rows] == [CLASSES[0], NOT_SURE, NOT_SURE]
    assert "50\u00a0%" in panel.coverage.said.text()
    assert "47.0\u00a0%" in panel.coverage.said.text()
    assert "2 not answered" in panel.state.text()
    assert model.rows.rows[1].reason
    panel.coverage.slider.setValue(0)
    assert [row.verdict for row in model.rows.rows] == [CLASSES[0]] * 3
    assert "0.0\u00a0%" in panel.coverage.said.text()


def test_points_of_equal_coverage_are_one_place_of_the_slider(place):
    panel, model = place
    model.thresholds = replace(THRESHOLDS, curve=(CURVE[0], CURVE[0], *CURVE))
    panel.coverage._on_model()
    assert panel.coverage.slider.maximum() == 2


def test_a_model_without_thresholds_leaves_the_slider_still(place):
    panel, model = place
    model.thresholds = None
    panel.coverage._on_model()
    assert not panel.coverage.slider.isEnabled()
    assert "always" in panel.coverage.said.text()
    assert judge(model.rows.rows[2], None, CLASSES, 0.5).verdict == CLASSES[0]


def test_every_one_of_the_likeliest_classes_has_its_map(place):
    panel, _ = place
    which = panel.detail.which
    assert [which.itemText(at) for at in range(which.count())] == [
        "Early blight of tomato", "Healthy tomato leaf", "Late blight of tomato", "Diseased area",
        "The photo alone"]  # fmt: skip
    for at, name in ((3, "Diseased area"), (4, "The photo alone")):
        which.setCurrentIndex(at)
        panel.table.selectRow(at - 2)
        panel._show_selected()
        assert which.currentText() == name, "stays for the next photo"
    assert panel.detail.photo._map.isNull()


def test_a_photo_opens_large_by_double_click_and_by_the_keyboard(place, qtbot):
    panel, model = place
    panel.table.selectRow(1)
    qtbot.mouseDClick(panel.detail.photo, Qt.MouseButton.LeftButton)
    qtbot.keyClick(panel.table, Qt.Key.Key_Return)
    shown = panel.findChildren(PhotoDialog)
    assert [dialog.windowTitle() for dialog in shown] == ["Early blight of tomato"] * 2
    for dialog in shown:
        dialog.reject()


@pytest.mark.parametrize("sorted_by", [-1, 1])
def test_a_photo_that_is_brought_is_the_one_shown(place, qtbot, sorted_by):
    panel, model = place
    panel.table.sortByColumn(sorted_by, Qt.SortOrder.AscendingOrder)
    panel.table.selectRow(1)
    model._add(["/photos/new.jpg", "/photos/other.jpg"])
    qtbot.waitUntil(lambda: panel.table.currentIndex().data(ROW).path == "/photos/new.jpg")
    qtbot.waitUntil(lambda: panel.detail.shown.path == "/photos/new.jpg")
    panel.table.selectRow(0)
    model.rows.replace(0, model.rows.rows[0])
    qtbot.wait(50)
    assert panel.table.currentIndex().row() == 0, "what is chosen afterwards stays"


def test_it_is_said_on_which_photos_the_slider_was_measured(place):
    panel, _ = place
    panel.coverage.slider.setValue(1)
    assert panel.coverage.said.text().startswith("Of its validation photos it answers 90\u00a0%")
    assert "left every photo" in panel.coverage.slider.toolTip()


def test_how_much_of_the_evidence_lies_off_the_leaf_is_always_said_and_once(place):
    panel, model = place
    assert panel.detail.evidence.text().startswith("38\u00a0% of what speaks for this answer")
    known = model.rows.rows[0]
    doubted = "80 % of what speaks for this answer lies off the leaf; do not trust it."
    panel.detail.show_result(replace(known, off_leaf=0.8, notes=(doubted,)))
    assert not panel.detail.evidence.text()
    assert "do not trust" in panel.detail.doubt.text()
    panel.detail.show_result(replace(known, off_leaf=None))
    assert not panel.detail.evidence.text()


def test_a_brush_stroke_changes_the_percentage_is_kept_and_can_be_taken_back(place, qtbot, tmp_path, home):
    panel, model = place
    panel.detail.correct.click()
    dialog = panel.findChild(BrushDialog)
    qtbot.waitUntil(lambda: dialog.canvas.width() > 200 and dialog.isActiveWindow())
    middle = dialog.canvas.rect().center()
    QTest.mousePress(dialog.canvas, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, middle)
    QTest.mouseRelease(dialog.canvas, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, middle)
    once = dialog.area.severity.percent
    assert once > 0
    assert dialog.figure.text().startswith(f"{once:.1f}")
    QTest.mouseClick(dialog.canvas, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, middle + QPoint(60, 0))
    assert dialog.area.severity.percent > once
    QTest.keyClick(dialog, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert dialog.area.severity.percent == once
    dialog._on_keep()

    assert model.rows.rows[0].shown_percent == once
    assert "by hand" in panel.detail.notes.text()
    assert len(list((home / "masks").iterdir())) == 1
    write_csv(tmp_path / "out.csv", model.rows.rows)
    assert f"{once:.2f},{dialog.area.severity.grade},yes," in (tmp_path / "out.csv").read_text()
    write_html(tmp_path / "out.html", model.rows.rows)
    assert "Corrected by hand" in (tmp_path / "out.html").read_text()

    model.correct(model.rows.rows[0], None)
    assert model.rows.rows[0].mask is None
    assert not list((home / "masks").iterdir())


def test_a_quick_hand_leaves_no_gap(place, qtbot):
    panel, _ = place
    panel.detail.correct.click()
    canvas = panel.findChild(BrushDialog).canvas
    qtbot.waitUntil(lambda: canvas._photo.place().width() > 200)
    touched = []
    canvas.touched.connect(lambda y, x: touched.append((y, x)))
    side = canvas._photo.place().width()
    start = canvas._photo.place().topLeft()
    canvas._touch_along(start, start + QPoint(round(side), round(side)))
    way = np.array([(0, 0), *touched])
    assert np.allclose(way[-1], 1, atol=0.02)
    assert np.hypot(*np.diff(way, axis=0).T).max() <= canvas.radius


def test_a_correction_belongs_to_the_photo_and_not_to_its_name(place):
    panel, model = place
    again = read_result(Result(3, "/elsewhere/copy.png"), answer(0.9, "0"))
    model.rows.append([again])
    model.correct(model.rows.rows[0], Mask(np.full((64, 64), LEAF, np.uint8), corrected=True))
    assert model.rows.rows[3].mask is not None
    assert model.rows.rows[1].mask is None


def test_cutting_out_can_be_switched_off_and_all_photos_wait_again(place):
    panel, model = place
    panel.coverage.crop.click()
    assert not model.crop
    assert model.progress == (3, 3)
    assert not any(row.done for row in model.rows.rows)
    assert panel.detail.photo._frame == (0.0, 0.0, 1.0, 1.0)


def test_what_was_cut_out_is_framed(place):
    panel, model = place
    leaf = np.ones((8, 8), bool)
    cut = {**answer(0.9), "mask": encode_mask(Severity(leaf, ~leaf), (0.25, 0.25, 0.75, 0.75))}
    panel.detail.show_result(read_result(model.rows.rows[0], cut))
    assert panel.detail.photo._frame == (0.25, 0.25, 0.75, 0.75)


def test_no_disease_is_described_where_the_photo_is_like_none_or_has_no_leaf(place):
    panel, model = place
    known = model.rows.rows[0]
    panel.detail.show_result(replace(known, sure=False, verdict=NOT_SURE, reason="It may be one or the other."))
    assert "Early blight" in panel.detail.card.toPlainText()
    panel.detail.show_result(replace(known, sure=False, verdict=NOT_SURE, reason=UNLIKE))
    assert "Early blight" not in panel.detail.card.toPlainText()
    assert "take the photo again" in panel.detail.card.toPlainText()
    bare = replace(known, sure=False, verdict=NO_LEAF, top=(("background/none", 0.99), *known.top[1:]))
    panel.detail.show_result(bare)
    assert "Not certain" not in panel.detail.card.toPlainText()


def test_photos_that_cannot_be_read_are_counted(place):
    panel, model = place
    model.rows.replace(2, replace(model.rows.rows[2], error="The file is empty."))
    panel._on_busy(0, 3)
    assert "1 not readable" in panel.state.text()


def test_cancelling_gives_up_what_waits_at_once_and_calls_it_so(place, tmp_path):
    panel, model = place
    panel.table.sortByColumn(1, Qt.SortOrder.AscendingOrder)
    told = []
    model.rows.dataChanged.connect(lambda *of: told.append(of))
    model._add([str(tmp_path / f"{at}.jpg") for at in range(100)])
    model.cancel()
    assert len(told) == 1, "one by one, 100,000 photos in a sorted table took 21 seconds"
    assert panel.state.text() == "103 photos, 100 cancelled"
    model.set_coverage(1.0)
    assert model.rows.rows[50].given_up
    assert not model.working
    write_csv(tmp_path / "table.csv", panel.shown_results())
    rows = (tmp_path / "table.csv").read_text().splitlines()
    assert len(rows) == 4, "photos without an answer are not listed"
