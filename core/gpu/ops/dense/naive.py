"""Fully connected layer: ``out[n, o] = bias[o] + sum over i of x[n, i] weight[o, i]``.

- naive:  one thread per element of the result reads the whole sum from global memory
- shared: the tiled matrix product of `product.py`, and its transpositions for the gradients
"""

from __future__ import annotations

from core.gpu.compilation.arrays import Matrix, Vector
from core.gpu.compilation.cuda import cuda
from core.gpu.ops.dense.product import add_bias, launch_product, product_nn, product_nt, product_tn
from core.gpu.teaching.column_sums import launch_sum_columns
from core.gpu.teaching.kernel import kernel, over
from core.gpu.teaching.step_arrays import StepArrays
from core.ops.registry import KernelCase


@kernel
def naive_forward(x: Matrix, weight: Matrix, bias: Vector, out: Matrix) -> None:
    """One thread per output: row n of x against row o of weight."""
    i = cuda.grid(1)
    if i < out.size:
        n, o = i // out.shape[1], i % out.shape[1]
        total = bias[o]
        for k in range(x.shape[1]):
            total += x[n, k] * weight[o, k]
        out[n, o] = total


@kernel
def naive_backward_input(dy: Matrix, weight: Matrix, dx: Matrix) -> None:
    """One thread per input: what each unit passes back, times its weight."""
    i = cuda.grid(1)
    if i < dx.size:
        n, k = i // dx.shape[1], i % dx.shape[1]
        total = dy[n, 0] * weight[0, k]
        for o in range(1, dy.shape[1]):
            total += dy[n, o] * weight[o, k]
        dx[n, k] = total


@kernel
def naive_backward_weight(x: Matrix, dy: Matrix, dweight: Matrix) -> None:
    """One thread per weight: the sum over the batch."""
    i = cuda.grid(1)
    if i < dweight.size:
        o, k = i // dweight.shape[1], i % dweight.shape[1]
        total = dy[0, o] * x[0, k]
        for n in range(1, x.shape[0]):
            total += dy[n, o] * x[n, k]
        dweight[o, k] = total


def launch_shared_forward(case: KernelCase, arrays: StepArrays) -> None:
    launch_product(product_nt, arrays["x"], arrays["weight"], arrays["out"])
    if "bias" in arrays:
        add_bias[over(arrays["out"].size)](arrays["out"], arrays["bias"])


def launch_shared_backward_input(case: KernelCase, arrays: StepArrays) -> None:
    launch_product(product_nn, arrays["dy"], arrays["weight"], arrays["dx"])


def launch_shared_backward_weight(case: KernelCase, arrays: StepArrays) -> None:
    launch_product(product_tn, arrays["dy"], arrays["x"], arrays["dweight"])
    if "dbias" in arrays:
        launch_sum_columns(arrays["dy"], arrays["dbias"])
