"""Max pooling's register tile: NaN wins wherever it lies, a tie goes to the first pixel, infinities count."""

import numpy as np
import pytest

from tests.helpers.compare import poisoned
from tests.helpers.cpu_kernel import forward
from tests.helpers.shapes import cases


def _pool(x, case, training):
    return forward(case, {"x": x}, training=training)[0]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("case", cases("max_pool"), ids=lambda c: str(c.inputs[0]))
def test_a_nan_anywhere_is_seen_by_every_window_over_it_and_by_no_other(case, training):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(case.batch, *case.inputs[0])).astype(np.float32)
    clean = _pool(x, case, training)
    shape = case.inputs[0]
    for place in ((0, 0, 0), tuple(n // 2 for n in shape), (shape[0] // 2, 1 % shape[1], shape[2] - 1)):
        broken = x.copy()
        broken[0][place] = np.nan
        got = _pool(broken, case, training)
        changed = np.isnan(got)
        highest = x.copy()
        highest[0][place] = 1e30
        assert np.array_equal(changed, _pool(highest, case, training) == np.float32(1e30))
        assert np.array_equal(got[~changed], clean[~changed])


def test_windows_of_minus_infinity_stay_so_and_give_their_gradient_to_their_first_pixel():
    case = cases("max_pool")[0]
    x = np.full((case.batch, *case.inputs[0]), -np.inf, np.float32)
    out, single = forward(case, {"x": x}, training=True)
    assert (out == -np.inf).all()
    dy = np.ones((case.batch, *case.output), np.float32)
    single.read_gradient(dy)
    single.run(single.backward)
    arrays = {"dx": poisoned(x.shape)}
    single.write_inputs(arrays)
    assert arrays["dx"].sum() == dy.sum()
