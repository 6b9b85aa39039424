"""The processor's best, measured: what floors of kernels are counted with."""

from types import SimpleNamespace

import numpy as np
import pytest

from core.cpu import timing
from core.cpu.timing import DEPTH, ROWS, WIDTH, Peak, make_round, measure_peak
from core.graph import Parameter
from core.ops.contract import Cost


def test_what_is_measured_is_a_product():
    rng = np.random.default_rng(0)
    run, a, b = make_round(2)
    a[:], b[:] = rng.integers(-4, 5, len(a)), rng.integers(-4, 5, len(b))
    run()
    factor = b[: DEPTH * WIDTH].reshape(DEPTH, WIDTH)
    assert np.array_equal(b[DEPTH * WIDTH :].reshape(ROWS, WIDTH), a.reshape(ROWS, DEPTH) @ factor)


def test_this_processor_has_a_peak_of_its_own_and_it_is_measured_once():
    found = measure_peak(1)
    assert 0.5 < found.gflops < 1000
    assert 0.05 < found.gigabytes < 1000
    assert measure_peak(1) is found


def test_a_floor_is_the_longer_of_two_times():
    assert Peak(100.0, 10.0).floor_ms(10**9, 0) == pytest.approx(10)
    assert Peak(100.0, 10.0).floor_ms(10**9, 10**9) == pytest.approx(100)
    assert [Peak(100.0, 10.0).at_least(n) for n in (150.0, 50.0)] == [Peak(150.0, 10.0), Peak(100.0, 10.0)]


@pytest.mark.parametrize(("measured", "floor"), [(100.0, 0.02), (1.0, 0.1)])
def test_floors_are_counted_with_the_peak_that_was_measured_or_reached(monkeypatch, measured, floor):
    """2 photos of 1 MFLOP in 0.1 ms are 20 GFLOP/s: more than a peak that was measured on a busy machine."""
    monkeypatch.setattr(timing, "measure_peak", lambda threads: Peak(measured, 1e9))
    monkeypatch.setattr(timing, "_seconds", lambda run, index: 1e-4)
    step = SimpleNamespace(node="conv", cost=Cost(10**6, 1), parameters=[Parameter("bias", (3,))])
    records = [SimpleNamespace(layer="conv", direction="forward", name=name) for name in ("clear", "tiled")]
    clear, tiled = timing.time_records(SimpleNamespace(steps=[step]), records, lambda i: None, 2, 3)
    assert tiled.floor_ms == pytest.approx(floor)
    assert (clear.flops, clear.floor_ms, tiled.bytes) == (0, 0.0, 2 + 12)  # the weights once
