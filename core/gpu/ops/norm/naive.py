"""Batch normalisation over the last axis: statistics of each channel, then every element on its own.

- naive:  one thread per channel walks all pixels, twice for the statistics
- shared: 32 channels x 8 lines of threads a block and many blocks a channel; partial sums meet in shared
          memory and are added in their order. Mean first, then squares of the distances to it: as exact as naive
"""

from __future__ import annotations

import math
from typing import Any, Final

from core.gpu.compilation.cuda import cuda
from core.gpu.driver.hosted import Arrays, as_matrix, at, blocks, over, scratch
from core.gpu.kernels.ladder.arrays import Float, Int, Matrix, Vector, float32
from core.gpu.kernels.ladder.reduction import COLUMNS, ROWS, SLICE_ROWS, add_lines, sum_columns, sum_slices
from core.ops.contract import Mode
from core.ops.registry import Case

INFERENCE: Final = Mode()


@cuda.jit
def naive_statistics(x: Matrix, mean: Vector, inverse: Vector, epsilon: Float) -> None:
    """Mean, and one over the deviation, of each column of x (pixels, C)."""
    c = cuda.grid(1)
    if c < x.shape[1]:
        total = float32(0)
        for p in range(x.shape[0]):
            total += x[p, c]
        center = total / float32(x.shape[0])
        square = float32(0)
        for p in range(x.shape[0]):
            square += (x[p, c] - center) * (x[p, c] - center)
        mean[c] = center
        inverse[c] = 1.0 / math.sqrt(square / x.shape[0] + epsilon)


@cuda.jit
def take_running(running_mean: Vector, running_var: Vector, mean: Vector, inverse: Vector, epsilon: Float) -> None:
    """Inference, and frozen layers: the running statistics are the statistics."""
    c = cuda.grid(1)
    if c < mean.size:
        mean[c] = running_mean[c]
        inverse[c] = 1.0 / math.sqrt(running_var[c] + epsilon)


@cuda.jit
def move_running(
    mean: Vector, inverse: Vector, running_mean: Vector, running_var: Vector, rate: Float, epsilon: Float, pixels: Int
) -> None:
    """Running statistics move by `rate`; the variance that `inverse` holds is made unbiased."""
    c = cuda.grid(1)
    if c < mean.size:
        variance = (1.0 / (float(inverse[c]) * inverse[c]) - epsilon) * pixels / max(pixels - 1, 1)
        running_mean[c] = (1.0 - rate) * running_mean[c] + rate * mean[c]
        running_var[c] = (1.0 - rate) * running_var[c] + rate * variance


@cuda.jit
def normalise(x: Matrix, mean: Vector, inverse: Vector, weight: Vector, bias: Vector, out: Matrix) -> None:
    i = cuda.grid(1)
    if i < x.size:
        p, c = i // x.shape[1], i % x.shape[1]
        out[p, c] = (x[p, c] - mean[c]) * (inverse[c] * weight[c]) + bias[c]


@cuda.jit
def scale_mean(mean: Vector, pixels: Int) -> None:
    """Sums to means, in place."""
    c = cuda.grid(1)
    if c < mean.size:
        mean[c] /= float32(pixels)


@cuda.jit
def shared_squares(x: Matrix, mean: Vector, parts: Matrix, rows_each: Int) -> None:
    """Squared distances to the mean: parts (slices, C)."""
    sums = cuda.shared.array((ROWS, COLUMNS), float32)
    lane = cuda.threadIdx.x
    line = cuda.threadIdx.y
    c = cuda.blockIdx.x * COLUMNS + lane
    first = cuda.blockIdx.y * rows_each
    total = float32(0)
    if c < x.shape[1]:
        for p in range(first + line, min(first + rows_each, x.shape[0]), ROWS):
            total += (x[p, c] - mean[c]) * (x[p, c] - mean[c])
    total = add_lines(sums, total)
    if line == 0 and c < x.shape[1]:
        parts[cuda.blockIdx.y, c] = total


@cuda.jit
def invert(squares: Vector, inverse: Vector, pixels: Int, epsilon: Float) -> None:
    c = cuda.grid(1)
    if c < inverse.size:
        inverse[c] = 1.0 / math.sqrt(squares[c] / pixels + epsilon)


@cuda.jit
def naive_slopes(x: Matrix, dy: Matrix, mean: Vector, inverse: Vector, dweight: Vector, dbias: Vector) -> None:
    """One thread per channel: sums of dy and of dy times the normalised x."""
    c = cuda.grid(1)
    if c < x.shape[1]:
        total = float32(0)
        product = float32(0)
        for p in range(x.shape[0]):
            total += dy[p, c]
            product += dy[p, c] * (x[p, c] - mean[c]) * inverse[c]
        dweight[c] = product
        dbias[c] = total


@cuda.jit
def shared_slopes(x: Matrix, dy: Matrix, mean: Vector, inverse: Vector, parts: Matrix, rows_each: Int) -> None:
    """The sum of dy times the normalised x: parts (slices, C)."""
    sums = cuda.shared.array((ROWS, COLUMNS), float32)
    lane = cuda.threadIdx.x
    line = cuda.threadIdx.y
    c = cuda.blockIdx.x * COLUMNS + lane
    first = cuda.blockIdx.y * rows_each
    total = float32(0)
    if c < x.shape[1]:
        for p in range(first + line, min(first + rows_each, x.shape[0]), ROWS):
            total += dy[p, c] * (x[p, c] - mean[c]) * inverse[c]
    total = add_lines(sums, total)
    if line == 0 and c < x.shape[1]:
        parts[cuda.blockIdx.y, c] = total


