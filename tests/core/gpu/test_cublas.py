"""cuBLAS stands beside our kernels as a yardstick: right where it is there, a sentence where it is not."""

from __future__ import annotations

import pytest

from core.errors import KernelUnavailable
from core.gpu.rows import cublas
from core.gpu.table import TABLE, VENDORS
from core.plan import cuda_problem
from tests.helpers.shapes import case

DENSE = case("dense", (12,), units=5)


@pytest.fixture
def no_library(monkeypatch):
    def fail():
        raise RuntimeError("Failure finding libcublas")

    monkeypatch.setattr(cublas, "_library", fail)
    cublas.problem.cache_clear()
    yield
    cublas.problem.cache_clear()


def test_a_missing_library_is_a_sentence_with_the_remedy(no_library):
    for row in VENDORS:
        assert row.refuses(DENSE) == cublas.MISSING
    with pytest.raises(KernelUnavailable, match="Install it with: pip install"):
        TABLE.choose(DENSE, "forward", "cublas")


@pytest.mark.parametrize("direction", ["forward", "backward_input", "backward_weight"])
def test_dense_has_it_in_every_direction_and_never_takes_it_unasked(direction):
    assert [row.algorithm for row in TABLE.of("dense", direction)][-1] == "cublas"
    assert TABLE.choose(DENSE, direction).algorithm != "cublas"


@pytest.mark.gpu
@pytest.mark.parametrize("op", ["dense", "matmul"])
def test_it_agrees_with_the_reference(op):
    from tests.helpers.ladder import check

    if cublas.problem() is not None:
        pytest.skip(cublas.problem())
    assert cuda_problem() is None
    errors = [(row, text, error) for row, text, error in check(op, 10**9, VENDORS) if row.algorithm == "cublas"]
    assert {row.key for row, _, _ in errors} == {row.key for row in VENDORS if row.op == op}
    wrong = [(row.key, text, error) for row, text, error in errors if not error <= row.tolerance.relative]
    assert not wrong, wrong
