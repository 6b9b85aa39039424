"""Every op's NumPy reference against PyTorch's results, its shape rule and its cost."""

import numpy as np
import pytest

from core.ops.contract import Mode, volume
from core.ops.op_table import LOSSES, OPS
from tests.helpers.golden import FOLDER, assert_matches
from tests.helpers.shapes import arrays, cases, compute, label, solve

FORWARD, GRADIENT = 1e-5, 1e-4
"""Relative errors allowed in float32."""

LEARNED = [op for op in OPS if op != "photo"]
ALL = [pytest.param(case, id=f"{op} {label(case)}") for op in LEARNED for case in cases(op)]


@pytest.fixture(scope="module")
def golden():
    with np.load(FOLDER / "ops.npz") as file:
        return {key: file[key] for key in file.files}


@pytest.mark.parametrize("op", [op for op in LEARNED if op not in ("dropout", "sigmoid_cross_entropy")])
def test_references_equal_pytorch(op, golden):
    for i, case in enumerate(cases(op)):
        assert str(golden.get(f"{op}/{i}/label")) == label(case), "other cases: run python -m tests.golden.make_ops"
        given = arrays(case)
        given["dy"] = solve(case).given["dy"]
        wanted = {key.split("/")[2]: array for key, array in golden.items() if key.startswith(f"{op}/{i}/")}
        wanted.pop("label")
        for dtype, forward, gradient in ((np.float32, FORWARD, GRADIENT), (np.float64, 1e-10, 1e-10)):
            got = compute(case, given, dtype)
            assert got.keys() == wanted.keys()
            if op == "softmax_cross_entropy":
                got["out"] = got["out"].sum()
            for name, array in got.items():
                assert_matches(array, wanted[name], gradient if name.startswith("d") else forward)


@pytest.mark.parametrize("case", ALL)
def test_a_reference_keeps_its_dtype_and_obeys_its_shape_rule(case):
    for dtype in (np.float32, np.float64):
        got = compute(case, arrays(case), dtype)
        assert got["out"].shape == (case.batch, *case.output)
        assert {name: array.dtype for name, array in got.items()} == dict.fromkeys(got, np.dtype(dtype))


@pytest.mark.parametrize("op", LEARNED)
def test_costs_are_those_of_reading_each_input_and_writing_the_output_once(op):
    for case in cases(op):
        cost, moved = OPS[op].cost(case.attributes, case.inputs, case.output), (*case.inputs, case.output)
        assert (cost.flops > 0) == (op not in ("concat", "flatten"))
        assert op in LOSSES or cost.bytes == 4 * sum(map(volume, moved)) * (op != "flatten")


def test_inference_leaves_dropout_and_batch_statistics_out():
    for op in ("dropout", "batch_norm"):
        for case in cases(op):
            got = solve(case, mode=Mode(training=False))
            learns = op == "batch_norm" and not case.attributes["frozen"]
            assert set(got.wanted) == {"out", "dx"} | ({"dweight", "dbias"} if learns else set())