@cuda.jit
def backward_input(
    x: Matrix, dy: Matrix, mean: Vector, inverse: Vector, weight: Vector, dweight: Vector, dbias: Vector, dx: Matrix,
    batch_statistics: Int,
) -> None:
    """``dx = weight inverse (dy - mean(dy) - normal mean(dy normal))``; only the first term with running statistics."""
    i = cuda.grid(1)
    if i < x.size:
        p, c = i // x.shape[1], i % x.shape[1]
        slope = dy[p, c]
        if batch_statistics:
            normal = (x[p, c] - mean[c]) * inverse[c]
            slope -= (dbias[c] + normal * dweight[c]) / float32(x.shape[0])
        dx[p, c] = slope * (weight[c] * inverse[c])


def _uses_batch(case: Case, arrays: Arrays) -> bool:
    return bool(arrays.get("mode", INFERENCE).training) and not case.attributes["frozen"]


def _number(case: Case, name: str) -> float:
    return float(str(case.attributes[name]))


def _saved(arrays: Arrays, channels: int) -> tuple[Any, Any]:
    """`mean` and `inverse` of the forward pass, kept in `arrays` for the backward pass."""
    return scratch(arrays, "mean", (channels,)), scratch(arrays, "inverse", (channels,))


def _forward(case: Case, arrays: Arrays, statistics: Any) -> None:
    x, out = as_matrix(arrays["x"]), as_matrix(arrays["out"])
    channels, epsilon = x.shape[1], _number(case, "epsilon")
    mean, inverse = _statistics(case, arrays, x, statistics)
    if _uses_batch(case, arrays):
        running = arrays["running_mean"], arrays["running_var"]
        rate = _number(case, "momentum")
        move_running[over(channels)](mean, inverse, *running, rate, epsilon, x.shape[0])
    normalise[over(x.size)](x, mean, inverse, arrays["weight"], arrays["bias"], out)


def _statistics(case: Case, arrays: Arrays, x: Any, statistics: Any) -> tuple[Any, Any]:
    channels, epsilon = x.shape[1], _number(case, "epsilon")
    mean, inverse = _saved(arrays, channels)
    if _uses_batch(case, arrays):
        statistics(arrays, x, mean, inverse, epsilon)
    else:
        running = arrays["running_mean"], arrays["running_var"]
        take_running[over(channels)](*running, mean, inverse, epsilon)
    return mean, inverse


def _naive_statistics(arrays: Arrays, x: Any, mean: Any, inverse: Any, epsilon: float) -> None:
    naive_statistics[over(x.shape[1])](x, mean, inverse, epsilon)


def _shared_statistics(arrays: Arrays, x: Any, mean: Any, inverse: Any, epsilon: float) -> None:
    channels, slices = x.shape[1], blocks(x.shape[0], SLICE_ROWS)
    parts = scratch(arrays, "statistics", (slices, channels))
    squares = scratch(arrays, "squares", (channels,))
    grid, block = (blocks(channels, COLUMNS), slices), (COLUMNS, ROWS)
    sum_columns[at(grid, block)](x, parts, SLICE_ROWS)
    sum_slices[over(channels)](parts, mean)
    scale_mean[over(channels)](mean, x.shape[0])
    shared_squares[at(grid, block)](x, mean, parts, SLICE_ROWS)
    sum_slices[over(channels)](parts, squares)
    invert[over(channels)](squares, inverse, x.shape[0], epsilon)


def launch_naive_forward(case: Case, arrays: Arrays) -> None:
    _forward(case, arrays, _naive_statistics)


def launch_shared_forward(case: Case, arrays: Arrays) -> None:
    _forward(case, arrays, _shared_statistics)


def _slopes(case: Case, arrays: Arrays, shared: bool, dweight: Any, dbias: Any) -> None:
    x, dy = as_matrix(arrays["x"]), as_matrix(arrays["dy"])
    channels = x.shape[1]
    mean, inverse = _statistics(case, arrays, x, _shared_statistics if shared else _naive_statistics)
    if not shared:
        naive_slopes[over(channels)](x, dy, mean, inverse, dweight, dbias)
        return
    slices = blocks(x.shape[0], SLICE_ROWS)
    parts = scratch(arrays, "slopes", (slices, channels))
    grid, block = (blocks(channels, COLUMNS), slices), (COLUMNS, ROWS)
    sum_columns[at(grid, block)](dy, parts, SLICE_ROWS)
    sum_slices[over(channels)](parts, dbias)
    shared_slopes[at(grid, block)](x, dy, mean, inverse, parts, SLICE_ROWS)
    sum_slices[over(channels)](parts, dweight)


def launch_backward_weight(shared: bool) -> Any:
    """Launcher of (x, dy) -> dweight, dbias; the statistics are computed again from x."""
    return lambda case, arrays: _slopes(case, arrays, shared, arrays["dweight"], arrays["dbias"])


def launch_backward_input(shared: bool) -> Any:
    """Launcher of (x, dy, weight) -> dx; needs the sums of the other gradient and makes them itself."""

    def launch(case: Case, arrays: Arrays) -> None:
        x, dy, dx = as_matrix(arrays["x"]), as_matrix(arrays["dy"]), as_matrix(arrays["dx"])
        dweight, dbias = (scratch(arrays, name, (x.shape[1],)) for name in ("dweight", "dbias"))
        _slopes(case, arrays, shared, dweight, dbias)
        mean, inverse = _saved(arrays, x.shape[1])
        batch = int(_uses_batch(case, arrays))
        backward_input[over(x.size)](x, dy, mean, inverse, arrays["weight"], dweight, dbias, dx, batch)

    return launch
