"""Runs of several ranks of which one is killed at a random moment, and which are resumed."""

import os
import random
import signal
import subprocess
import time

from core.diagnosis.model_identity import CONFIG
from core.training.checkpoint import LAST, load_checkpoint
from core.training.events import LOG, RunFinished, read_events
from tests.helpers.commands import SMALL, children_of
from tests.helpers.mpi import start
from tests.helpers.runs import same_bits

ENDED_SECONDS = 30
"""In which all ranks have to end after one was killed."""
AGAIN = 4
"""Times that a run is killed, at most, before it is left to finish."""
OPTIONS = (*SMALL, "--threads", "1", "--epochs", "40", "--checkpoint-seconds", "0.1", "--ema-decay", "0.9",
           "--leaf-tests", "no")  # fmt: skip


def begin(ranks, run, photos, cache):
    """A run, new or resumed, that has a checkpoint."""
    known = ("--resume", run) if (run / CONFIG).exists() else ("--data", photos, "--out", run, *OPTIONS)
    process = start(ranks, "-m", "core.train", *known, cache=cache)
    while process.poll() is None and not ((run / LAST).exists() and len(children_of(process.pid)) == ranks):
        time.sleep(0.02)
    return process


def finish(ranks, run, photos, cache):
    with begin(ranks, run, photos, cache) as process:
        begun = time.monotonic()
        said, errors = process.communicate(timeout=400)
    assert process.returncode == 0, said[-1000:] + errors[-3000:]
    return time.monotonic() - begun


def kill_and_resume(ranks, kills, photos, cache, folder, seed=7):
    """Kill a random rank so often, at random moments, and compare every finished run with one never killed.

    A run is killed after its first checkpoint, and again while it is resumed. Returns counts, and the seconds from a
    kill to the end of the last rank. Raises AssertionError.
    """
    duration = finish(ranks, folder / "whole", photos, cache)
    want, _ = load_checkpoint(folder / "whole")
    moments, ended, resumed, number = random.Random(seed), [], 0, 0
    while len(ended) < kills:
        run, limit = folder / f"run{number}", 0.7 * duration
        number += 1
        for _ in range(min(AGAIN, kills - len(ended))):
            resumed += (run / LAST).exists()
            begun = time.monotonic()
            with begin(ranks, run, photos, cache) as process:
                started = time.monotonic() - begun  # no time, where it is resumed
                try:
                    process.communicate(timeout=moments.uniform(0, limit))
                    break  # it was finished before
                except subprocess.TimeoutExpired:
                    limit += started
                    killed = moments.randrange(ranks)
                    if len(alive := children_of(process.pid)) < ranks:
                        break  # it ends at this moment
                    os.kill(alive[killed], signal.SIGKILL)
                    begun = time.monotonic()
                    _, errors = process.communicate(timeout=ENDED_SECONDS)
                if process.returncode == 0 and any(read_events(run / LOG, (RunFinished,))):
                    break  # the rank had ended at this moment
                assert process.returncode != 0
                named = f"process rank {killed} " in errors
                assert named or "PMIX ERROR" in errors, errors  # it was killed before Open MPI's launcher knew it
                ended.append(time.monotonic() - begun)
        finish(ranks, run, photos, cache)
        same_bits(want, load_checkpoint(run)[0])
    return {"ranks": ranks, "kills": len(ended), "runs": number, "resumed": resumed,
            "longest end, seconds": round(max(ended), 2)}  # fmt: skip
