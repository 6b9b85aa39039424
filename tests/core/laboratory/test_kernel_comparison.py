"""Kernel comparison: every implementation is verified on a network's shape before it is timed, and has its source."""

from dataclasses import replace

import numpy as np
import pytest

from core.laboratory import kernel_comparison
from core.laboratory.kernel_comparison import CASES, compare_kernels, list_kernels, solve_update, source
from core.ops.registry import KernelCase

SMALL = kernel_comparison.make_case("conv2d", (6, 7, 5), 2, filters=3, kernel=(3, 3), padding=(1, 1, 1, 1))


def test_a_wrong_kernel_is_told_and_one_that_leaves_nan_too(monkeypatch):
    good = next(row for row in list_kernels() if row.key == ("conv2d", "forward", "cpu", "reference"))
    bad = replace(good, run=lambda case, arrays: arrays["out"].fill(0))
    lazy = replace(good, run=lambda case, arrays: None)
    monkeypatch.setattr(kernel_comparison, "list_kernels", lambda ops: [bad, lazy])
    found = [(c.right, c.error) for c in compare_kernels(SMALL, "forward")]
    assert found == [(False, pytest.approx(1.0)), (False, float("inf"))]


def test_the_matrix_product_is_a_ladder_like_any_other():
    case = CASES["matmul"]["32 x 27 by 27 x 14884"]
    given, wanted = kernel_comparison.solve(case)
    assert np.abs(given["x"] @ given["x2"] - wanted["out"]).max() < 1e-4
    names = [row.algorithm for row in list_kernels(("matmul",)) if row.device == "cuda"]
    assert (names[:3], names[-1]) == (["naive", "shared", "tiled"], "cublas")
    assert [c.kernel.algorithm for c in compare_kernels(case, "forward")] == names


def test_an_update_has_a_problem_and_rows_and_what_cannot_run_says_why():
    case = KernelCase("adamw", {}, ((5,),), (5,), 1)
    given, wanted = solve_update(case)
    assert {"weights", "first", "second", "average"} == set(wanted)
    assert all(np.abs(given[name] - wanted[name]).max() > 0 for name in wanted)
    assert [c.kernel.op for c in compare_kernels(case, "update")] == ["adamw"]
    strided = kernel_comparison.make_case("conv2d", (9, 9, 4), 1, filters=2, kernel=(3, 3), stride=(2, 2))
    reasons = {c.kernel.algorithm: c.reason for c in compare_kernels(strided, "forward") if c.kernel.device == "cpu"}
    assert reasons["winograd"]
    assert not reasons["naive"]


def test_every_kernel_has_a_source():
    for row in list_kernels():
        place, text = source(row)
        assert place.startswith("core/")
        assert "def " in text
        assert place not in ("core/cpu/single.py", "core/gpu/teaching/candidates.py"), f"{row.key}: it runs any kernel"
        assert row.algorithm != "implicit_gemm" or place == "core/gpu/ops/conv/implicit_gemm.py"
