"""Fully connected layer by the best float32 product (`matmul_warp.py`), which wants both factors row by row.

The gradient of the input, dy times weight, is one as it lies. Forward, x times the transposed weight, and the
gradient of the weights, the transposed dy times x, have a factor that lies the other way: it is turned first,
through a square of shared memory so that neighbouring threads read and write neighbouring floats. Two passes over
the smaller factor cost less than a product that reads it across its lines.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda
from core.gpu.driver.hosted import Arrays, at, blocks, over, scratch
from core.gpu.kernels.ladder import matmul_warp
from core.gpu.kernels.ladder.arrays import Matrix, float32, index
from core.gpu.kernels.ladder.cases import refuse_fused
from core.gpu.kernels.ladder.reduction import launch_sum_columns
from core.gpu.ops.dense.product import add_bias
from core.ops.registry import Case

SIDE: Final = 32
PITCH: Final = SIDE + 1
"""One column more: no bank conflicts across the lines."""
LINES: Final = 8
"""A block turns a square of 32 x 32 with 32 x 8 threads, four floats each."""


@cuda.jit
def turn(matrix: Matrix, turned: Matrix) -> None:
    """``turned[j, i] = matrix[i, j]``."""
    square = cuda.shared.array((SIDE, PITCH), float32)
    tx, ty = index(cuda.threadIdx.x), index(cuda.threadIdx.y)
    row0, column0 = index(cuda.blockIdx.y * SIDE), index(cuda.blockIdx.x * SIDE)
    for i in range(0, SIDE, LINES):
        row, column = index(row0 + ty + index(i)), index(column0 + tx)
        if row < matrix.shape[0] and column < matrix.shape[1]:
            square[index(ty + index(i)), tx] = matrix[row, column]
    cuda.syncthreads()  # the square is loaded
    for i in range(0, SIDE, LINES):
        row, column = index(column0 + ty + index(i)), index(row0 + tx)
        if row < turned.shape[0] and column < turned.shape[1]:
            turned[row, column] = square[tx, index(ty + index(i))]


def turned(arrays: Arrays, name: str) -> Any:
    """A matrix of `arrays` with rows and columns exchanged, in memory kept for the next run."""
    matrix = arrays[name]
    rows, columns = matrix.shape
    result = scratch(arrays, f"turned {name}", (columns, rows))
    turn[at((blocks(columns, SIDE), blocks(rows, SIDE)), (SIDE, LINES))](matrix, result)
    return result


def multiply(a: Any, b: Any, out: Any) -> None:
    matmul_warp.launch_tile(matmul_warp.choose(*out.shape), {"x": a, "x2": b, "out": out})


def launch_forward(case: Case, arrays: Arrays) -> None:
    multiply(arrays["x"], turned(arrays, "weight"), arrays["out"])
    if "bias" in arrays:
        add_bias[over(arrays["out"].size)](arrays["out"], arrays["bias"])


def launch_backward_input(case: Case, arrays: Arrays) -> None:
    multiply(arrays["dy"], arrays["weight"], arrays["dx"])


def launch_backward_weight(case: Case, arrays: Arrays) -> None:
    multiply(turned(arrays, "dy"), arrays["x"], arrays["dweight"])
    if "dbias" in arrays:
        launch_sum_columns(arrays, arrays["dy"], arrays["dbias"])


def refuse(case: Case) -> str | None:
    """Both passes of a layer: forward and the gradient of the input."""
    return refuse_fused(case) or _refuse_uneven(inputs=case.inputs[0][0], units=case.output[0])


def refuse_weight(case: Case) -> str | None:
    return refuse_fused(case) or _refuse_uneven(inputs=case.inputs[0][0], batch=case.batch)


def _refuse_uneven(**sizes: int) -> str | None:
    said = " and ".join(f"{name} {size}" for name, size in sizes.items())
    return f"16-byte loads need {said} to be multiples of 4." if any(size % 4 for size in sizes.values()) else None
