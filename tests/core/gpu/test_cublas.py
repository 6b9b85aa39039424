"""cuBLAS beside our kernels: what it is asked for gives the reference's results, and a sentence where it is missing."""

import ctypes

import numpy as np
import pytest

from core.gpu.driver import cublas
from core.gpu.kernel_entries import TABLE
from core.ops.registry import KernelCase
from tests.helpers.emulated_gpu import Machine
from tests.helpers.single_kernels import check, run_as_python, run_on_gpu

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
    assert "Install it with: pip install" in TABLE.of("matmul", "forward")[-1].refuses(PRODUCT)


def test_it_is_the_last_product_and_never_taken_unasked():
    assert [row.algorithm for row in TABLE.of("matmul", "forward")][-1] == "cublas"
    assert TABLE.choose(PRODUCT, "forward").algorithm != "cublas"


class Library:
    """`cublasSgemm` by NumPy: matrices column by column, on the memory of an emulated GPU."""

    def __init__(self, memory):
        self.memory = memory

    def __call__(self, name, handle, *given):
        if name != "cublasSgemm_v2":
            return
        a_turned, b_turned, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc = given
        left = self.matrix(a, lda, *((k, m) if a_turned else (m, k)))
        right = self.matrix(b, ldb, *((n, k) if b_turned else (k, n)))
        result = self.matrix(c, ldc, m, n)
        before = beta._obj.value * result if beta._obj.value else 0
        result[...] = alpha._obj.value * (left.T if a_turned else left) @ (right.T if b_turned else right) + before

    def matrix(self, address, leading, rows, columns):
        assert leading >= rows
        at, size = address.value, 4 * leading * columns
        assert self.memory.allowed[at : at + 4 * (leading * (columns - 1) + rows)].all(), "a matrix leaves its array"
        return self.memory.bytes[at : at + size].view(np.float32).reshape(columns, leading).T[:rows]


@pytest.mark.parametrize(("op", "directions"), [
    ("dense", {"forward", "backward_input", "backward_weight"}), ("matmul", {"forward"}),
])  # fmt: skip
def test_what_it_is_asked_for_gives_the_references_results(op, directions, monkeypatch):
    on_kernels = Machine.run

    def run(machine, launch):
        if launch.recipe.module != cublas.MODULE:
            return on_kernels(machine, launch)
        monkeypatch.setattr(cublas, "_checked", Library(machine.memory))
        return cublas.Sgemm().launch(launch.grid, launch.block, launch.shared, ctypes.c_void_p(7).value, launch.values)

    monkeypatch.setattr(Machine, "run", run)
    monkeypatch.setattr(cublas, "problem", lambda: "")
    found = list(check(op, 400, run_as_python, lambda row: row.level == "cublas"))
    assert {direction for _, direction, *_ in found} == directions
    assert all(error <= 1e-5 for *_, error, _ in found), found


@pytest.mark.gpu
@pytest.mark.parametrize("op", ["dense", "matmul"])
def test_it_agrees_with_the_reference(op):
    if cublas.problem():
        pytest.skip(cublas.problem())
    found = list(check(op, 10**9, run_on_gpu, lambda row: row.level == "cublas"))
    assert found
    assert all(error <= tolerance for *_, error, tolerance in found), found
