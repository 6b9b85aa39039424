"""Closing in every state, and failures: folders that vanish, a full disk, photos dropped meanwhile."""

import errno
import os
import shutil

import pytest
from PySide6.QtWidgets import QFileDialog

from app import run_commands
from app.viewmodels.model_list import shipped_model
from app.viewmodels.training import State
from core import storage
from tests.helpers.window import PATIENCE, drop

pytestmark = pytest.mark.gui


def small_run(program):
    """The settings of a run of tiny photos that would go on for long."""
    train = program.window.go("train")
    for name, value in {"start": "", "model": "mlp", "image_size": 16, "epochs": 100_000, "batch_size": 8}.items():
        train.setup.form.fields[name].set_value(value)
    return train


def ask_for_memory(program):
    program.window.go("train")
    program.memory._rest.timeout.emit()


def run_a_ladder(program):
    program.window.go("kernels")
    program.benchmark.run("relu", "forward", "56 x 56 x 64, batch 8")


def diagnose(program):
    photos = [program.document.table.dataset.path(at) for at in range(3)]
    program.photo_commands.use_model(shipped_model())
    program.photo_commands.diagnose(photos)


def examine(program):
    program.window.go("dataset")
    program.commands.open([program.document.source])


@pytest.mark.parametrize("state", [
    lambda program: program.window.actions_.open_demo.trigger(), ask_for_memory, run_a_ladder, examine, diagnose,
])  # fmt: skip
def test_the_window_closes_at_once_whatever_is_going_on_and_asks_if_photos_wait(opened, qtbot, state, answers):
    state(opened)
    qtbot.wait(150)
    opened.window.close()
    assert not opened.window.isVisible()
    assert answers == ["3 photos are not diagnosed yet. Unfinished work is lost."] * (state is diagnose)


def test_a_run_whose_photos_have_vanished_is_told_and_the_window_goes_on(opened, qtbot, tmp_path):
    shutil.rmtree(tmp_path / "photos")
    train = small_run(opened)
    opened.window.actions_.start.trigger()
    qtbot.waitUntil(lambda: opened.training.state is State.IDLE, timeout=PATIENCE)
    assert "photos" in train.notice.text.text()
    assert train.notice.property("role") == "alarm"
    assert opened.window.actions_.start.isEnabled()


def test_a_full_disk_is_told_and_hinders_nobody_from_closing(opened, qtbot, monkeypatch, tmp_path, answers):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    opened.document.exclude([0], True)
    monkeypatch.setattr(storage.os, "fsync", full)
    told = []
    opened.document.failed.connect(lambda text, details: told.append(text))
    opened.document.save()
    assert "No space left" in told[0]
    train = small_run(opened)
    opened.window.actions_.start.trigger()
    qtbot.waitUntil(lambda: "No space left" in train.notice.text.text())  # the manifest is written beside the window
    assert opened.training.state is State.IDLE
    (tmp_path / "taken").touch()  # a process writes results, so it meets another obstacle: a file for a folder
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(tmp_path / "taken" / "out.csv"), ""))
    place = opened.window.go("diagnose")
    drop(opened.window, ["/not/there.jpg"])  # one result to export
    opened.window.actions_.export_csv.trigger()
    qtbot.waitUntil(lambda: "could not be saved" in place.notice.text.text(), timeout=PATIENCE)
    opened.document.exclude([1], True)
    opened.window.close()
    opened.document.close()


def test_photos_dropped_while_it_trains_are_diagnosed_and_closing_saves_the_run(opened, qtbot, answers):
    photos = [opened.document.table.dataset.path(at) for at in (0, 5)]
    small_run(opened)
    opened.window.actions_.start.trigger()
    qtbot.waitUntil(lambda: opened.training.view.step > 5, timeout=PATIENCE)
    drop(opened.window, [*photos, "/not/there.jpg"])
    results = opened.diagnosis.rows
    qtbot.waitUntil(lambda: [r.done for r in results.rows] == [True] * 3, timeout=PATIENCE)
    rows = results.rows
    assert (bool(rows[0].top), len(rows[0].hash)) == (True, 64)  # by which corrections are kept
    assert rows[2].error
    assert opened.training.state is State.RUNNING
    opened.window.close()
    qtbot.waitUntil(lambda: not opened.window.isVisible(), timeout=PATIENCE)
    assert opened.training.view.finished.reason == "stopped"


def test_the_status_bar_looks_at_the_run_twice_a_second_at_most(opened, qtbot, monkeypatch):
    shown = []
    monkeypatch.setattr(opened.window.status, "show_run", lambda *given: shown.append(given))
    for _ in range(200):
        opened.training.changed.emit([])
    assert not shown
    qtbot.waitUntil(lambda: len(shown) == 1, timeout=4 * run_commands.STATUS_MS)
