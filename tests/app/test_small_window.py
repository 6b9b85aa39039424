"""At 1024 x 640, which is also 1280 x 720 at 125 %, what matters is in sight, in both languages."""

from dataclasses import replace
from itertools import combinations

import pytest
from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtWidgets import QAbstractButton, QLabel, QPushButton, QTabWidget, QWidget

from app.main_window import PAGES, first_size
from app.theme import current_theme
from app.viewmodels.result import PhotoResult, read_result
from app.viewmodels.runs import RunSummary, RunView
from app.widgets.layouts import Flow, PageArea
from app.widgets.parts import Dialog
from app.widgets.roofline import NAME_HEIGHT, TICK_HEIGHT, Point, Roof, Roofline, place_names, power_ticks
from core.device import KernelTime
from core.diagnosis.verdict import NOT_SURE, UNFAMILIAR
from core.training.events import EpochDone, RunEvaluated, RunFinished, RunStarted, StepDone
from tests.app.test_diagnose_place import CLASSES, THRESHOLDS, answer
from tests.helpers.window import write_folder

pytestmark = [pytest.mark.gui, pytest.mark.styled]


WAYS = ("forward", "backward_input", "backward_weight")
RUNNING = ("12 / 20", "0.302", "98.3 %", "104.7", "59 min")
"""Figures of a run."""


def in_sight(widget):
    """Whether all of a widget can be seen: no part of it is outside of what it lies in."""
    area, at = QRect(QPoint(0, 0), widget.size()), widget
    while at.parentWidget() is not None:
        area.translate(at.pos())
        at = at.parentWidget()
        if not at.rect().contains(area):
            return False
    return widget.isVisible()


def test_the_answer_and_its_correction_are_in_sight(language, program, qapp, qtbot, tmp_path):
    program.window.resize(1024, 640)
    program.diagnosis.ready, program.diagnosis.verdicts.thresholds = {"classes": CLASSES}, THRESHOLDS
    photo = next(write_folder(tmp_path / "photos", {"a": 1}).rglob("*.png"))
    photo = photo.rename(photo.with_name(f"{'long ' * 20}.png"))
    program.diagnosis.rows.append([read_result(PhotoResult(0, str(photo)), {**answer(0.9), "diseased": 45.0})])
    panel = program.window.go("diagnose")
    panel.coverage._on_model()
    panel._show_selected()
    qtbot.wait(100)
    for widget in (panel.detail.correct, panel.detail.notes, panel.detail.verdict, panel.detail.bars,
                   panel.detail.which, panel.table):  # fmt: skip
        assert in_sight(widget), widget
    heights = set()
    for change in ({}, {"verdict": NOT_SURE, "reason": UNFAMILIAR}, {"error": "It is empty."}, {"diseased": 45.0}):
        panel.detail.show_result(replace(program.diagnosis.rows.rows[0], **change))
        qtbot.wait(20)
        heights.add(panel.detail.height())
        if "error" not in change:
            assert panel.detail.correct.width() == panel.detail.correct.sizeHint().width()
    assert len(heights) == 1, "the table would jump from photo to photo"
    program.window.resize(900, 640)
    panel.detail.plant.setText("Plant " + "x" * 60)
    panel.detail.plant.show()
    qtbot.wait(100)
    texts = panel.detail.plant.parentWidget()
    assert texts.width() <= texts.parentWidget().width(), "a long name widens the answer beyond its place"
    assert panel.width() <= panel.parentWidget().parentWidget().width(), "the page scrolls sideways"
    assert panel.table.columnWidth(0) >= 100
    assert panel.table.columnWidth(1) >= panel.table.sizeHintForColumn(1), "the diagnosis is cut"
    panel.detail.setMinimumHeight(500)  # as with a large font
    qtbot.waitUntil(lambda: panel.coverage.y() > panel.detail.geometry().bottom() > 400, timeout=2000)
    panel.plants.setCurrentIndex(1)
    qtbot.waitUntil(lambda: panel.table.columnWidth(5) >= panel.table.sizeHintForColumn(5) > 200)


