import numpy as np
import pytest

from benchmarks.intervals import bootstrap_interval
from core.diagnosis.metrics import wilson_interval


def test_with_one_photo_a_group_it_is_near_wilsons_and_groups_make_it_wider():
    right = np.arange(200) < 180
    near = pytest.approx(wilson_interval(180, 200), abs=0.02)
    assert bootstrap_interval(lambda rows: float(right[rows].mean()), np.arange(200)) == near
    right = np.repeat(np.arange(20) < 18, 10)
    single = bootstrap_interval(lambda rows: float(right[rows].mean()), np.arange(200))
    grouped = bootstrap_interval(lambda rows: float(right[rows].mean()), np.repeat(np.arange(20), 10))
    assert grouped[1] - grouped[0] > 2 * (single[1] - single[0])


def test_the_same_seed_gives_the_same_interval_which_excludes_the_same_at_both_ends():
    groups, values = np.arange(30), np.random.default_rng(0).random(30)
    one = bootstrap_interval(lambda rows: float(values[rows].mean()), groups, rounds=50, seed=3)
    assert one == bootstrap_interval(lambda rows: float(values[rows].mean()), groups, rounds=50, seed=3)
    drawn = iter(range(1001))
    interval = bootstrap_interval(lambda rows: float(next(drawn)), np.arange(3), rounds=1001, level=0.9)
    np.testing.assert_allclose(interval, (50, 950))
