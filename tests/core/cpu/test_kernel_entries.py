"""Every kernel of the CPU on the shared odd cases, outputs poisoned, against float64."""

import numpy as np
import pytest

from core.cpu.kernel_entries import CPU
from core.ops.contract import Mode
from core.ops.op_table import OPS
from tests.helpers.compare import assert_close, poisoned
from tests.helpers.cpu_kernel import forward
from tests.helpers.shapes import MODE, cases, label, solve


def _pairs():
    for kernel in CPU.kernels:
        for case in cases(kernel.op):
            name = f"{kernel.op}-{kernel.direction}-{kernel.algorithm}-{label(case)}"
            yield pytest.param(kernel, case, id=name)


@pytest.mark.parametrize(("kernel", "case"), list(_pairs()))
def test_kernel_agrees_with_the_reference_in_float64(kernel, case):
    if kernel.refuses(case) is not None:
        assert kernel.algorithm == "im2col"
        return
    problem = solve(case)
    arrays = {name: array.copy() for name, array in problem.given.items()} | {"mode": MODE}
    inputs = [name for name in problem.wanted if name.startswith("dx")]
    weights = [name for name in problem.wanted if name.startswith("d") and name not in inputs]
    names = {"forward": ["out"], "backward_input": inputs, "backward_weight": weights}[kernel.direction]
    arrays |= {name: poisoned(problem.wanted[name].shape) for name in names}
    kernel.run(case, arrays)
    for name in names:
        assert_close(arrays[name], problem.wanted[name], kernel.tolerance.relative)
    if kernel.direction == "forward":
        for name in ("running_mean", "running_var"):
            if name in problem.wanted:
                assert_close(arrays[name], problem.wanted[name], kernel.tolerance.relative)


def test_every_op_has_a_reference_and_a_fast_kernel_in_both_directions():
    for op in OPS:
        if op == "photo":
            continue
        for direction in ("forward", "backward_input"):
            algorithms = {row.algorithm for row in CPU.of(op, direction)}
            assert "reference" in algorithms
            assert algorithms & {"tiled", "fused"}


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
