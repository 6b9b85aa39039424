"""Ranks killed at random moments: all end, no file is damaged, and a resumed run has the bits of a whole one."""

import pytest

from tests.helpers.killed_ranks import kill_and_resume
from tests.helpers.mpi import MPIRUN

pytestmark = [pytest.mark.thorough, pytest.mark.skipif(MPIRUN is None, reason="Open MPI is not installed")]


def test_killed_at_random_moments_and_resumed_is_the_same_as_never_killed(photos, cache, tmp_path):
    """A short form of `benchmarks.killed_ranks`; runs of several processes take seconds."""
    found = kill_and_resume(2, 2, photos, cache, tmp_path)
    assert found["kills"] == 2
