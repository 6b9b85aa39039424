"""The state machine of training, against a stand-in of the training process."""

import json
import sys

import pytest

from app.viewmodels.process_model import ProcessModel, ProcessThread
from app.viewmodels.training import State, TrainingModel, describe_exit
from core.training.events import RunFinished, RunStarted, StepDone
from tests.helpers.window import FAKE_WORKER

pytestmark = pytest.mark.gui


@pytest.fixture
def run(qtbot, nothing_left, tmp_path):
    """`run(mode)`: a session that was started, with what it said in `seen` and `failures`."""
    sessions = []

    def make(mode):
        session = TrainingModel([sys.executable, str(FAKE_WORKER), mode])
        session.seen, session.failures, session.bundles = [], [], 0
        session.changed.connect(session.seen.extend)
        session.changed.connect(lambda _: setattr(session, "bundles", session.bundles + 1))
        session.failed.connect(lambda message, details: session.failures.append(message))
        session.start(json.dumps({"config": {"data": "", "out": str(tmp_path / "run")}}))
        sessions.append(session)
        return session

    yield make
    for session in sessions:
        session.close()
        qtbot.waitUntil(lambda s=session: s.state is State.IDLE)


def idle(session):
    return lambda: session.state is State.IDLE


def test_every_event_of_a_burst_and_no_line_of_a_library_arrives_in_order_and_in_few_bundles(run, qtbot):
    session = run("burst")
    qtbot.waitUntil(idle(session))
    assert [e.step for e in session.seen if isinstance(e, StepDone)] == list(range(1, 20_001))
    assert isinstance(session.seen[0], RunStarted)
    assert isinstance(session.seen[-1], RunFinished)
    assert session.bundles < 200
    assert not session.failures


@pytest.mark.parametrize("paused", [False, True])
def test_stop_saves_and_ends_the_run(run, qtbot, paused):
    session = run("calm")
    qtbot.waitUntil(lambda: len(session.seen) > 3)
    if paused:
        session.pause()
        with pytest.raises(RuntimeError, match="while paused"):
            session.start('{"config": {"data": ""}}')
    session.stop()
    assert session.state is State.STOPPING
    qtbot.waitUntil(idle(session))
    assert session.seen[-1].reason == "stopped"
    assert not session.failures


def test_a_failure_is_told_in_the_trainers_words(run, qtbot):
    session = run("fail")
    qtbot.waitUntil(lambda: bool(session.failures))
    assert session.failures[0] == "There is no room on the disk."
    assert session.resumable
    assert session.state is State.IDLE


@pytest.mark.parametrize(("when", "saved"), [("kill", True), ("kill early", False)])
def test_a_killed_process_is_told_in_words_and_can_be_resumed_from_a_checkpoint(run, qtbot, tmp_path, when, saved):
    session = run(when)
    qtbot.waitUntil(lambda: bool(session.failures))
    assert "killed" in session.failures[0]
    assert ("last checkpoint is saved" in session.failures[0]) == saved
    assert session.resumable == (str(tmp_path / "run") if saved else "")
    session.start(json.dumps({"config": {"data": "", "out": str(tmp_path / "run")}}))
    assert session.state is State.RUNNING


def test_a_command_that_does_not_exist_is_a_failure(qtbot, nothing_left):
    session = TrainingModel(["/no/such/program"])
    with qtbot.waitSignal(session.failed) as told:
        session.start('{"config": {"data": ""}}')
    assert "without a result" in told.args[0]
    assert "crashed (signal 11). There is no checkpoint yet" in describe_exit(-11, False)


def test_half_a_line_of_a_killed_process_is_dropped(qtbot, nothing_left):
    model = ProcessModel()
    with qtbot.waitSignal(model.ended):
        half = """import os; print('{"done', end="", flush=True); os.kill(os.getpid(), 9)"""
        model._launch(ProcessThread([sys.executable, "-c", half], json.loads, model), "")


def test_a_process_that_is_cancelled_before_it_runs_ends(qtbot, nothing_left):
    model = ProcessModel()
    model._read = lambda answer: None
    model._start_process("kernels", {"list": True})
    model.cancel()
    qtbot.waitUntil(lambda: not model.has_process, timeout=20_000)
