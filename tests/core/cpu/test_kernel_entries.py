"""Every kernel of the CPU on the shared odd cases, outputs poisoned, against float64; depthwise rows and max pools."""

import numpy as np
import pytest

from core.cpu import depthwise, tiled
from core.cpu.kernel_entries import CPU
from core.cpu.single import Single
from core.ops.contract import Mode
from core.ops.op_table import OPS
from tests.helpers import shapes
from tests.helpers.compare import assert_close, poisoned
from tests.helpers.shapes import MODE, cases, label, solve


def _pairs():
    for kernel in CPU.kernels:
        for case in cases(kernel.op):
            name = f"{kernel.op}-{kernel.direction}-{kernel.algorithm}-{label(case)}"
            yield pytest.param(kernel, case, id=name)


@pytest.mark.parametrize(("kernel", "case"), list(_pairs()))
def test_kernel_agrees_with_the_reference_in_float64(kernel, case):
    if kernel.refuses(case):
        assert kernel.algorithm == "im2col"
    else:
        assert_right(kernel, case)


def assert_right(kernel, case):
    """The kernel writes every element of its results, and they are the reference's."""
    problem = solve(case)
    arrays = {name: array.copy() for name, array in problem.given.items()} | {"mode": MODE}
    inputs = [name for name in problem.wanted if name.startswith("dx")]
    weights = [name for name in problem.wanted if name.startswith("d") and name not in inputs]
    moved = [name for name in problem.wanted if name.startswith("running")]
    names = {"forward": ["out", *moved], "backward_input": inputs, "backward_weight": weights}[kernel.direction]
    arrays |= {name: poisoned(problem.wanted[name].shape) for name in names if name not in moved}
    kernel.run(case, arrays)
    for name in names:
        assert_close(arrays[name], problem.wanted[name], kernel.tolerance)


def test_every_op_has_a_reference_and_a_fast_kernel_in_both_directions():
    for op in OPS:
        if op == "photo":
            continue
        for direction in ("forward", "backward_input"):
            algorithms = {row.algorithm for row in CPU.of(op, direction)}
            assert "reference" in algorithms, f"core/cpu/kernel_entries.py has no {op}"
            assert algorithms & {"tiled", "fused"}


def forward(case, given, threads=1, training=False):
    """The output of the fastest kernel of an op by itself, and the `Single` that computed it."""
    single = Single(case, CPU.of(case.op, "forward")[-1].writers, threads, training)
    single.read(given)
    single.run(single.forward)
    out = poisoned((case.batch, *case.output))
    single.write_forward({"out": out})
    return out, single


@pytest.mark.parametrize("case", cases("max_pool"), ids=label)
def test_max_pooling_without_winners_agrees_too(case):
    problem = solve(case)
    out, _ = forward(case, dict(problem.given))
    assert_close(out, problem.wanted["out"], 0.0)


def test_inference_mode_of_batch_norm_uses_the_running_statistics():
    case = cases("batch_norm")[4]
    problem = solve(case, mode=Mode())
    arrays = {**problem.given, "out": poisoned((case.batch, *case.output))}
    CPU.choose(case, "forward", "fused").run(case, arrays)
    assert_close(arrays["out"], problem.wanted["out"], 1e-5)
    assert np.array_equal(arrays["running_mean"], problem.given["running_mean"])


@pytest.mark.parametrize("activation", ["", "relu", "relu6"])
@pytest.mark.parametrize(("shape", "by_row"), [((13, 11, 150), 1), ((4, 3, 150), 0)])
@pytest.mark.parametrize("stride", [1, 2])
def test_bits_are_those_of_a_larger_window_on_the_tile(shape, by_row, activation, stride):
    about = {"stride": (stride, stride), "activation": activation, "batch": 1}
    rows = shapes.case("depthwise_conv2d", shape, kernel=(3, 3), padding=(1, 1, 1, 1), **about)
    tile = shapes.case("depthwise_conv2d", shape, kernel=(5, 5), padding=(2, 2, 2, 2), **about)
    given = dict(solve(rows).given)
    got, single = forward(rows, given, threads=2)
    record = single.forward[0]
    assert record.kernel is depthwise.run_depthwise
    assert record.fields[depthwise.BY_ROW] == by_row
    wide = np.pad(given["weight"], [(0, 0) if side != 3 else (1, 1) for side in given["weight"].shape])
    wanted, single = forward(tile, {**given, "weight": wide})
    assert single.forward[0].kernel is tiled.run_tiled
    assert np.array_equal(got, wanted)


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
