"""Ranks killed at random moments: all end, no file is damaged, and a resumed run has the bits of a whole one."""

import os
import re
import signal
import time

import pytest

from core.training.checkpoint import LAST
from tests.helpers.commands import children_of
from tests.helpers.killed_ranks import ENDED_SECONDS, OPTIONS, kill_and_resume
from tests.helpers.mpi import MPIRUN, start

pytestmark = pytest.mark.skipif(MPIRUN is None, reason="Open MPI is not installed")


@pytest.mark.parametrize(("ranks", "kills"), [
    pytest.param(2, 2, marks=pytest.mark.thorough),
    *(pytest.param(ranks, 20, marks=[pytest.mark.slow, pytest.mark.timeout(1800)]) for ranks in (2, 3)),
])  # fmt: skip
def test_killed_at_random_moments_and_resumed_is_the_same_as_never_killed(ranks, kills, photos, cache, tmp_path):
    found = kill_and_resume(ranks, kills, photos, cache, tmp_path)
    assert found["kills"] == kills
    assert found["resumed"] >= kills // 2


FULL = """
import os, resource, sys
from core.train import main
from mpi4py import MPI
if os.environ["OMPI_COMM_WORLD_RANK"] == "0":
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18,) * 2)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.thorough
def test_a_full_disk_on_one_machine_ends_all_with_one_sentence(photos, cache, tmp_path):
    with start(2, "-c", FULL, "--data", photos, "--out", tmp_path / "run", *OPTIONS, cache=cache) as process:
        said, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    assert (said + errors).count("could not be saved") == 1, said + errors
    assert re.search(r"Rank 0: .*\.safetensors could not be saved: File too large\.", said + errors), said + errors


@pytest.mark.slow
def test_a_rank_that_hangs_is_named_once(photos, cache, tmp_path):
    options = ("--data", photos, "--out", tmp_path / "run", *OPTIONS, "--epochs", 10_000)
    with start(3, "-m", "core.train", *options, cache=cache) as process:
        while not (tmp_path / "run" / LAST).exists():
            assert process.poll() is None
            time.sleep(0.05)
        os.kill(min(children_of(process.pid)), signal.SIGSTOP)
        said, errors = process.communicate(timeout=ENDED_SECONDS)
    assert process.returncode != 0
    assert (said + errors).count("did not answer") == 1, said + errors
    assert "Rank 0 did not answer for 15 seconds" in said + errors
