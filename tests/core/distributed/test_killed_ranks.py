"""Ranks killed at random moments: all end, no file is damaged, and a resumed run has the bits of a whole one."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from core.training.checkpoint import load_checkpoint
from core.training.run_folder import CONFIG
from tests.helpers.commands import SMALL
from tests.helpers.mpi import MPIRUN, start
from tests.helpers.runs import same_bits

pytestmark = [pytest.mark.slow, pytest.mark.skipif(MPIRUN is None, reason="Open MPI is not installed")]

KILLS = 20
ENDED_SECONDS = 30
RANKS = 2
OPTIONS = (*SMALL, "--threads", "1", "--epochs", "40", "--checkpoint-seconds", "0.1", "--ema-decay", "0.9",
           "--no-leaf-tests")  # fmt: skip


def begin(run, photos, cache):
    """Resume where there is a run, else start it."""
    known = ("--resume", run) if (run / CONFIG).exists() else ("--data", photos, "--out", run, *OPTIONS)
    return start(RANKS, "-m", "core.train", *known, cache=cache)


def finish(run, photos, cache):
    with begin(run, photos, cache) as process:
        said, errors = process.communicate(timeout=200)
    assert process.returncode == 0, said[-1000:] + errors[-3000:]


def ranks_of(process):
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(pid) for pid in children.read_text().split()]


@pytest.mark.timeout(3000)
def test_killed_at_random_moments_and_resumed_is_the_same_as_never_killed(photos, cache, tmp_path):
    finish(tmp_path / "whole", photos, cache)  # kernels are compiled now
    begun = time.monotonic()
    finish(tmp_path / "again", photos, cache)
    duration = time.monotonic() - begun
    want, _ = load_checkpoint(tmp_path / "whole")
    same_bits(want, load_checkpoint(tmp_path / "again")[0])
    moments = random.Random(7)
    killed = resumed = number = 0
    while killed < KILLS:
        run = tmp_path / f"run{number}"
        number += 1
        for _ in range(3):
            resumed += load_checkpoint(run)[0] is not None if run.exists() else 0
            with begin(run, photos, cache) as process:
                try:
                    process.communicate(timeout=moments.uniform(0.3 * duration, duration))
                    break
                except subprocess.TimeoutExpired:
                    os.kill(moments.choice(ranks_of(process)), signal.SIGKILL)
                    process.communicate(timeout=ENDED_SECONDS)
                assert process.returncode != 0
            killed += 1
        finish(run, photos, cache) if (run / CONFIG).exists() else None
        if (run / CONFIG).exists():
            same_bits(want, load_checkpoint(run)[0])
    assert resumed > 0
