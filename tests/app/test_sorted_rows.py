"""Tables: sorted by a click and searched, few rows at once and many beside the event loop."""

import pytest
from PySide6.QtCore import QPersistentModelIndex, Qt

from app.viewmodels.row_order import Column, Query, arrange
from app.viewmodels.rows_model import MANY, RowsModel
from app.widgets.table_view import Table

pytestmark = pytest.mark.gui

NAME = Column("name", lambda r: r[0], searched=lambda r: r[0])
COLUMNS = (NAME, Column("number", lambda r: f"{r[1]:.1f}", lambda r: r[1]))
ROWS = [("b", 2.0), ("Á", 1.0), ("a", 2.0), ("B2", 3.0)]
DOWN, UP = Qt.SortOrder.DescendingOrder, Qt.SortOrder.AscendingOrder


@pytest.fixture
def model(qapp):
    made = RowsModel(COLUMNS)
    made.show_rows(ROWS)
    yield made
    made.close()


def names(model):
    return [model.index(row, 0).data() for row in range(model.rowCount())]


@pytest.mark.parametrize(("query", "expected"), [
    (Query(), "b Á a B2"), (Query(0), "a b B2 Á"), (Query(0, descending=True), "Á B2 b a"),
    (Query(1), "Á b a B2"), (Query(1, descending=True), "B2 b a Á"), (Query(-1, text="B"), "b B2"),
    (Query(1, descending=True, text="b"), "B2 b"), (Query(-1, text="2.0"), ""),
])  # fmt: skip
def test_rows_stand_as_asked_and_equal_ones_as_they_came(query, expected):
    assert " ".join(ROWS[at][0] for at in arrange(ROWS, COLUMNS, query)) == expected


def test_long_texts_are_told_apart_where_they_begin():
    rows = [("y" * 100_000, 0.0), ("x" * 100_000, 0.0)]
    assert arrange(rows, COLUMNS, Query(0)).tolist() == [1, 0]
    assert arrange([("\udcff", 0.0), ("", 0.0)], COLUMNS, Query(0)).tolist() == [1, 0]


def test_what_is_selected_moves_with_its_row(model):
    held = QPersistentModelIndex(model.index(0, 1))
    model.sort(1, DOWN)
    assert names(model) == ["B2", "b", "a", "Á"]
    assert (held.row(), held.column(), held.data()) == (1, 1, "2.0")
    model.sort(-1)
    assert held.row() == 0


def test_heading_and_menu_sort_and_home_and_end_go_to_the_first_and_last_row(model, qtbot):
    view = Table(model, "rows")
    qtbot.addWidget(view)
    view.sortByColumn(1, DOWN)
    assert [model.headerData(at, Qt.Orientation.Horizontal) for at in (0, 1)] == ["name", "number ↓"]
    view.sortByColumn(0, UP)
    assert [model.headerData(at, Qt.Orientation.Horizontal) for at in (0, 1)] == ["name ↑", "number"]
    menu = view.actions()[0].menu()
    menu.aboutToShow.emit()
    menu.actions()[0].trigger()
    assert (names(model)[0], [entry.text() for entry in menu.actions()]) == ("Á", ["name", "number"]), "turned around"
    for key, row in ((Qt.Key.Key_End, 3), (Qt.Key.Key_Home, 0)):
        qtbot.keyClick(view, key)
        assert view.selectionModel().selectedRows() == [model.index(row, 0)]
    text = view.fontMetrics().horizontalAdvance("number")
    assert view.horizontalHeader().sectionSizeHint(1) < text + 45


def test_rows_that_come_and_change_find_their_place(model, qapp):
    model.sort(1)
    told = []
    model.dataChanged.connect(lambda first, last: told.append((first.row(), last.row())))
    model.replace(1, ("Á", 9.0))
    assert told == [(0, 0)]
    model.append([("c", 2.5)])
    qapp.processEvents()
    assert names(model) == ["b", "a", "c", "B2", "Á"]
    model.show_rows(ROWS[:2])
    assert names(model) == ["Á", "b"]
    model.sort(-1)
    model.append([("c", 2.5)])
    assert names(model) == ["b", "Á", "c"]


def test_the_current_row_stays_while_a_search_narrows_and_widens(model, qapp, qtbot):
    view = Table(model, "rows")
    qtbot.addWidget(view)
    view.selectRow(3)
    model.set_filter("b")
    assert view.currentIndex().data() == "B2"
    model.set_filter("nothing has this")
    assert not view.currentIndex().isValid()
    model.set_filter("")
    assert view.currentIndex().row() == 3
    model.set_filter("a")
    assert view.currentIndex().data() == "a", "where the current row has gone, the first takes its place"


