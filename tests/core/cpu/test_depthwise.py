"""The 3 x 3 depthwise convolution by rows gives the bits of the register tile, however its tasks are ordered."""

import numpy as np
import pytest

from core.cpu import depthwise, tiled
from tests.helpers.cpu_kernel import forward
from tests.helpers.shapes import case, solve


@pytest.mark.parametrize("activation", ["", "relu", "relu6"])
@pytest.mark.parametrize(("shape", "by_row"), [((13, 11, 150), 1), ((4, 3, 150), 0)])
@pytest.mark.parametrize("stride", [1, 2])
def test_bits_are_those_of_a_larger_window_on_the_tile(shape, by_row, activation, stride):
    about = {"stride": (stride, stride), "activation": activation, "batch": 1}
    rows = case("depthwise_conv2d", shape, kernel=(3, 3), padding=(1, 1, 1, 1), **about)
    tile = case("depthwise_conv2d", shape, kernel=(5, 5), padding=(2, 2, 2, 2), **about)
    given = dict(solve(rows).given)
    got, single = forward(rows, given, threads=2)
    record = single.forward[0]
    assert record.kernel is depthwise.run_depthwise
    assert record.fields[depthwise.BY_ROW] == by_row
    wide = np.pad(given["weight"], [(0, 0) if side != 3 else (1, 1) for side in given["weight"].shape])
    wanted, single = forward(tile, {**given, "weight": wide})
    assert single.forward[0].kernel is tiled.run_tiled
    assert np.array_equal(got, wanted)
