"""Kernels are timed for less than a hundredth of the training, unless a number of steps was set; their table."""

import pytest

from core.device import KernelTime
from core.training.kernel_timing import LEAST_STEPS, SHARE, KernelSampling, KernelTable
from tests.core.training.test_trace import TIMES


def timed_steps(sampling, steps, seconds=0.1, cost=0.5):
    found = []
    for step in range(steps):
        if sampling.is_due(step, seconds):
            sampling.count(step, cost)
            found.append(step)
    return found


@pytest.mark.parametrize("cost", [0.01, 0.5, 3.0])
def test_all_timings_together_stay_under_a_hundredth_of_the_steps(cost):
    steps = 20000
    found = timed_steps(KernelSampling(0), steps, cost=cost)
    assert len(found) >= 3
    assert len(found) * cost <= SHARE * steps * 0.1 + max(0, cost - 0.8)  # the first one's cost is a guess
    assert min(b - a for a, b in zip(found, found[1:], strict=False)) >= LEAST_STEPS


def test_a_short_run_is_not_timed_unless_it_is_profiled():
    assert timed_steps(KernelSampling(0), 300) == []
    assert timed_steps(KernelSampling(0, soon=True), 300) == [1]


def test_a_number_of_steps_is_taken_at_its_word():
    assert timed_steps(KernelSampling(4), 12, cost=100.0) == [2, 6, 10]


def test_the_table_shows_the_slowest_kernels_first_as_means_of_the_samples():
    table = KernelTable()
    table.add(())
    assert table.describe() == ""
    table = KernelTable()
    for _ in range(2):
        table.add(TIMES)
    lines = table.describe().splitlines()
    assert "mean of 2 steps" in lines[0]
    assert lines[1].split() == ["layer", "pass", "kernel", "ms", "GFLOP/s", "GB/s", "of", "floor"]
    assert lines[2].split() == ["conv1", "backward_weight", "tiled", "3.000", "3", "1.3", "17", "%"]
    assert lines[-1].split() == ["all", "7.000", "2", "1.7", "25", "%"]
    table.add(KernelTime(f"layer{i}", "forward", "tiled", 0.1, 0, 0, 0.0) for i in range(40))
    assert any("more" in line for line in table.describe().splitlines())
