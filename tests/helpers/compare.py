"""Comparison that refuses NaN and tells where two arrays differ most."""

import numpy as np


def poisoned(shape, dtype=np.float32):
    """An output array full of NaN, so that an element nobody writes is seen."""
    return np.full(shape, np.nan, dtype)


def relative_error(got, want):
    """Largest ``|got - want|`` over the largest ``|want|``; both must be finite and of one shape."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape, f"shape {got.shape}, wanted {want.shape}"
    assert np.isfinite(want).all(), "the reference is not finite"
    bad = np.argwhere(~np.isfinite(got))
    assert not len(bad), f"{len(bad)} values are not finite, the first at {tuple(bad[0])}"
    scale = max(float(np.abs(want).max(initial=0.0)), 1e-30)
    return float(np.abs(got - want).max(initial=0.0)) / scale


def assert_close(got, want, relative):
    error = relative_error(got, want)
    assert error <= relative, f"relative error {error:.2e} is above {relative:.0e}"