def test_names_are_read_in_the_narrowest_table(start, qtbot):
    window = start().window
    window.resize(1024, 640)
    train = window.go("train")
    train.tabs.setCurrentWidget(train.kernels)
    train.kernels.show_times([KernelTime("features.1.conv.0.0", "backward_weight", "tiled", 100.0, 1, 1, 1.0)])
    qtbot.wait(50)
    train.tabs.setCurrentWidget(train.runs)
    train.runs._stack.setCurrentIndex(1)
    train.runs.model.show_rows([RunSummary("/r", "20261125-013118-leaves", "mobile", 2, 9, "a", 0.9, 0.9, False, "")])
    qtbot.wait(100)
    assert train.kernels.table.columnWidth(0) >= 90
    assert train.kernels.roofline.caption.textFormat() is Qt.TextFormat.RichText, "shown as the source of its HTML"
    train.confusion.model.show_matrix(("a" * 90 + "1", "a" * 90 + "2"), ((1, 0), (0, 1)))
    train.tabs.setCurrentWidget(train.confusion)
    train.confusion._stack.setCurrentIndex(1)
    qtbot.wait(50)
    assert train.confusion.table.verticalHeader().width() < train.confusion.table.width() / 2
    names = [train.confusion.model.verticalHeaderItem(at).text() for at in (0, 1)]
    assert [(name[-2:], len(name) < 60) for name in names] == [("a1", True), ("a2", True)], "Qt would cut the ends"
    assert train.confusion.table.horizontalHeader().textElideMode() is Qt.TextElideMode.ElideNone, "it has two lines"
    assert train.runs.table.columnWidth(0) >= 140


@pytest.mark.parametrize("height", [150, 200, 280, 500])
def test_no_name_under_the_roof_covers_another(height, qapp, qtbot):
    chart = Roofline()
    qtbot.addWidget(chart)
    results = [Point(115.0, gflops, "#000000", 9, "", f"kernel {n}") for n, gflops in
               enumerate((0.5, 0.6, 0.61, 0.7, 1.2, 1.3, 4.0, 12.0, 13.0, 14.0, 28.0))]  # fmt: skip
    chart.show_points(results, [Roof(506.0, 11.0, "#000000")], "")  # the range ends just above 1,000
    chart.resize(330, height)
    chart.show()
    qtbot.wait(50)
    places = [at for at, _ in chart.names]
    room = chart.plot.getViewBox().height()
    assert all(b - a >= NAME_HEIGHT - 1 for a, b in zip(places, places[1:], strict=False)), places
    assert places[0] >= NAME_HEIGHT / 2 - 1
    assert places[-1] <= room - NAME_HEIGHT / 2 + 1
    said = ", ".join(text for _, text in chart.names)
    assert all(f"kernel {n}" in said for n in range(len(results)))
    ticks = chart.plot.getAxis("left")._tickLevels[0]
    assert len(ticks) * TICK_HEIGHT <= room + TICK_HEIGHT
    low, high = chart.plot.getViewBox().viewRange()[1]
    edges = [(at - low, high - at) for at, _ in ticks]
    assert min(map(min, edges)) * room / (high - low) >= TICK_HEIGHT / 2 - 0.1, "a label is cut"


def test_names_and_powers_stand_where_they_are_wanted_if_there_is_room():
    assert place_names([(50.0, "b"), (10.0, "a")], 100.0, 17.0) == [(10.0, "a"), (50.0, "b")]
    assert [at for at, _ in place_names([(99.0, "b"), (99.0, "a")], 100.0, 20.0)] == [70.0, 90.0]
    assert [text for _, text in place_names([(9.0, "slow"), (50.0, "b"), (52.0, "a")], 40.0, 20.0)] == ["slow", "a, b"]
    assert [p for p, _ in power_ticks(range(-3, 3), 200)] == [-3, -2, -1, 0, 1, 2]
    assert [text for _, text in power_ticks(range(-3, 3), 60)] == ["0.01", "1", "100"]


