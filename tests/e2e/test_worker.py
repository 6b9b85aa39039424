"""The training process as the window drives it: a request, then commands; events come back as lines."""

import json
import subprocess
import sys

from core.config import RunConfig, to_dict
from core.training.events import RunFinished, StepDone, from_line
from tests.helpers.commands import ROOT, environment


def start(cache, config, resume=False):
    process = subprocess.Popen([sys.executable, "-m", "core.training.worker"], cwd=ROOT, env=environment(cache),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdin.write(json.dumps({"config": to_dict(config), "resume": resume, "overwrite": False}) + "\n")
    process.stdin.flush()
    return process


def read_until_step(process, step):
    for line in process.stdout:
        event = from_line(line)
        if isinstance(event, StepDone) and event.step >= step:
            return


def test_it_stops_by_command_and_when_the_window_is_gone(photos, cache, tmp_path):
    config = RunConfig(data=str(photos), out=str(tmp_path / "run"), model="cnn", image_size=16, batch_size=4,
                       epochs=2000, validation=0.2, test=0.2, device="cpu", threads=2, cache=str(cache))  # fmt: skip
    with start(cache, config) as process:
        read_until_step(process, 3)
        process.stdin.write("pause\nresume\nstop\n")
        process.stdin.flush()
        events = [from_line(line) for line in process.stdout]
    assert (process.returncode, events[-1].reason) == (3, "stopped")
    with start(cache, config, resume=True) as process:
        read_until_step(process, 1)
        process.stdin.close()
        events = [from_line(line) for line in process.stdout]
    assert process.returncode == 3
    assert isinstance(events[-1], RunFinished)
