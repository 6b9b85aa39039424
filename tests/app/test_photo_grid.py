"""The grid of photos: only what is seen costs anything."""

from unittest.mock import Mock

import numpy as np
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QAccessible, QImage

from app.project import Edits, apply_edits
from app.viewmodels.photos import PhotoModel
from app.viewmodels.thumbnails import Thumbnails, decode
from app.widgets.photo_grid import CELL, PhotoGrid
from core.data import photo_reader
from core.data.dataset import Dataset
from core.data.string_array import StringArray
from core.errors import LeafClinicError
from tests.helpers.window import write_folder

pytestmark = pytest.mark.gui

COUNT = 50_000


@pytest.fixture
def grid(qtbot, qapp, tmp_path, nothing_left):
    write_folder(tmp_path, {"a": 3})
    thumbnails = Thumbnails(None)
    made = PhotoGrid(thumbnails, "photos")
    made.photos, made.thumbnails = PhotoModel(), thumbnails
    made.setModel(made.photos)
    paths = StringArray.of([*(f"a/{n}.png" for n in range(COUNT - 1)), "\udcff.png"])  # most need not be there
    dataset = Dataset(str(tmp_path), paths, ("a", "b"), np.zeros(COUNT, np.int32), np.full(COUNT, -1, np.int8))
    made.photos.show(apply_edits(dataset, Edits()), np.arange(COUNT))
    made.resize(5 * CELL.width() + 30, 3 * CELL.height() + 10)
    qtbot.addWidget(made)
    made.show()
    qtbot.waitExposed(made)
    yield made
    thumbnails.close()


def test_five_photos_fill_a_line(grid):
    index, step = grid.photos.index(12), grid.gridSize().width()
    assert step > CELL.width(), "the rest of the width lies between the photos"
    assert grid.visualRect(index).topLeft() == QPoint(2 * step, 2 * CELL.height())
    assert grid.indexAt(grid.visualRect(index).center()).row() == 12
    assert QAccessible.queryAccessibleInterface(grid).childCount() == COUNT, "screen readers find each"
    assert not grid.indexAt(QPoint(5 * step + 5, 5)).isValid()
    for width in range(grid.width(), grid.width() + 5):
        grid.resize(width, grid.height())
        assert [grid.visualRect(grid.photos.index(row)).top() for row in (4, 5)] == [0, CELL.height()], width


def test_only_visible_photos_are_wished_for(grid, qtbot):
    asked = []
    grid.thumbnails.get = lambda path: asked.append(path)
    grid.verticalScrollBar().setValue(grid.verticalScrollBar().maximum())
    grid.viewport().repaint()
    assert 0 < len(set(asked)) <= 25
    assert any(path.endswith("\udcff.png") for path in asked)
    grid.photos.show(grid.photos.table, np.arange(COUNT - 1))
    assert grid.verticalScrollBar().value() == 0, "other photos are shown from the first"


def test_a_thumbnail_comes_and_a_file_that_is_no_photo_is_marked(grid, qtbot, monkeypatch):
    path = str(grid.photos.data(grid.photos.index(0), Qt.ItemDataRole.UserRole))
    for name, missing in ((path, False), (path.replace("0.png", "17.png"), True), ("no UTF-8 \udcff", True)):
        qtbot.waitUntil(lambda name=name: grid.thumbnails.get(name) is not None)
        assert grid.thumbnails.get(name).isNull() is missing
    wide = path.replace("0.png", "wide.png")
    QImage(40, 20, QImage.Format.Format_RGB888).save(wide)
    assert [decode(wide, 40, whole).height() for whole in (True, False)] == [20, 40], "whole, and its central square"
    monkeypatch.setattr(photo_reader, "read_file", Mock(side_effect=LeafClinicError("There is no memory.")))
    for name in ("x", "y", "z"):  # more than there are threads
        qtbot.waitUntil(lambda name=name: grid.thumbnails.get(name) is not None)
    grid.photos.show(None, np.arange(0))
    with qtbot.assertNotEmitted(grid.photos.dataChanged):  # of no row: Qt would warn
        grid.photos.show(None, np.arange(0))


def test_the_keyboard_moves_and_scrolls(grid, qtbot):
    grid.setCurrentIndex(grid.photos.index(4))
    qtbot.keyClick(grid, Qt.Key.Key_Right)  # to the next line
    qtbot.keyClick(grid, Qt.Key.Key_Left)
    assert grid.currentIndex().row() == 4
    for key in (Qt.Key.Key_Home, Qt.Key.Key_Right, Qt.Key.Key_Down):
        qtbot.keyClick(grid, key)
    assert grid.currentIndex().row() == 6
    qtbot.keyClick(grid, Qt.Key.Key_End)
    assert grid.currentIndex().row() == COUNT - 1
    assert grid.verticalScrollBar().value() > 0
    with qtbot.waitSignal(grid.activated) as activated:
        qtbot.keyClick(grid, Qt.Key.Key_Return)
    assert activated.args[0].row() == COUNT - 1


def test_a_rectangle_selects_the_cells_it_touches(grid, qtbot):
    first, last = (grid.visualRect(grid.photos.index(number)).center() for number in (0, 6))
    qtbot.mousePress(grid.viewport(), Qt.MouseButton.LeftButton, pos=first)
    for corner in (last, last + QPoint(1, 1)):
        qtbot.mouseMove(grid.viewport(), corner)
    qtbot.mouseRelease(grid.viewport(), Qt.MouseButton.LeftButton, pos=last)
    assert grid.selected_rows().tolist() == [0, 1, 5, 6]


def test_a_million_selected_photos_are_told_at_once(grid, monkeypatch):
    """Qt's own list makes an index of each: four seconds for a million."""
    monkeypatch.setattr(grid.selectionModel(), "selectedIndexes", lambda: pytest.fail("one by one"), raising=False)
    for change, rows in ((grid.selectAll, range(COUNT)), (grid.clearSelection, ())):
        change()
        assert grid.selected_rows().tolist() == list(rows)


def test_an_error_while_the_grid_is_drawn_ends_the_painter(grid, monkeypatch):
    """Its traceback keeps the painter; Qt ends with a segmentation fault if that still draws when drawing is over."""
    monkeypatch.setattr(grid, "_paint_cell", Mock(side_effect=ValueError("cannot be drawn")))
    with pytest.raises(ValueError, match="cannot be drawn"):
        grid.viewport().repaint()
