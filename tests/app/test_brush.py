"""The brush: strokes, undo, what a correction changes and where it is kept."""

from functools import partial

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtTest import QTest

from app.mask import BACKGROUND, DISEASED, LEAF, Mask, mask_path, read_mask, write_mask
from app.panels.diagnose.brush import BrushDialog
from app.processes.writing import write_csv, write_html
from tests.app.test_diagnose_place import model, panel  # noqa: F401 (fixtures)

pytestmark = pytest.mark.gui


@pytest.fixture
def dialog(panel, qtbot):  # noqa: F811
    panel.detail.correct.click()
    made = panel.findChild(BrushDialog)
    qtbot.waitUntil(lambda: made.canvas._photo.place().width() > 200 and made.isActiveWindow())
    return made


def test_the_brush_zooms_where_the_pointer_is_and_paints_there(dialog, qtbot, answers):
    touched = []
    dialog.canvas.touched.connect(lambda y, x: touched.append((y, x)))
    at = dialog.canvas.rect().center() + QPoint(40, 20)
    press = partial(QTest.mouseClick, dialog.canvas, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, at)
    press()
    side = dialog.photo.place().width()
    dialog.photo.zoom_to(4, at)
    press()
    assert dialog.photo.place().width() == pytest.approx(4 * side)
    assert np.allclose(touched[0], touched[1], atol=0.01)
    dialog.photo.pan(QPointF(0.1 * 4 * side, 0))
    press()
    assert touched[2][1] == pytest.approx(touched[1][1] - 0.1, abs=0.01)
    qtbot.keyClick(dialog, Qt.Key.Key_0)
    assert dialog.photo.zoom == 1
    answers.reply = None
    qtbot.keyClick(dialog, Qt.Key.Key_Escape)
    assert (answers, dialog.isVisible()) == (["Discard the edits? Unfinished work is lost."], True)
    del answers.reply  # yes
    dialog.reject()


def test_a_stroke_is_done_again_and_the_automatic_mask_comes_back(dialog):
    kept = []
    dialog.corrected.connect(kept.append)
    assert not dialog.redo.isEnabled()
    assert not dialog.automatic.isEnabled()
    dialog._on_began()
    dialog._on_touched(0.5, 0.5)
    once = dialog.area.severity.percent
    assert once > 0
    dialog.undo.click()
    assert dialog.area.severity.percent == 0
    dialog.redo.click()
    assert dialog.area.severity.percent == once
    dialog.automatic.click()
    assert dialog.area.severity.percent == 0
    dialog.undo.click()
    assert dialog.area.severity.percent == once
    dialog.automatic.click()
    dialog._on_keep()
    assert kept == [None]


def test_a_stroke_changes_the_percentage_is_kept_and_taken_back(panel, model, dialog, tmp_path, home):  # noqa: F811
    middle = dialog.canvas.rect().center()
    QTest.mouseClick(dialog.canvas, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, middle)
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
    assert f",{once:.4g},{dialog.area.severity.grade},,,,yes," in (tmp_path / "out.csv").read_text()
    write_html(tmp_path / "out.html", model.rows.rows)
    assert "Edited by hand" in (tmp_path / "out.html").read_text()

    model.correct(model.rows.rows[0], None)
    assert model.rows.rows[0].mask is None
    assert not list((home / "masks").iterdir())


def test_a_quick_hand_leaves_no_gap(dialog):
    canvas, touched = dialog.canvas, []
    canvas.touched.connect(lambda y, x: touched.append((y, x)))
    side = canvas._photo.place().width()
    start = canvas._photo.place().topLeft()
    canvas._touch_along(start, start + QPoint(round(side), round(side)))
    way = np.array([(0, 0), *touched])
    assert np.allclose(way[-1], 1, atol=0.02)
    assert np.hypot(*np.diff(way, axis=0).T).max() <= canvas.radius


def test_the_brush_paints_by_keys(dialog, qtbot):
    dialog.canvas.setFocus()
    before = dialog.area.severity.percent
    qtbot.keyPress(dialog.canvas, Qt.Key.Key_Space)
    once = dialog.area.severity.percent
    assert once > before
    for _ in range(3):
        qtbot.keyClick(dialog.canvas, Qt.Key.Key_Left)
    line = dialog.area.severity.percent
    assert line > once
    qtbot.keyRelease(dialog.canvas, Qt.Key.Key_Space)
    qtbot.keyClick(dialog.canvas, Qt.Key.Key_Up)
    assert dialog.area.severity.percent == line, "without the space bar it only moves"
    qtbot.keyClick(dialog, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert dialog.area.severity.percent == before, "a line is one stroke"


@pytest.fixture
def half():
    labels = np.zeros((100, 100), np.uint8)
    labels[:, :50] = LEAF
    return Mask(labels)


def test_painted_disease_is_a_share_of_the_leaf_also_beside_it_and_can_be_taken_away(half):
    painted = half.paint(0.5, 0.25, 0.1, DISEASED)
    assert painted.severity.percent == pytest.approx(100 * np.pi * 10**2 / 5000, rel=0.06)
    assert half.severity.percent == 0
    assert (painted.corrected, half.corrected) == (True, False)
    beside = half.paint(0.5, 0.8, 0.1, DISEASED)
    assert beside.severity.leaf.sum() > half.severity.leaf.sum()
    assert np.array_equal(beside.paint(0.5, 0.8, 0.12, BACKGROUND).labels, half.labels)
    assert half.paint(0.5, 0.25, 0.1, BACKGROUND).severity.leaf.sum() < half.severity.leaf.sum()


def test_a_brush_on_a_cut_out_leaf_lands_where_the_hand_is():
    mask = Mask(np.full((100, 100), LEAF, np.uint8), (0.5, 0.5, 1.0, 1.0))
    rows, columns = np.nonzero(mask.paint(0.75, 0.6, 0.05, DISEASED).labels == DISEASED)
    assert (rows.mean(), columns.mean()) == (pytest.approx(50, abs=1), pytest.approx(20, abs=1))
    assert np.ptp(rows) + 1 == pytest.approx(20, abs=2)
    assert not (mask.paint(0.1, 0.1, 0.05, DISEASED).labels == DISEASED).any()


def test_a_correction_is_kept_and_a_spoilt_file_is_none(half, tmp_path):
    path = mask_path(tmp_path, "ab" * 32)
    assert read_mask(path) is None
    painted = half.paint(0.5, 0.25, 0.1, DISEASED)
    write_mask(path, painted, "ab" * 32)
    back = read_mask(path)
    assert (np.array_equal(back.labels, painted.labels), back.corrected) == (True, True)
    path.write_bytes(path.read_bytes()[:-5])
    assert read_mask(path) is None