def overlaps(widget):
    """Pairs of shown widgets side by side in one parent of which one covers a part of the other."""
    found = []
    for parent in [widget, *widget.findChildren(QWidget)]:
        children = [w for w in parent.children() if isinstance(w, QWidget) and w.isVisible() and not w.isWindow()]
        if parent.layout() is not None and parent.isVisible():
            laid = [w for w in children if parent.layout().indexOf(w) >= 0]
            found += [(a, b) for a, b in combinations(laid, 2) if a.geometry().intersects(b.geometry())]
    return found


@pytest.mark.parametrize("size", [(900, 600), (1024, 640), (1280, 752)])
def test_a_message_covers_nothing_and_squeezes_nothing(language, size, program, qapp, qtbot, tmp_path):
    window = program.window
    window.resize(*size)
    program.diagnosis.ready, program.diagnosis.verdicts.thresholds = {"classes": CLASSES}, THRESHOLDS
    program.diagnosis.rows.append([read_result(PhotoResult(0, "/photos/a.jpg"), {**answer(0.9), "diseased": 45.0})])
    for place in ("dataset", "train", "diagnose"):
        panel = window.go(place)
        if place == "diagnose":
            panel.coverage._on_model()
            panel._show_selected()
        panel.notice.alarm("A message that is so long that it needs more than one line. " * 3, "x", "Resume", print)
        qtbot.wait(50)
        assert (window.width(), window.height()) == size
        assert not overlaps(panel), place
        if place == "diagnose":
            top = panel.coverage.mapTo(panel, QPoint(0, 0)).y()
            assert panel.detail.mapTo(panel, QPoint(0, panel.detail.height())).y() <= top
            assert panel.table.viewport().height() > panel.table.rowHeight(0), "only the header has room"


@pytest.fixture
def font(qapp):
    """`font(times)`: the user's font is so many times as large."""
    before = qapp.font()

    def change(times):
        large = qapp.font()
        large.setPointSizeF(times * before.pointSizeF())
        qapp.setFont(large)

    yield change
    qapp.setFont(before)


def test_all_texts_grow_with_the_users_font(start, font, qtbot):
    window = start().window
    heights = {w: w.fontMetrics().height() for w in window.findChildren(QLabel) if w.text()}
    font(1.5)
    qtbot.wait(50)
    grown = {w.text(): w.fontMetrics().height() / height for w, height in heights.items()}
    assert min(grown.values()) > 1.4, grown
    assert in_sight(window.findChild(QLabel, "brand"))
    assert Dialog(window, "", 500, 100).width() > 700
    setup = window.go("train").setup
    setup._switch.button(1).click()
    qtbot.wait(50)
    places = [field.place.geometry() for field in setup.form.fields.values() if field.place.isVisible()]
    assert max(place.right() for place in places) <= setup._scroll.viewport().width()
    setup.form.take_over({"weight_decay": "x"})
    setup.show_wrong()
    window.page("train").notice.alarm("It takes room.")
    qtbot.waitUntil(lambda: in_sight(setup.form.fields["weight_decay"].problem), timeout=2000)


def cut(panel) -> list[str]:
    """Texts of buttons and labels that are larger than their place."""
    shown = [w for kind in (QLabel, QAbstractButton) for w in panel.findChildren(kind) if w.isVisible() and w.text()]
    wraps = [w for w in shown if isinstance(w, QLabel) and w.wordWrap()]
    return [w.text() for w in wraps if w.height() < w.heightForWidth(w.width())] + [
        w.text() for w in shown if w not in wraps and w.width() < w.sizeHint().width() - 1]