def test_rows_that_come_while_many_are_arranged_are_not_forgotten(model, qtbot):
    model.show_rows([(str(n), float(-n)) for n in range(10 * MANY)])
    model.set_filter("2")
    with qtbot.waitSignal(model.rowsInserted, timeout=100):  # all are shown until it is known which ones pass
        model.append([("first", 1e9)])
    model.set_filter("")
    model.sort(1)
    model.append([("last", -1e9)])
    assert model.shown_rows()[0] == ("last", -1e9), "what is written to a file lacks none"
    qtbot.waitUntil(lambda: names(model)[0] == "last")
    model.show_rows([])
    assert model.rowCount() == 0
    model.show_rows([(str(n), float(-n)) for n in range(MANY + 1)])
    qtbot.waitUntil(lambda: model.place(0) == MANY)
    model.sort(0)
    model.show_rows(ROWS)  # those before are forgotten, also where their order was being looked for
    qtbot.waitUntil(lambda: names(model) == ["a", "b", "B2", "Á"])
    model.sort(1)
    model.close()


def test_a_click_on_a_heading_computes_only_what_is_measured_and_drawn(model, qtbot, monkeypatch):
    asked = list[int]()
    value = RowsModel.value
    monkeypatch.setattr(RowsModel, "value", lambda self, *at: asked.append(at[2]) or value(self, *at))
    model.show_rows([(f"{n % 7}", float(n)) for n in range(100)])
    view = Table(model, "rows")
    qtbot.addWidget(view)
    view.show()
    qtbot.waitExposed(view)
    asked.clear()
    view.sortByColumn(1, DOWN)
    view.repaint()
    texts = asked.count(Qt.ItemDataRole.DisplayRole)
    assert texts > 0
    assert len(asked) <= 2 * texts  # text and alignment; a view asks for nine roles


def test_new_rows_are_shown_at_once_below_many_sorted_ones(model, qtbot):
    model.show_rows([(f"{n % 7}", float(n)) for n in range(2 * MANY)])
    reset = list[bool]()
    model.sort(1, DOWN)
    qtbot.waitUntil(lambda: not model.arranging)
    model.modelReset.connect(lambda: reset.append(True))
    model.append([("new", float(MANY))])
    assert model.row_of(2 * MANY) == 2 * MANY  # the last of all
    held = QPersistentModelIndex(model.index(2 * MANY, 0))
    qtbot.waitUntil(lambda: not model.arranging)
    assert (held.row(), held.data()) == (MANY, "new")
    model.set_filter("3")
    qtbot.waitUntil(lambda: not model.arranging)
    before = model.rowCount()
    model.append([("4", 0.0), ("3", 0.0)])
    assert model.rowCount() == before  # whether the filter lets them pass is not known yet
    qtbot.waitUntil(lambda: model.rowCount() == before + 1)
    assert len(reset) == 2  # by the filter


def test_a_search_among_many_sorted_rows_computes_no_keys_again(qapp, qtbot):
    asked = list[float]()
    number = Column("number", COLUMNS[1].text, lambda r: asked.append(r[1]) or r[1])
    verdict = Column("verdict", lambda r: "scab", searched=lambda r: asked.append(r[1]) or "scab")
    model = RowsModel((COLUMNS[0], number, verdict))
    model.show_rows([(f"photo {n}", float(-n)) for n in range(2 * MANY)])
    model.remove({3999})
    model.sort(1)
    qtbot.waitUntil(lambda: not model.arranging)
    asked.clear()
    model.set_filter("photo 3")
    qtbot.waitUntil(lambda: not model.arranging)
    assert names(model)[:2] == ["photo 3998", "photo 3997"]
    assert len(asked) == 2 * MANY - model.rowCount() - 1, "verdicts of the rows without it in their names"
    model.restore({3999})
    qtbot.waitUntil(lambda: names(model)[0] == "photo 3999")
    model.replace(3, ("photo 3", -1e9))
    qtbot.waitUntil(lambda: names(model)[0] == "photo 3")
    model.close()


def test_a_stretched_column_shrinks_with_its_table_also_where_it_has_no_room_left(qtbot):
    model = RowsModel(3 * COLUMNS)
    model.show_rows(ROWS)
    view = Table(model, "rows")
    qtbot.addWidget(view)
    view.show()
    for width in (900, 200):
        view.resize(width, 300)
        qtbot.wait(20)
        room = view.viewport().width() - sum(view.columnWidth(at) for at in range(1, 6))
        assert view.columnWidth(0) == max(room, view.horizontalHeader().minimumSectionSize())
    assert room < 0
