"""The training process as the window drives it: a request, then commands; events come back as lines."""

import json
import subprocess
import sys

from core.config import RunConfig, to_dict
from core.training.events import StepDone, from_line
from tests.helpers.commands import ROOT, environment


def test_it_saves_and_stops_when_the_window_is_gone(photos, cache, tmp_path):
    config = RunConfig(data=str(photos), out=str(tmp_path / "run"), model="cnn", image_size=16, batch_size=4,
                       epochs=2000, validation=0.2, test=0.2, device="cpu", threads=2, cache=str(cache))  # fmt: skip
    with subprocess.Popen([sys.executable, "-m", "core.training.worker"], cwd=ROOT, env=environment(cache), text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdin.write(json.dumps({"config": to_dict(config), "resume": False, "overwrite": False}) + "\n")
        process.stdin.flush()
        assert any(isinstance(from_line(line), StepDone) for line in process.stdout)
        process.stdin.close()
        events = [from_line(line) for line in process.stdout]
    assert (process.returncode, events[-1].reason) == (3, "stopped")
