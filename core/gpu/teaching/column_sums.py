"""Deterministic column sums without atomics: fixed slices, then the slices in order.

- naive:  `sum_rows`, one thread per column loops over all rows
- shared: `sum_columns`, 32 columns x 8 rows of threads per block, many blocks per column; the eight rows are added in
          shared memory, and `sum_rows` adds the blocks' results in order
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.arrays import Int, Matrix, Vector, float32
from core.gpu.compilation.cuda import cuda, device_function
from core.gpu.launch import blocks_of
from core.gpu.teaching.candidates import by_names
from core.gpu.teaching.kernel import as_matrix, at, kernel, over
from core.gpu.teaching.step_arrays import StepArrays

COLUMNS: Final = 32
"""Columns of a block: one warp reads 128 contiguous bytes."""
ROWS: Final = 8
SLICE_ROWS: Final = 512
"""Rows per block: 387200 rows make 757 blocks, several for each multiprocessor of any GPU."""


@kernel
def sum_rows(x: Matrix, out: Vector) -> None:
    """x (rows, columns) to out (columns,), rows added in their order."""
    column = cuda.grid(1)
    if column < out.size:
        total = float32(0)
        for row in range(x.shape[0]):
            total += x[row, column]
        out[column] = total


BIAS: Final = by_names(sum_rows, x="dy", out="dbias")
"""The gradient of the bias, if it is needed."""


@device_function
def add_lines(sums: Any, total: Any) -> Any:
    """The totals of a block's lines (threads with the same y), added in order; line 0 gets the sum."""
    lane, line = cuda.threadIdx.x, cuda.threadIdx.y
    sums[line, lane] = total
    cuda.syncthreads()  # every line's sum is there
    if line == 0:
        for other in range(1, cuda.blockDim.y):
            total += sums[other, lane]
    return total


@kernel
def sum_columns(x: Matrix, partials: Matrix, rows_each: Int) -> None:
    """x (rows, columns) to partials (slices, columns): slice s is rows ``[s rows_each, (s + 1) rows_each)``."""
    sums = cuda.shared.array((ROWS, COLUMNS), float32)
    lane = cuda.threadIdx.x
    line = cuda.threadIdx.y
    column = cuda.blockIdx.x * COLUMNS + lane
    first = cuda.blockIdx.y * rows_each
    total = float32(0)
    if column < x.shape[1]:
        for row in range(first + line, min(first + rows_each, x.shape[0]), ROWS):
            total += x[row, column]
    total = add_lines(sums, total)
    if line == 0 and column < x.shape[1]:
        partials[cuda.blockIdx.y, column] = total


def launch_bias_gradient(arrays: StepArrays) -> None:
    """The gradient of the bias, if it is needed, at the shared level."""
    if "dbias" not in arrays:
        return
    x, out = as_matrix(arrays["dy"]), arrays["dbias"]
    slices = blocks_of(x.shape[0], SLICE_ROWS)
    partials = arrays.scratch("column sums", (slices, x.shape[1]))
    sum_columns[at((blocks_of(x.shape[1], COLUMNS), slices), (COLUMNS, ROWS))](x, partials, SLICE_ROWS)
    sum_rows[over(out.size)](partials, out)
