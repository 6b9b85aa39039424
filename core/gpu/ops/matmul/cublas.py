"""Products by cuBLAS: the matrix product, and dense layers as in a student's first GPU program.

A bias is added by a product with ones before the product with the weights; its gradient is another product with ones.
"""

from __future__ import annotations

import numpy as np

from core.gpu.compilation.compiler import Recipe
from core.gpu.driver import cublas
from core.gpu.ops.matmul.tiled import matrices
from core.gpu.teaching.kernel import DeviceArray, at
from core.gpu.teaching.step_arrays import StepArrays
from core.ops.registry import KernelCase

SGEMM = Recipe(cublas.MODULE, "sgemm", (), (), 1)


def multiply(
    a: DeviceArray, b: DeviceArray, c: DeviceArray, a_transposed: bool = False, b_transposed: bool = False,
    add: bool = False,
) -> None:  # fmt: skip
    """Note ``c = A B``, or ``c += A B``."""
    depth = a.shape[0 if a_transposed else 1]
    values = (a_transposed, b_transposed, *c.shape, depth, a.address, b.address, c.address, float(add))
    a.owner.add(SGEMM, at((1,), (1,)), values, (a, b, c))


def refuse(case: KernelCase) -> str:
    return cublas.problem()


def ones(arrays: StepArrays, shape: tuple[int, int]) -> DeviceArray:
    return arrays.constant(f"ones {shape}", np.ones(shape))


def launch_product(case: KernelCase, arrays: StepArrays) -> None:
    multiply(*matrices(arrays))


def launch_forward(case: KernelCase, arrays: StepArrays) -> None:
    x, weight, out = arrays["x"], arrays["weight"], arrays["out"]
    if "bias" in arrays:
        multiply(ones(arrays, (out.shape[0], 1)), arrays["bias"].reshape(1, out.shape[1]), out)
    multiply(x, weight, out, b_transposed=True, add="bias" in arrays)


def launch_backward_input(case: KernelCase, arrays: StepArrays) -> None:
    multiply(arrays["dy"], arrays["weight"], arrays["dx"])


def launch_backward_weight(case: KernelCase, arrays: StepArrays) -> None:
    dy = arrays["dy"]
    multiply(dy, arrays["x"], arrays["dweight"], a_transposed=True)
    if "dbias" in arrays:
        multiply(ones(arrays, (1, dy.shape[0])), dy, arrays["dbias"].reshape(1, dy.shape[1]))
