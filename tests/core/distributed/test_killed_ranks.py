"""Ranks killed at random moments: all end, no file is damaged, and a resumed run has the bits of a whole one."""

import pytest

from tests.helpers.killed_ranks import kill_and_resume
from tests.helpers.mpi import MPIRUN

pytestmark = pytest.mark.skipif(MPIRUN is None, reason="Open MPI is not installed")


@pytest.mark.parametrize(("ranks", "kills"), [
    pytest.param(2, 2, marks=pytest.mark.thorough),
    *(pytest.param(ranks, 20, marks=[pytest.mark.slow, pytest.mark.timeout(1800)]) for ranks in (2, 3)),
])  # fmt: skip
def test_killed_at_random_moments_and_resumed_is_the_same_as_never_killed(ranks, kills, photos, cache, tmp_path):
    found = kill_and_resume(ranks, kills, photos, cache, tmp_path)
    assert found["kills"] == kills
    assert found["resumed"] >= kills // 2
