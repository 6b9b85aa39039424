"""Runs on a GPU: they go over from the CPU and back, and a killed one leaves nothing behind."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from core.training.events import EpochDone, StepDone
from tests.helpers.commands import ROOT
from tests.helpers.runs import last_weights, only, same_bits, train

pytestmark = pytest.mark.gpu

SLACK = 64 << 20
"""Bytes by which the driver's figure may differ afterwards."""


def test_a_run_goes_over_to_the_gpu_and_back(tiny):
    """SGD, which does not blow up what rounding differs by as Adam does; so slow that losses stay large."""
    options = {"epochs": 6, "optimizer": "sgd", "learning_rate": 1e-4, "dropout": 0.3, "average": 0.9}
    wanted = [event.loss for event in only(train(tiny("whole", **options)), StepDone)]
    found = []
    for device, epochs in (("cpu", 3), ("cuda", 2), ("cpu", None)):
        config = tiny("parts", device=device, **options)
        events = train(config, stop_after=epochs, pick=EpochDone, resume=bool(found))
        found += [event.loss for event in only(events, StepDone)]
    assert len(found) == len(wanted)
    assert min(wanted) > 0.01, "nothing is left to compare"
    np.testing.assert_allclose(found, wanted, rtol=1e-3)


@pytest.mark.parametrize("stream", [False, True])
def test_steps_that_start_before_the_last_is_read_compute_the_same_bits(tiny, stream):
    options = {"device": "cuda", "epochs": 4, "dropout": 0.3, "stream_photos": stream}
    ahead, waited_for = tiny("ahead", **options), tiny("waited for", time_every=10**6, **options)
    losses = [[event.loss for event in only(train(config), StepDone)] for config in (ahead, waited_for)]
    assert losses[0] == losses[1]
    same_bits(last_weights(ahead), last_weights(waited_for))


@pytest.mark.skipif(os.name == "nt", reason="the driver of Windows shares memory otherwise")
def test_a_killed_run_leaves_no_memory_behind(tiny, tmp_path):
    from core.gpu.driver.device import open_device

    config, device = tiny(), open_device()
    free, _ = device.memory()
    command = [sys.executable, "-m", "core.train", "--data", config.data, "--out", str(tmp_path / "killed"), "--model",
               "squeezenet1_0", "--image-size", "224", "--batch-size", "4", "--epochs", "1000", "--device", "cuda",
               "--precision", "mixed", "--cache", config.cache]  # fmt: skip
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    events = tmp_path / "killed" / "events.jsonl"
    end = time.monotonic() + 120
    while not (events.exists() and "StepDone" in events.read_text(encoding="utf-8")):
        assert process.poll() is None, "the run ended by itself"
        assert time.monotonic() < end, "the run did not begin"
        time.sleep(0.2)
    during, _ = device.memory()
    process.kill()
    process.wait()
    assert free - during > SLACK
    end = time.monotonic() + 20
    while free - device.memory()[0] > SLACK and time.monotonic() < end:
        time.sleep(0.2)
    assert free - device.memory()[0] <= SLACK
