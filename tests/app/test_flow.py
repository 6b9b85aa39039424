"""Texts stay whole in small windows: what does not fit beside goes below."""

import pytest
from PySide6.QtWidgets import QPushButton, QWidget

from app.viewmodels.runs import RunView
from app.widgets.layouts import Flow
from core.training.events import EpochDone, RunEvaluated, RunFinished, RunStarted, StepDone
from tests.app.test_small_window import cut

pytestmark = [pytest.mark.gui, pytest.mark.styled]


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
    for place in ("dataset", "diagnose", "kernels"):
        window.go(place)
        qtbot.wait(20)
        assert not cut(window), place
