"""Runs of several ranks of which one is killed at a random moment, and which are resumed."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path

from core.training.checkpoint import LAST, load_checkpoint
from core.training.run_folder import CONFIG
from tests.helpers.commands import SMALL
from tests.helpers.mpi import start
from tests.helpers.runs import same_bits

ENDED_SECONDS = 30
"""In which all ranks have to end after one was killed."""
AGAIN = 3
"""Times that a run is killed, at most, before it is left to finish."""
OPTIONS = (*SMALL, "--threads", "1", "--epochs", "40", "--checkpoint-seconds", "0.1", "--ema-decay", "0.9",
           "--leaf-tests", "no")  # fmt: skip


def begin(ranks, run, photos, cache):
    """Resume where there is a run, else start it."""
    known = ("--resume", run) if (run / CONFIG).exists() else ("--data", photos, "--out", run, *OPTIONS)
    return start(ranks, "-m", "core.train", *known, cache=cache)


def finish(ranks, run, photos, cache):
    with begin(ranks, run, photos, cache) as process:
        said, errors = process.communicate(timeout=400)
    assert process.returncode == 0, said[-1000:] + errors[-3000:]


def ranks_of(process):
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(pid) for pid in children.read_text().split()]


def kill_and_resume(ranks, kills, photos, cache, folder, seed=7):
    """Kill a random rank so often, at random moments after the first checkpoint, and compare every finished run with
    one never killed.

    Returns counts, and the seconds from a kill to the end of the last rank. Raises AssertionError.
    """
    finish(ranks, folder / "compiled", photos, cache)
    begun = time.monotonic()
    finish(ranks, folder / "whole", photos, cache)
    duration = time.monotonic() - begun
    want, _ = load_checkpoint(folder / "whole")
    moments, ended, resumed, number = random.Random(seed), [], 0, 0
    while len(ended) < kills:
        run = folder / f"run{number}"
        number += 1
        for _ in range(min(AGAIN, kills - len(ended))):
            resumed += run.exists() and load_checkpoint(run)[0] is not None
            with begin(ranks, run, photos, cache) as process:
                while process.poll() is None and not ((run / LAST).exists() and len(ranks_of(process)) == ranks):
                    time.sleep(0.02)
                try:
                    process.communicate(timeout=moments.uniform(0, 0.7 * duration))
                    break  # it was finished before
                except subprocess.TimeoutExpired:
                    os.kill(moments.choice(ranks_of(process)), signal.SIGKILL)
                    begun = time.monotonic()
                    process.communicate(timeout=ENDED_SECONDS)
                assert process.returncode != 0
                ended.append(time.monotonic() - begun)
        finish(ranks, run, photos, cache)
        same_bits(want, load_checkpoint(run)[0])
    return {"ranks": ranks, "kills": len(ended), "runs": number, "resumed": resumed,
            "longest end, seconds": round(max(ended), 2)}  # fmt: skip