@pytest.mark.parametrize("size", [1.0, 1.75])
def test_the_window_fits_small_screens_and_what_has_no_room_scrolls(size, language, program, font, qtbot):
    """960 x 540 is a screen of 1920 x 1080 at 200 %."""
    assert first_size(QSize(1280, 770)).height() <= 770 - 40
    assert first_size(QSize(1280, 770)).width() <= 1280
    window = program.window
    font(size)
    for place in PAGES:
        window.go(place)
    program.diagnosis.ready, program.diagnosis.verdicts.thresholds = {"classes": CLASSES}, THRESHOLDS
    program.diagnosis.rows.append([read_result(PhotoResult(0, "/photos/a.jpg"), {**answer(0.9), "diseased": 45.0})])
    window.page("diagnose").coverage._on_model()
    window.page("diagnose").rest.show()
    window.page("kernels").shape.addItem("a shape with many numbers " * 2)
    window.page("kernels").chart.show_points((), (), "Words of a caption of several lines. " * 4)
    for figure, text in zip(window.page("train").figures.values(), RUNNING, strict=True):
        figure.show_value(text)
    window.page("train").tabs.setCurrentIndex(1)
    window.page("train").kernels.show_times([KernelTime("stem", way, "tiled", 1234.5, 1, 1, 1.0) for way in WAYS])
    current_theme().set("dark")  # drops the sizes that widgets have kept
    window.resize(800, first_size(QSize(960, 510)).height())
    qtbot.wait(50)
    assert (window.width(), window.height()) <= (800, 510)
    area = window.findChild(PageArea)
    for place in PAGES:
        panel = window.go(place)
        qtbot.wait(50)
        assert panel.height() >= panel.minimumSizeHint().height(), place
        assert panel.width() <= area.viewport().width(), f"{place} needs no sideways scrolling"
        assert not cut(panel), place
        assert not overlaps(panel), place
        for tabs in panel.findChildren(QTabWidget):
            parts = [tabs.widget(at).minimumSizeHint() for at in range(tabs.count())]
            parts += [tabs.tabBar().sizeHint()] if (size, language) == (1.0, "en") else []  # else the names scroll
            assert max(part.width() for part in parts) <= tabs.width(), f"{place} cuts a name or a button"


def test_what_does_not_fit_beside_goes_below(qtbot):
    holder = QWidget()
    qtbot.addWidget(holder)
    made = [QPushButton("a button with a text") for _ in range(3)]
    flow = Flow(*made)
    holder.setLayout(flow)
    wide = made[0].sizeHint().width()
    holder.resize(2 * wide + 20, flow.heightForWidth(2 * wide + 20))
    holder.show()
    assert made[0].y() == made[1].y() < made[2].y()
    assert made[2].x() == made[0].x()
    assert all(button.width() == wide for button in made)
    made[0].hide()
    flow.activate()
    assert made[1].y() == made[2].y(), "what is hidden takes no room"
    assert flow.heightForWidth(10 * wide) == made[0].sizeHint().height()
    flow.removeWidget(made[2])
    assert flow.count() == 2
    made[1].setText("a text that is much longer than the one before, so that more room is needed")
    assert flow.minimumSize().width() > wide, "heights are remembered until something changes"


def test_no_text_is_cut_at_the_smallest_window(language, program, qtbot):
    window, train = program.window, program.window.go("train")
    window.resize(1024, 640)
    program.training.view = RunView()
    program.training.view.read([
        RunStarted("/run", "cnn", "cpu", ("a", "b"), 40, 10, 10, 18, 42, 0, 0, ()),
        *(StepDone(n, 0, 1.0 / n, 0.5, 0.001, 32, 0.1, 0.0) for n in range(1, 40)),
        EpochDone(17, 756, 0.159, 0.955, 0.144, 0.965, True, ((1, 0), (0, 1)), 3.0, 1234.5, 10**8),
        RunEvaluated("test", (("test", 144, 136),), 0.229, 0.25, 0.965, 0.958, 0.91, ("In words.",)),
        RunFinished("completed", 756, 17, 0.965, 0.944, "model", "report", 60.0),
    ])  # fmt: skip
    for tab in range(train.tabs.count()):
        train.tabs.setCurrentIndex(tab)
        train.redraw()
        qtbot.wait(20)
        assert not cut(window), train.tabs.tabText(tab)
        for plot in train.curves.plots.values() if tab == 0 else ():
            assert plot.plot.height() >= 90
