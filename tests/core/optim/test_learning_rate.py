"""The course of the learning rate, at the points where it can be worked out by hand."""

import pytest

from core.config import RunConfig, settings
from core.optim.learning_rate import START, learning_rate


def course(total=100, steps_per_epoch=10, **settings):
    config = RunConfig(learning_rate=0.1, **settings)
    return [learning_rate(config, step, total, steps_per_epoch) for step in range(total)]


def test_constant_stays_step_drops_every_decay_epochs_and_inverse_is_the_lessons_formula():
    assert course(schedule="constant", warmup=0.0) == [0.1] * 100
    rates = course(schedule="step", warmup=0.0, decay=0.5, decay_epochs=3)
    assert rates[0] == rates[29] == 0.1
    assert rates[30] == rates[59] == 0.05
    assert rates[99] == pytest.approx(0.0125)
    rates = course(schedule="inverse", warmup=0.0, decay=0.00005)
    assert (rates[0], rates[99]) == (0.1, pytest.approx(0.1 / (1 + 0.00005 * 99)))


def test_compounding_divides_the_rate_again_in_every_step():
    rate, wanted = 0.02, []
    for step in range(1600):
        rate *= 1 / (1 + 5e-5 * step)
        wanted.append(rate)
    config = RunConfig(learning_rate=0.02, schedule="compounding", warmup=0.0, decay=5e-5)
    rates = [learning_rate(config, step, 1600, 234) for step in range(1600)]
    assert rates == pytest.approx(wanted, rel=1e-8, abs=1e-40)
    assert rates[600] < 1e-3 * rates[0]
    assert course(schedule="compounding", warmup=0.0, decay=0.0) == [0.1] * 100


def test_cosine_falls_to_nothing_and_one_cycle_rises_to_the_whole_rate_before():
    rates = course(schedule="cosine", warmup=0.0)
    assert (rates[0], rates[50]) == (0.1, pytest.approx(0.05))
    assert 0 < rates[99] < 0.1 * 0.0003
    assert rates == sorted(rates, reverse=True)
    rates = course(schedule="one_cycle", warmup=0.3)
    assert (rates[0], rates[99]) == pytest.approx((0.1 / 25, 0.1 / 250_000))  # PyTorch's defaults
    assert rates[30] == max(rates) == pytest.approx(0.1)
    assert rates[98] > rates[99]
    assert (rates[:31], rates[30:]) == (sorted(rates[:31]), sorted(rates[30:], reverse=True))


@pytest.mark.parametrize("schedule", ["constant", "step", "inverse", "cosine"])
def test_a_warm_up_rises_in_a_straight_line(schedule):
    rates = course(schedule=schedule, warmup=0.2, decay=0.0001)
    assert (rates[0], rates[10]) == (pytest.approx(0.1 * START), pytest.approx(0.1 * (START + 1) / 2))
    assert max(rates) <= 0.1
    assert rates[20] == pytest.approx(0.1, rel=0.005)


@pytest.mark.parametrize("schedule", settings()["schedule"][1].choices)
@pytest.mark.parametrize("total", [1, 2, 7])
def test_short_runs_and_steps_beyond_the_end_have_a_rate_too(schedule, total):
    for warmup in (0.0, 0.5, 0.9):
        config = RunConfig(learning_rate=0.1, schedule=schedule, warmup=warmup)
        assert all(0 <= learning_rate(config, step, total, 1) <= 0.1 for step in range(total + 3))
