"""Killed at random moments and resumed, a run ends with the same bits; no moment leaves a file that cannot be read."""

import os
import random
import subprocess
import sys
import time

import pytest

from core.diagnosis.model_file import read_model
from core.diagnosis.model_identity import BEST, CONFIG
from core.training.checkpoint import load_checkpoint
from tests.helpers.commands import ROOT, SMALL, call_process, environment
from tests.helpers.runs import same_bits

OPTIONS = (*SMALL, "--epochs", "12", "--checkpoint-seconds", "0.1", "--ema-decay", "0.9")

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are sent otherwise there")


@pytest.fixture(scope="module")
def whole(photos, cache, tmp_path_factory):
    run = tmp_path_factory.mktemp("whole") / "run"
    begin = time.monotonic()
    done = call_process("core.train", "--data", photos, "--out", run, *OPTIONS, cache=cache)
    assert done.returncode == 0, done.stderr
    return run, time.monotonic() - begin


def arguments(run, photos):
    """Resume where there is a run, else start it."""
    return ("--resume", str(run)) if (run / CONFIG).exists() else ("--data", str(photos), "--out", str(run), *OPTIONS)


def kill_after(run, photos, cache, seconds):
    """Start or resume, kill -9 after so many seconds; True if it was still running."""
    command = [sys.executable, "-m", "core.train", *arguments(run, photos)]
    with subprocess.Popen(command, cwd=ROOT, env=environment(cache), stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True) as process:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            return True
        assert process.returncode == 0, process.stderr.read()
        return False


@pytest.mark.parametrize(("kills", "seed"), [
    (3, 1), pytest.param(50, 2, marks=[pytest.mark.slow, pytest.mark.timeout(1200)]),
])  # fmt: skip
def test_kills_change_no_bit(whole, photos, cache, tmp_path, kills, seed):
    want_run, duration = whole
    want, _ = load_checkpoint(want_run)
    moments = random.Random(seed)
    done = number = 0
    while done < kills:
        run = tmp_path / f"run{number}"
        number += 1
        begin, before = time.monotonic(), done
        while done < kills and kill_after(run, photos, cache, moments.uniform(0.3, duration)):
            done += 1
            load_checkpoint(run)
            if (run / BEST).exists():
                read_model(run)
        if done == before:
            duration = time.monotonic() - begin  # a whole run went faster than the first one
        ended = call_process("core.train", *arguments(run, photos), cache=cache)
        assert ended.returncode == 0, ended.stderr
        got, note = load_checkpoint(run)
        assert note == ""
        same_bits(want, got)
        best, kept = read_model(want_run).weights, read_model(run).weights
        assert all(best[name].tobytes() == kept[name].tobytes() for name in best)
