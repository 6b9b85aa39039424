"""Kernels are timed for less than a hundredth of the training, unless a number of steps was asked for."""

import pytest

from core.training.kernel_sampling import LEAST_STEPS, SHARE, KernelSampling


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
