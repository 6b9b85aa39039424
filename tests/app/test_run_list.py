"""The runs on the disk: what they learned from, what they are called, and that they can be deleted."""

import json

import pytest
from PySide6.QtWidgets import QApplication, QInputDialog, QMessageBox

from app import paths
from app.panels.train.runs import RunsPane
from app.project import MANIFEST, Edits, dataset_name, write_edits
from app.theme import Theme
from app.viewmodels.runs import list_runs, rename_run
from app.viewmodels.training import State
from core.training.events import EpochDone, to_line

pytestmark = pytest.mark.gui


@pytest.fixture
def runs(home):
    """A folder of two runs, each of other photos."""
    place = paths.folder("runs")
    for name, data in (("one", "/photos/tomatoes"), ("two", "/photos/apples/manifest.csv")):
        (place / name).mkdir(parents=True)
        (place / name / "config.json").write_text(json.dumps({"model": "cnn", "epochs": 3, "data": data}))
        (place / name / "best.safetensors").touch()
    return place


def test_a_run_says_which_photos_it_learned_from(runs):
    assert {run.name: run.dataset for run in list_runs(runs)} == {"one": "tomatoes", "two": "apples"}


def test_photos_that_were_edited_keep_their_name(tmp_path):
    write_edits(tmp_path, "/photos/tomatoes", Edits())
    assert dataset_name(str(tmp_path / MANIFEST)) == "tomatoes"
    assert dataset_name(str(tmp_path / "other" / MANIFEST)) == "other"


def test_a_run_is_renamed_and_its_folder_is_not(runs):
    rename_run(runs / "one", " first try ")
    assert {run.name for run in list_runs(runs)} == {"first try", "two"}
    assert (runs / "one").is_dir()


def test_runs_are_renamed_and_deleted_in_their_list(runs, start, answers, monkeypatch):
    pane = start().window.go("train").runs
    table = pane.table
    names = lambda: [table.model().index(at, 0).data() for at in range(table.model().rowCount())]  # noqa: E731
    table.selectRow(names().index("one"))
    monkeypatch.setattr(QInputDialog, "getText", lambda *_, **__: ("my run", True))
    pane._rename.click()
    assert sorted(names()) == ["my run", "two"]
    table.selectRow(names().index("my run"))
    answers.reply = QMessageBox.StandardButton.Cancel
    pane._delete.click()
    assert (runs / "one").is_dir()
    answers.reply = QMessageBox.StandardButton.Yes
    pane._delete.click()
    assert names() == ["two"]
    assert not (runs / "one").exists()
    assert "my run" in answers[0]


@pytest.mark.parametrize("act", ["_resume", "_result", "_diagnose", "_over", "_rename", "_delete", "_show"])
def test_a_run_that_was_moved_by_hand_is_reported_and_leaves_the_list(runs, start, act):
    panel = start().window.go("train")
    pane = panel.runs
    pane.table.selectRow(0)
    gone = pane.selected_runs()[0].name
    (runs / gone).rename(runs.parent / "elsewhere")
    getattr(pane, act).setEnabled(True)
    getattr(pane, act).click()
    assert panel.notice.text.text() == f"The run {gone} was moved or deleted."
    assert [run.name for run in pane.model.rows] == [name for name in ("one", "two") if name != gone]


def test_the_list_follows_a_run_and_keeps_the_selection(runs, start, qtbot):
    program = start()
    panel, session = program.window.go("train"), program.training.session
    panel.tabs.setCurrentWidget(panel.runs)
    panel.runs.table.selectRow(1)
    chosen = panel.runs.selected_runs()[0].folder
    session._set(State.RUNNING)
    done = EpochDone(0, 5, 1.0, 0.4, 1.1, 0.5, True, ((1, 0), (0, 1)), 2.0, 9.0, 1000)
    for name in ("one", "two"):
        (runs / name / "events.jsonl").write_text(to_line(done) + "\n")
    session.events.emit([done])
    qtbot.waitUntil(lambda: panel.runs.selected_runs()[0].epochs_done == 1)
    assert panel.runs.selected_runs()[0].folder == chosen
    session._set(State.IDLE)


def test_the_active_run_is_neither_resumed_nor_deleted_nor_called_stopped(qtbot, runs):
    going = [""]
    pane = RunsPane(Theme(QApplication.instance()), lambda: runs, lambda: going[0])
    qtbot.addWidget(pane)
    table, state = pane.table, pane.model.columnCount() - 1
    row = next(at for at in range(2) if table.model().index(at, 0).data() == "one")
    assert table.model().index(row, state).data() == "can be resumed"
    table.selectRow(row)
    assert pane._resume.isEnabled()
    going[0] = str(runs / "one")
    pane._on_selection()
    assert table.model().index(row, state).data() == "running"
    assert not pane._resume.isEnabled()
    assert not pane._delete.isEnabled()
