"""cuBLAS beside our kernels for comparison: right where it is installed, a sentence where it is not."""

import numpy as np
import pytest

from core.errors import KernelUnavailable
from core.gpu import cublas
from core.gpu.kernel_entries import CUBLAS, TABLE
from core.ops.registry import KernelCase
from tests.helpers.compare import poisoned, relative_error

PRODUCT = KernelCase("matmul", {}, ((33, 9), (9, 65)), (33, 65), 1)


@pytest.fixture
def no_library(monkeypatch):
    def fail():
        raise RuntimeError("Failure finding libcublas")

    monkeypatch.setattr(cublas, "_library", fail)
    cublas.problem.cache_clear()
    yield
    cublas.problem.cache_clear()


def test_a_missing_library_is_a_sentence_with_the_remedy(no_library):
    assert CUBLAS.refuses(PRODUCT) == cublas.MISSING
    with pytest.raises(KernelUnavailable, match="Install it with: pip install"):
        TABLE.choose(PRODUCT, "forward", "cublas")


def test_it_is_the_last_product_and_never_taken_unasked():
    assert [row.algorithm for row in TABLE.of("matmul", "forward")][-1] == "cublas"
    assert TABLE.choose(PRODUCT, "forward").algorithm != "cublas"


@pytest.mark.gpu
def test_it_agrees_with_the_reference():
    if cublas.problem() is not None:
        pytest.skip(cublas.problem())
    draw = np.random.default_rng(5)
    x, x2 = (draw.normal(size=shape).astype(np.float32) for shape in PRODUCT.inputs)
    arrays = {"x": x, "x2": x2, "out": poisoned(PRODUCT.output)}
    CUBLAS.run(PRODUCT, arrays)
    assert relative_error(arrays["out"], x.astype(np.float64) @ x2) <= CUBLAS.tolerance.relative
