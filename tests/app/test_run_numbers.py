"""One thing has one number in every pane of the Train place, and texts follow what the run does."""

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog

from app.panels.train.kernels import KernelTimesPane, peak_text, roof, timed
from app.viewmodels.runs import RunView
from app.viewmodels.training import State
from core.device import KernelTime
from core.training.events import EpochDone, Progress, RunEvaluated, RunFinished, RunStarted, StepDone

pytestmark = pytest.mark.gui

STARTED = RunStarted("/runs/a", "cnn", "cpu", ("healthy", "rust"), 20, 10, 9, 3, 2, 0, 2**20, ())
BEST = EpochDone(1, 4, 0.5, 0.8, 0.5, 0.9, True, ((5, 0), (1, 4)), 1.0, 20.0, 2**20)
LAST = EpochDone(2, 6, 0.4, 0.9, 0.6, 0.8, False, ((5, 0), (2, 3)), 1.0, 20.0, 2**20)
JUDGED = RunEvaluated("test", (("test", 9, 6),), None, None, None, None, None, ("6 of 9 test photos right.",))
END = RunFinished("completed", 6, 1, 0.9, 6 / 9, "/runs/a/best.safetensors", "", 3.0)


def step(number):
    return StepDone(number, (number - 1) // 2, 0.5, 0.5, 0.1, 10, 0.5, 0.0)


@pytest.fixture
def panel(start, qtbot):
    made = start().window.go("train")
    qtbot.wait(20)
    yield made
    made._model._set(State.IDLE)


@pytest.fixture
def model(panel):
    return panel._model


def shown(panel, name):
    return panel.figures[name].value.text()


def test_the_matrix_counts_the_epoch_of_the_best_validation_and_the_result_says_why_its_figure_is_another(panel, model):
    model.view.read([STARTED, *map(step, range(1, 7)), BEST, LAST])
    panel.tabs.setCurrentWidget(panel.confusion)
    panel.redraw()
    assert shown(panel, "best") == "90.0\u00a0%"
    assert panel.confusion.model.counts == BEST.confusion, "the model behind a cell's photos is that epoch's"
    assert "90.0\u00a0% (epoch 2)" in panel.confusion._title.text()
    other = RunView()
    for event, hidden in ((BEST, False), (replace(BEST, confusion=()), True)):  # several labels have no matrix
        other.read([replace(STARTED, classes=("c", "d")), event])
        panel.confusion.show_run(other)
        assert (panel.confusion.model.classes, panel.confusion._matrix.isHidden()) == (("c", "d"), hidden)
    model.view.read([replace(JUDGED, words=(JUDGED.words[0], "By place: lab photos 33.3 %.")), END])
    panel.tabs.setCurrentWidget(panel.outcome)
    panel.redraw()
    assert panel.outcome.headline.text() == JUDGED.words[0]
    assert panel.outcome.words.text().startswith("By place: ")
    assert "Validation accuracy after epoch 2, the best one: 90.0\u00a0%" in panel.outcome.words.text()


def test_no_time_is_said_to_be_left_while_the_run_finishes(panel, model):
    model._set(State.RUNNING)
    model.view.read([STARTED, *map(step, range(1, 6))])
    panel.redraw()
    assert shown(panel, "left") == "0 s" or shown(panel, "left") == "1 s"
    model.view.read([step(6), LAST, Progress("test", 1, 2)])
    panel.redraw()
    assert shown(panel, "left") == "soon"
    assert "test photos" in panel.stage.text()


def test_a_finished_stage_is_not_told_in_the_next_epoch():
    view = RunView()
    view.read([STARTED])
    assert view.seconds_left != view.seconds_left, "no step tells it yet"
    view.read([step(1), step(2), Progress("validation", 1, 1), BEST])
    assert view.progress is None
    view.read([Progress("validation", 1, 1), step(3)])
    assert view.progress is None


def test_a_new_run_shows_what_is_being_prepared_and_no_earlier_epoch(panel, model):
    model._set(State.RUNNING)
    model.view.read([Progress("cache", 3, 10)])
    panel.redraw()
    assert panel.stage.text() == "Decoding the photos once: 3 / 10"
    model._set(State.IDLE)
    model.view = RunView()
    model.view.read([STARTED, step(1)])
    panel.redraw()
    assert shown(panel, "epoch") == "0 / 3"
    model.view = RunView()
    panel.redraw()
    assert shown(panel, "epoch") == "–"


def test_the_photos_of_another_folder_are_not_taken_for_the_running_ones(panel, model):
    panel.setup.show_data("/photos/apples")
    model.dataset = "tomatoes"
    model._set(State.RUNNING)
    assert "Current training data: tomatoes" in panel.setup.data.text()
    assert "next training: apples" in panel.setup.data.text()
    model._set(State.IDLE)
    assert panel.setup.data.text() == "Photos: apples"


@pytest.mark.parametrize("kind", ["png", "svg", "csv"])
def test_exported_curves_are_named_and_replace_no_file(panel, model, tmp_path, monkeypatch, kind):
    model.view.read([STARTED, *map(step, range(1, 7)), BEST, LAST])
    panel.redraw()
    chosen = [tmp_path / f"a.{kind}", tmp_path / f"a.{kind}", tmp_path / "missing" / f"a.{kind}"]
    for at, said in enumerate(("a-loss", "a-loss-2", "could not be saved")):
        monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_, at=at: (str(chosen[at]), ""))
        panel.curves._on_export()
        assert said in panel.notice.text.text()
    assert len(list(tmp_path.glob(f"*.{kind}"))) == 6
    if kind == "svg":
        assert "validation" in (tmp_path / "a-loss.svg").read_text()


