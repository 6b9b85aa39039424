"""Of the kernels up to a level, the highest one that does not refuse is chosen."""

import pytest

from core.errors import KernelUnavailable
from core.ops.registry import Kernel, KernelCase, Registry

CASE = KernelCase("relu", {}, ((3,),), (3,), 1)


def kernel(algorithm, refusal="", op="relu", writers=None):
    return Kernel(op, "forward", "cpu", algorithm, lambda case, arrays: None, "", 0.0, lambda case: refusal, writers)


def test_auto_takes_the_highest_kernel_that_does_not_refuse_and_never_a_vendors_library():
    table = Registry([kernel("naive"), kernel("fused", "too small."), kernel("tiled"), kernel("reference")])
    assert table.choose(CASE, "forward").algorithm == "tiled"
    table = Registry([kernel("cudnn"), kernel("naive")])
    assert table.choose(CASE, "forward").algorithm == "naive"
    assert table.choose(CASE, "forward", "cudnn").algorithm == "cudnn"


@pytest.mark.parametrize(("asked", "said"), [
    ("reference", "No kernel up to 'reference' runs relu forward.$"), ("fft", r"relu forward\. naive: no memory\.$"),
    ("auto", r"fused: too small\. naive: no memory\."),
])  # fmt: skip
def test_no_kernel_above_the_level_is_taken_and_all_reasons_are_named(asked, said):
    with pytest.raises(KernelUnavailable, match=said):
        Registry([kernel("naive", "no memory."), kernel("fused", "too small.")]).choose(CASE, "forward", asked)
    both = Registry([kernel("naive"), kernel("fused")])
    assert [both.choose(CASE, "forward", level).algorithm for level in ("tiled", "fused")] == ["naive", "fused"]
    assert Registry([kernel("fused")]).choose(CASE, "forward", "naive").algorithm == "fused", "of one kernel, that one"


def test_kernels_are_listed_by_op_and_one_listed_twice_is_an_error():
    table = Registry([kernel("fused"), kernel("naive"), kernel("naive", op="add"), kernel("cublas")])
    assert [row.algorithm for row in table.of("relu", "forward")] == ["naive", "fused", "cublas"]
    assert table.of("relu", "backward_input") == ()
    for wrong, said in ((kernel("naive"), "listed twice"), (kernel("mine", writers=()), "ALGORITHM_ORDER.*'mine'")):
        with pytest.raises(ValueError, match=said):  # without a place it would be above all others
            Registry([kernel("naive"), wrong])
