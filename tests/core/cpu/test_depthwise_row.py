"""The 3 x 3 depthwise convolution by rows gives the bits of the register tile, however its tasks are ordered."""

import numpy as np
import pytest

from core.cpu import depthwise_row, tiled
from core.cpu.kernel_entries import CPU
from core.cpu.single import Single
from tests.helpers.compare import poisoned
from tests.helpers.shapes import case, solve


def _forward(problem, arrays, threads):
    single = Single(problem, CPU.of("depthwise_conv2d", "forward")[-1].writers, threads, training=False)
    single.read(arrays)
    single.run(single.forward)
    out = poisoned((problem.batch, *problem.output))
    single.write_forward({"out": out})
    return out, single.forward[0]


@pytest.mark.parametrize("activation", ["", "relu", "relu6"])
@pytest.mark.parametrize(("shape", "by_row"), [((13, 11, 150), 1), ((4, 3, 150), 0)])
@pytest.mark.parametrize("stride", [1, 2])
def test_bits_are_those_of_a_larger_window_on_the_tile(shape, by_row, activation, stride):
    about = {"stride": (stride, stride), "activation": activation, "batch": 1}
    rows = case("depthwise_conv2d", shape, kernel=(3, 3), padding=(1, 1, 1, 1), **about)
    tile = case("depthwise_conv2d", shape, kernel=(5, 5), padding=(2, 2, 2, 2), **about)
    given = dict(solve(rows).given)
    got, record = _forward(rows, given, 2)
    assert record.kernel is depthwise_row.run_depthwise
    assert record.fields[depthwise_row.BY_ROW] == by_row
    wide = np.pad(given["weight"], [(0, 0) if side != 3 else (1, 1) for side in given["weight"].shape])
    wanted, record = _forward(tile, {**given, "weight": wide}, 1)
    assert record.kernel is tiled.run_tiled
    assert np.array_equal(got, wanted)