PEAK, BYTES = 2e9, 1e8
"""FLOP and bytes a millisecond of the pretended device: 2000 GFLOP/s and 100 GB/s."""


def kernel(layer, direction, milliseconds, flops, size):
    return KernelTime(layer, direction, "fast", milliseconds, flops, size, max(flops / PEAK, size / BYTES))


STEP = (
    kernel("conv", "forward", 2.0, 2_000_000_000, 1_000_000), kernel("relu", "forward", 0.5, 10_000_000, 40_000_000),
    kernel("conv", "backward_weight", 4.0, 4_000_000_000, 1_000_000), kernel("copy", "forward", 0.1, 0, 1_000_000),
)


def test_the_roof_is_the_peak_that_the_floors_were_counted_with():
    assert (roof(STEP), roof(())) == (pytest.approx((2000, 100)), (1.0, 1.0))


def test_every_kernel_that_computes_is_a_point_and_the_larger_the_longer_it_takes(qapp):
    pane = KernelTimesPane()
    pane.show_times(STEP)
    points = [p for item in pane.roofline.plot.plotItem.items if hasattr(item, "points") for p in item.points()]
    assert {p.data().tip.split(",")[0] for p in points} == {"conv", "relu"}
    by_time = sorted(points, key=lambda p: float(p.data().tip.splitlines()[1].split(" ms")[0]))
    assert [p.size() for p in by_time] == sorted(p.size() for p in points)
    assert "2,000 GFLOP/s, 100 GB/s" in pane.roofline.caption.text()
    assert pane._bars.highest == pytest.approx(4 / 6.6), "the bar of the longest fills its cell"


def test_what_lay_in_the_cache_is_told_so_and_not_as_more_than_all(qapp):
    pool = replace(STEP[1], layer="pool", milliseconds=0.3)  # its bytes would take 0.4 ms from memory
    border = KernelTime("photo", "forward", "border", 0.1, 0, 0, 0.0)
    pane = KernelTimesPane()
    pane.show_times((*STEP, pool, border))
    shown = {pane.model.rows[at].time.layer: pane.model.index(at, 6) for at in range(len(pane.model.rows))}
    assert shown["pool"].data() == "from cache"
    assert "processor's cache" in shown["pool"].data(Qt.ItemDataRole.ToolTipRole)
    assert shown["conv"].data() == "50\u00a0%"
    assert shown["photo"].data() == "", "no work is counted for it"
    assert "above the bandwidth line" in pane.roofline.caption.text()
    too_fast = replace(STEP[0], milliseconds=0.8)
    assert peak_text(timed((*STEP, too_fast))[-1]) == "125\u00a0%", "arithmetic has no cache: the peak is too low"


def test_copies_alone_have_no_roof(qapp):
    pane = KernelTimesPane()
    pane.show_times(STEP[-1:])
    assert pane.roofline.caption.text() == ""
