"""The Kernels place: the ladder of an op, proved, timed, with its source."""

import pytest
from PySide6.QtCore import Qt

from tests.helpers.window import PATIENCE

pytestmark = pytest.mark.gui


def test_a_ladder_is_run_and_read(program, qtbot):
    qtbot.waitUntil(program.window.isActiveWindow)
    qtbot.keyClick(program.window, Qt.Key.Key_4, Qt.KeyboardModifier.ControlModifier)
    panel = program.window.stack.currentWidget()
    qtbot.waitUntil(lambda: bool(program.benchmark.kernels), timeout=PATIENCE)
    panel.op.setCurrentIndex(panel.op.findData("relu"))
    assert {r.op for r in program.benchmark.rows.rows} == {"relu"}
    qtbot.mouseClick(panel.run, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: not program.benchmark.running, timeout=PATIENCE)
    rows = program.benchmark.rows.rows
    cpu = [r for r in rows if r.device == "cpu"]
    assert len(cpu) >= 2
    assert all(r.right and r.milliseconds > 0 for r in cpu)
    assert all(r.milliseconds or r.reason for r in rows)
    assert panel._bars.highest == max(r.gflops for r in rows)
    assert "GB/s" in panel.chart.caption.text()
    several = len({r.device for r in rows if r.milliseconds}) > 1
    assert all(("cpu" in text) == several for _, text in panel.chart.names), "one device need not be named at each"
    assert len(panel.chart.plot.plotItem.items) == 1 + 1 + len([r for r in rows if r.milliseconds])
    panel.table.selectRow(0)
    assert panel.place.text() == "core/ops/activation.py"
    assert "def " in panel.source.toPlainText()
    panel.shape.setCurrentIndex(1)
    assert not any(r.milliseconds for r in program.benchmark.rows.rows), "they were of another shape"


def test_a_ladder_can_be_cancelled(program, qtbot):
    panel = program.window.go("kernels")
    qtbot.waitUntil(lambda: bool(program.benchmark.kernels), timeout=PATIENCE)
    panel.shape.setCurrentIndex(1)
    qtbot.mouseClick(panel.run, Qt.MouseButton.LeftButton)
    assert (panel.stop.isVisible(), panel.op.isEnabled()) == (True, False)
    panel.plan.ask.click()
    qtbot.mouseClick(panel.stop, Qt.MouseButton.LeftButton)
    assert (program.benchmark.running, panel.notice.isVisible()) == (False, False)
    qtbot.waitSignal(program.benchmark.listed, timeout=PATIENCE).wait()
    assert panel.shape.currentIndex() == 1, "the same shape is chosen when the kernels are listed again"
    assert "No GPU is needed" in panel.plan.summary.text(), "what was asked for ended with the process"


def test_the_choices_of_a_whole_network_are_shown_with_costs_and_reasons(program, qtbot):
    pytest.importorskip("numba.cuda")
    panel = program.window.go("kernels")
    qtbot.waitUntil(lambda: bool(program.benchmark.kernels), timeout=PATIENCE)
    panel.tabs.setCurrentWidget(panel.plan)
    plan = panel.plan
    plan.network.setCurrentIndex(plan.network.findText("squeezenet1_1"))
    plan.gpu.setCurrentIndex(plan.gpu.findData("7.5"))
    qtbot.mouseClick(plan.ask, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: "choose the precision float32" in panel.notice.text.text(), timeout=PATIENCE)
    assert "No GPU is needed" in plan.summary.text(), "nothing is compared any more"
    plan.gpu.setCurrentIndex(plan.gpu.findData("8.6"))
    plan.training.setChecked(True)
    qtbot.mouseClick(plan.ask, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: bool(program.benchmark.explanation), timeout=PATIENCE)
    rows = plan.rows.rows
    chosen = [r for r in rows if r["chosen"]]
    assert {"forward", "backward_weight"} <= {r["direction"] for r in chosen}
    assert all(r["microseconds"] > 0 and not r["reason"] for r in chosen)
    assert "It runs only on compute capability 9.0." in {r["reason"] for r in rows}
    assert "µs" in plan.summary.text()
    plan.chosen.setChecked(True)
    assert plan.rows.rows == chosen
    assert (plan.ask.isEnabled(), panel.notice.isHidden()) == (True, True), "the mistake was mended"
