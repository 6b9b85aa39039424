"""The history of a run as curves and figures, and the list of stored runs."""

import json
from dataclasses import replace
from hashlib import sha256
from threading import current_thread, main_thread
from unittest.mock import Mock

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QInputDialog, QMessageBox, QWidget

from app import paths
from app.panels.train.curves import CurvesPane
from app.panels.train.runs import RunsPane
from app.project import MANIFEST, Edits, dataset_name, write_edits
from app.viewmodels.runs import Curve, RunView, list_runs, read_run, rename_run
from app.viewmodels.training import State
from app.widgets.curve_plot import CurvePlot, rounded_range
from app.widgets.notice import Notice
from core.training import events
from core.training.events import LOG, EpochDone, RunFinished, RunStarted, StepDone, to_line
from core.training.run_folder import RunFolder

pytestmark = pytest.mark.gui

STARTED = RunStarted("/run", "cnn", "cpu", ("a", "b"), 40, 10, 10, 2, 10, 0, 0, ())


def steps(first, last, seconds=0.5):
    return [StepDone(n, (n - 1) // 10, 1 / n, 0.5, 0.01, 16, seconds, 0.0) for n in range(first, last + 1)]


def epoch(number, accuracy=0.8):
    return EpochDone(number, 10 * (number + 1), 0.4, 0.7, 0.5, accuracy, True, ((1, 0), (0, 1)), 6.0, 100.0, 0)


def test_curves_run_over_epochs_and_are_empty_before():
    view = RunView()
    view.read([STARTED, *steps(1, 20), epoch(0), epoch(1)])
    each, train, validation = view.curves("loss")
    assert (each.x[-1], each.y[3]) == (2.0, pytest.approx(1 / 4))
    assert (train.x.tolist(), validation.y.tolist()) == ([1.0, 2.0], [0.5, 0.5])
    assert view.curves("rate")[0].y[0] == pytest.approx(0.01)
    view = RunView()
    assert (view.step, np.isnan([view.seconds_left, view.best]).all()) == (0, True)
    assert all(len(curve.x) == 0 for curve in view.curves("accuracy"))


def test_speed_and_time_left_follow_the_recent_steps():
    view = RunView()
    view.read([STARTED, *steps(1, 10), epoch(0)])
    assert view.photos_per_second == pytest.approx(32)
    assert (view.seconds_left, view.best) == (pytest.approx(10 * 0.5 + 1.0), 0.8)


def test_a_resumed_run_forgets_what_came_after_its_checkpoint():
    view = RunView()
    view.read([STARTED, *steps(1, 14), epoch(0)])
    resumed = RunStarted("/run", "cnn", "cpu", ("a", "b"), 40, 10, 10, 2, 10, 10, 0, ())
    view.read([resumed, *steps(11, 12)])
    assert view.step == 12
    assert np.array_equal(view.curves("loss")[0].x, np.arange(1, 13) / 10)


def write_run(folder, *events, torn=""):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model": "mlp", "epochs": 2}))
    log(folder, *events)
    with (folder / LOG).open("a") as file:
        file.write(torn)


def log(folder, *events):
    run = RunFolder(folder)
    for event in events:
        run.log(event)
    run.release()


def test_runs_are_listed_with_what_they_reached_also_where_a_crash_tore_the_log(tmp_path):
    done = RunFinished("completed", 20, 1, 0.9, None, "/run/best.safetensors", "/run/other.exe", 1.0)
    write_run(tmp_path / "first", STARTED, epoch(0), epoch(1, 0.9), done)
    write_run(tmp_path / "second", STARTED, *steps(1, 5), epoch(0), torn='{"event": "Step')
    (tmp_path / "first" / "best.safetensors").touch()
    for file, text in (("metrics.csv", "memory_bytes\n1\n"), ("config.json", '{"epochs": []}')):
        write_run(tmp_path / file)
        (tmp_path / file / file).write_text(text)
    (tmp_path / "no run").mkdir()
    runs = {run.name: run for run in list_runs(tmp_path)}
    assert set(runs) == {"first", "second"}
    assert (runs["first"].accuracy, runs["first"].epochs_done, runs["first"].finished) == (0.9, 2, True)
    assert runs["first"].model == STARTED.model, "a run from a pretrained model has that one's network"
    assert (runs["second"].finished, runs["second"].model_path) == (False, "")
    assert (read_run(tmp_path / "second").step, list_runs(tmp_path / "nowhere")) == (5, [])
    end, report = read_run(tmp_path / "first").finished, str(tmp_path / "first" / "report.html")
    assert (end.model_path, end.report_path) == (runs["first"].model_path, report), "also of a run that was moved"


def test_every_plot_shows_the_whole_run_while_it_grows(qtbot, qapp):
    pane = CurvesPane(Notice())
    qtbot.addWidget(pane)
    pane.resize(900, 600)
    pane.show()
    view = RunView()
    view.read([STARTED])
    for number in (1, 2):
        view.read([*steps(10 * number - 9, 10 * number), epoch(number - 1)])
        for _ in pane.plots:
            pane.show_next(view)
        for plot in pane.plots.values():
            assert len(plot.curves[0].x) == 10 * number
            low, high = plot.plot.getViewBox().viewRange()[0]
            assert low <= 0 < number <= high < number + 0.2
    box = pane.plots["loss"].boxes["validation"]
    box.click()
    assert not pane.plots["loss"].is_shown("validation")
    assert all(plot.width() > 200 for plot in pane.plots.values())


def test_axes_seldom_change_and_always_hold_the_curves(qtbot, qapp):
    plot = CurvePlot("Loss")
    qtbot.addWidget(plot)
    ranges = []
    for end in range(1, 200):
        x = np.arange(1, end + 1, dtype=float)
        plot.show_curves([Curve("training", x, 2 / x), Curve("validation", x, 3 / x)])
        (left, right), (low, high) = plot.plot.getViewBox().viewRange()
        assert left <= 0 < end <= right <= max(1.3 * end, end + 0.5)
        assert low <= 2 / end < 3 <= high
        ranges.append((left, right, low, high))
    assert len(set(ranges)) < 40
    plot.boxes["validation"].click()
    assert plot.plot.getViewBox().viewRange()[1][1] < 3
    with qtbot.waitActive(plot):
        plot.show()
    plot.plot.setFocus()
    found = []
    for key in (Qt.Key.Key_Plus, Qt.Key.Key_Right, Qt.Key.Key_Down, Qt.Key.Key_0):
        qtbot.keyClick(plot.plot, key)
        found.append(plot.plot.getViewBox().viewRect().getRect())
    (near, right, down, whole) = found
    assert (right[2], down[2], 0.8 * whole[2]) == pytest.approx((near[2],) * 3)
    assert whole[0] < near[0] < right[0]
    assert down[1] < right[1]


def test_a_range_is_never_empty():
    for values in ([], [0.0], [float("nan"), float("inf")], [1e-3, 1e-3], [-5.0, -5.0], [0.0, 1.0]):
        low, high = rounded_range(np.array(values))
        assert low < high
        assert all(low <= v <= high for v in values if np.isfinite(v))
    assert rounded_range(np.array([0.0, 1.0])) == (0.0, 1.0)


@pytest.fixture
def runs(home, qtbot):
    qtbot.keyRelease(QWidget(), "a")  # else Ctrl, held since an earlier test, would deselect a selected row
    place = paths.folder("runs")
    for name, data in (("one", "/photos/tomatoes"), ("two", "/photos/apples/manifest.csv")):
        (place / name).mkdir(parents=True)
        (place / name / "config.json").write_text(json.dumps({"model": "cnn", "epochs": 3, "data": data}))
        (place / name / "best.safetensors").touch()
    return place


def test_the_cells_of_a_run_need_its_files_and_photos_also_edited_and_moved_ones(
    runs, opened, tmp_path, monkeypatch, qtbot
):
    assert {run.name: run.dataset for run in list_runs(runs)} == {"one": "tomatoes", "two": "apples"}
    write_edits(tmp_path, Edits(source="/photos/tomatoes"))
    assert dataset_name(str(tmp_path / MANIFEST)) == "tomatoes"
    assert dataset_name(str(tmp_path / "other" / MANIFEST)) == "other"
    (runs / "one" / "project.json").write_text("[" * 100_000)
    assert dataset_name(str(runs / "one" / MANIFEST)) == "one"
    ran = (replace(STARTED, folder=str(runs / "one"), classes=("c", "d")), epoch(0))
    (runs / "one" / LOG).write_text("".join(f"{to_line(event)}\n" for event in ran))
    panel = opened.window.go("train")
    read, threads = events.read_events, []
    monkeypatch.setattr(events, "read_events", lambda *given: threads.append(current_thread()) or read(*given))
    panel.runs.result_asked.emit(str(runs / "one"))
    qtbot.waitUntil(lambda: panel.tabs.currentWidget() is panel.outcome)
    assert main_thread() not in threads, "a long log takes a while"
    panel.tabs.setCurrentWidget(panel.confusion)
    assert tuple(panel.confusion.model.classes) == ("c", "d"), "the run whose result was asked for"
    split = runs / "one" / "split.csv"
    split.write_text("path,label,split,sha256\nhealthy/0.png,a,val,00\n")
    for data, source in (("/photos/apples", "/photos/apples"), (str(tmp_path / MANIFEST), "/photos/tomatoes")):
        (runs / "one" / "config.json").write_text(json.dumps({"data": data}))
        opened.run_commands.open_cell("a", "b")
        assert panel.notice.text.text() == f"Open {source}, or the folder that has its photos now."
    monkeypatch.setattr("app.panels.train.gallery.GalleryDialog", dialog := Mock())
    content = sha256((photo := tmp_path / "photos" / "healthy" / "0.png").read_bytes()).hexdigest()
    split.write_text(f"path,label,split,sha256\n/photos/tomatoes/healthy/0.png,a,val,{content}\n../gone.png,a,val,0\n")
    opened.run_commands.open_cell("a", "b")
    assert dialog.call_args.args[-3] == [str(photo)]
    assert "1 photo of this class is not in" in dialog.return_value.notice.alarm.call_args.args[0]
    split.unlink()
    for data, lost in ((opened.document.source, "split.csv"), (None, "config.json")):
        (runs / "one" / "config.json").write_text(json.dumps({"data": data}))
        opened.run_commands.open_cell("a", "b")
        assert f"{lost} cannot be read" in panel.notice.text.text()


def test_runs_are_renamed_and_deleted_in_their_list(runs, start, answers, monkeypatch):
    monkeypatch.setattr("app.panels.train.runs.list_runs", read := Mock(wraps=list_runs))
    panel = start().window.go("train")
    pane, table = panel.runs, panel.runs.table
    panel.tabs.setCurrentWidget(pane)
    assert read.call_count == 1, "when it is shown"
    names = lambda: [table.model().index(at, 0).data() for at in range(table.model().rowCount())]  # noqa: E731
    table.selectRow(names().index("one"))
    monkeypatch.setattr(QInputDialog, "getText", lambda *_, **__: (" my run ", True))
    pane._rename.click()
    assert sorted(names()) == ["my run", "two"]
    table.selectRow(names().index("my run"))
    answers.reply = QMessageBox.StandardButton.Cancel
    pane._delete.click()
    assert (runs / "one").is_dir()
    answers.reply, elsewhere = QMessageBox.StandardButton.Yes, RunFolder(runs / "one")
    pane._delete.click()
    assert "Another process is training" in panel.notice.text.text()
    elsewhere.release()
    pane._delete.click()
    assert (names(), (runs / "one").exists(), "my run" in answers[0]) == (["two"], False, True)
    write_run(runs / "of another program")
    panel.tabs.setCurrentWidget(panel.curves)
    panel.tabs.setCurrentWidget(pane)
    assert len(names()) == 2


@pytest.mark.parametrize("act", ["_resume", "_result", "_diagnose", "_over", "_rename", "_delete", "_show"])
def test_a_run_that_was_moved_by_hand_is_reported_and_leaves_the_list(runs, start, act):
    panel = start().window.go("train")
    pane = panel.runs
    panel.tabs.setCurrentWidget(pane)
    pane.table.selectRow(0)
    gone = pane.selected_runs()[0].name
    (runs / gone).rename(runs.parent / "elsewhere")
    getattr(pane, act).setEnabled(True)
    getattr(pane, act).click()
    assert panel.notice.text.text() == f"The run {gone} was moved or deleted."
    assert [run.name for run in pane.model.rows] == [name for name in ("one", "two") if name != gone]


def test_the_list_follows_a_run_and_keeps_the_selection(runs, program, qtbot):
    panel, session = program.window.go("train"), program.training
    panel.tabs.setCurrentWidget(panel.runs)
    assert panel.runs.selected_runs() == panel.runs.model.rows[:1], "the newest"
    panel.runs.table.selectRow(1)
    chosen = panel.runs.selected_runs()[0].folder
    session._set(State.RUNNING)
    done = EpochDone(0, 5, 1.0, 0.4, 1.1, 0.5, True, ((1, 0), (0, 1)), 2.0, 9.0, 1000)
    for name in ("one", "two"):
        log(runs / name, done)
    session._read_answers([done])
    qtbot.waitUntil(lambda: panel.runs.selected_runs()[0].epochs_done == 1)
    assert panel.runs.selected_runs()[0].folder == chosen
    session._set(State.IDLE)
    session.folder = chosen
    panel._on_lay_over(panel.runs.model.rows)
    qtbot.waitUntil(lambda: panel.tabs.currentWidget() is panel.curves)
    (name,) = panel.curves.compared  # no run is compared with itself
    session.view.read([STARTED])
    panel.redraw()
    boxes = [plot.boxes[name] for plot in panel.curves.plots.values()]
    first, *others = (box.icon().pixmap(box.iconSize()).toImage() for box in boxes)
    assert (first.isNull(), others) == (False, [first, first]), "its colour, line and marker"
    session.folder, session.view.started = "", replace(STARTED, folder=str(runs / "one"))
    for name in ("one", "two"):
        rename_run(runs / name, "same")
    session._set(State.RUNNING)
    assert program.window.status.run.text() == "same"
    session._set(State.IDLE)
    panel._on_lay_over(list_runs(runs))
    qtbot.waitUntil(lambda: set(panel.curves.compared) == {"one (same)", "two (same)"})


def test_the_active_run_is_neither_resumed_nor_deleted_nor_called_stopped(qtbot, runs):
    going = [""]
    pane = RunsPane(lambda: runs, lambda: going[0])
    qtbot.addWidget(pane)
    pane.refresh()
    table, state = pane.table, pane.model.columnCount() - 2
    row = next(at for at in range(2) if table.model().index(at, 0).data() == "one")
    assert table.model().index(row, state).data() == "can be resumed"
    table.selectRow(row)
    assert pane._resume.isEnabled()
    going[0] = str(runs / "one")
    pane._on_selection()
    assert table.model().index(row, state).data() == "running"
    assert (pane._resume.isEnabled(), pane._delete.isEnabled()) == (False, False)
