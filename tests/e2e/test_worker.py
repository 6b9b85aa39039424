"""The training process as the window drives it: a request, then commands; events come back as lines."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from core.config import RunConfig, to_dict
from core.training.events import RunFailed, RunFinished, StepDone, from_line
from tests.helpers.commands import ROOT, environment


@pytest.fixture
def request_line(photos, cache, tmp_path):
    def make(resume=False, **changes):
        config = RunConfig(
            data=str(photos), out=str(tmp_path / "run"), model="cnn", image_size=16, batch_size=4, epochs=2000,
            validation=0.2, test=0.2, device="cpu", threads=2, cache=str(cache),
        )
        return json.dumps({"config": to_dict(replace(config, **changes)), "resume": resume, "overwrite": False})

    return make


def start(cache, line):
    process = subprocess.Popen(
        [sys.executable, "-m", "core.training.worker"], cwd=ROOT, env=environment(cache), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return process


def read_until_step(process, step):
    for line in process.stdout:
        event = from_line(line)
        if isinstance(event, StepDone) and event.step >= step:
            return


def test_it_stops_by_command_and_when_the_window_is_gone(request_line, cache):
    with start(cache, request_line()) as process:
        read_until_step(process, 3)
        process.stdin.write("pause\nresume\nstop\n")
        process.stdin.flush()
        events = [from_line(line) for line in process.stdout]
    assert (process.returncode, events[-1].reason) == (3, "stopped")
    with start(cache, request_line(resume=True)) as process:
        read_until_step(process, 1)
        process.stdin.close()
        events = [from_line(line) for line in process.stdout]
    assert process.returncode == 3
    assert isinstance(events[-1], RunFinished)


def test_a_failure_comes_as_an_event_with_the_sentence(request_line, cache, tmp_path):
    with start(cache, request_line(data=str(tmp_path / "nowhere"))) as process:
        events = [from_line(line) for line in process.stdout]
    assert process.returncode == 2
    assert isinstance(events[-1], RunFailed)
    assert "does not exist" in events[-1].message
