"""Batch normalization over the last axis: sums over the pixels of each channel, then one thread per element.

- naive:  one thread per channel loops over all pixels
- shared: blocks of 32 channels x 8 rows of threads, many blocks per channel; partial sums are added in shared memory
          in a fixed order

Both levels run the same kernels with different grids. The mean comes first, then the squared distances to it.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Final, TypeAlias

from core.gpu.compilation.arrays import Float, Int, Integers, Matrix, Vector, float32, float64
from core.gpu.compilation.cuda import cuda, device_function
from core.gpu.launch import blocks_of
from core.gpu.teaching.column_sums import COLUMNS, ROWS, SLICE_ROWS, add_lines
from core.gpu.teaching.kernel import DeviceArray, TeachingKernel, as_matrix, at, kernel, over
from core.gpu.teaching.step_arrays import StepArrays
from core.ops.registry import KernelCase

TERMS: Final = {
    "x": device_function(lambda x, dy, mean, inverse: x),
    "square": device_function(lambda x, dy, mean, inverse: (x - mean) * (x - mean)),
    "dy": device_function(lambda x, dy, mean, inverse: dy),
    "product": device_function(lambda x, dy, mean, inverse: dy * (x - mean) * inverse),
}
"""What is summed over the pixels of a channel: for the mean, the deviation, dbias and dweight."""


def make_sums(name: str) -> TeachingKernel:
    """Kernel of the sums of a term: partials (slices, C), each of `rows_each` pixels; `images` of `area` are real."""
    term = TERMS[name]

    @partial(TeachingKernel, made_by=("make_sums", name))
    def sums(
        x: Matrix, dy: Matrix, mean: Vector, inverse: Vector, partials: Matrix, images: Integers, area: Int,
        rows_each: Int,
    ) -> None:
        lines = cuda.shared.array((ROWS, COLUMNS), float32)
        line = cuda.threadIdx.y
        c = cuda.blockIdx.x * COLUMNS + cuda.threadIdx.x
        first = cuda.blockIdx.y * rows_each
        total = float32(0)
        if c < x.shape[1]:
            for p in range(first + line, min(first + rows_each, images[0] * area), cuda.blockDim.y):
                total += term(x[p, c], dy[p, c], mean[c], inverse[c])
        total = add_lines(lines, total)
        if line == 0 and c < x.shape[1]:
            partials[cuda.blockIdx.y, c] = total

    return sums


@kernel
def finish_sums(
    partials: Matrix, out: Vector, images: Integers, area: Int, mean: Int, deviation: Int, epsilon: Float
) -> None:
    """The sum of the slices in their order; if asked, the mean over the pixels, or one over the deviation."""
    c = cuda.grid(1)
    if c < out.size:
        total = float32(0)
        for s in range(partials.shape[0]):
            total += partials[s, c]
        if mean:
            total /= float32(images[0] * area)
        out[c] = 1.0 / math.sqrt(total + epsilon) if deviation else total


@kernel
def take_running(running_mean: Vector, running_var: Vector, mean: Vector, inverse: Vector, epsilon: Float) -> None:
    """Inference, and frozen layers: the running statistics are the statistics."""
    c = cuda.grid(1)
    if c < mean.size:
        mean[c] = running_mean[c]
        inverse[c] = 1.0 / math.sqrt(running_var[c] + epsilon)


@kernel
def move_running(
    mean: Vector, inverse: Vector, running_mean: Vector, running_var: Vector, images: Integers, area: Int, rate: Float,
    epsilon: Float,
) -> None:  # fmt: skip
    """Running statistics move by `rate`; the variance that `inverse` holds is made unbiased."""
    c = cuda.grid(1)
    if c < mean.size:
        pixels = images[0] * area
        variance = (1.0 / (float64(inverse[c]) * inverse[c]) - epsilon) * pixels / max(pixels - 1, 1)
        running_mean[c] = (1.0 - rate) * running_mean[c] + rate * mean[c]
        running_var[c] = (1.0 - rate) * running_var[c] + rate * variance


@kernel
def normalise(x: Matrix, mean: Vector, inverse: Vector, weight: Vector, bias: Vector, out: Matrix) -> None:
    i = cuda.grid(1)
    if i < x.size:
        p, c = i // x.shape[1], i % x.shape[1]
        out[p, c] = (x[p, c] - mean[c]) * (inverse[c] * weight[c]) + bias[c]


@kernel
def backward_input(
    x: Matrix, dy: Matrix, mean: Vector, inverse: Vector, weight: Vector, dweight: Vector, dbias: Vector, dx: Matrix,
    images: Integers, area: Int, batch_statistics: Int,
) -> None:  # fmt: skip
    """``dx = weight inverse (dy - mean(dy) - normal mean(dy normal))``; only the first term with running statistics."""
    i = cuda.grid(1)
    if i < x.size:
        p, c, pixels = i // x.shape[1], i % x.shape[1], images[0] * area
        gradient = dy[p, c]
        if batch_statistics:
            normal = (x[p, c] - mean[c]) * inverse[c]
            gradient -= (dbias[c] + normal * dweight[c]) / float32(pixels)
        dx[p, c] = gradient * (weight[c] * inverse[c]) if p < pixels else float32(0)


Statistics: TypeAlias = tuple[DeviceArray, DeviceArray]
"""Mean, and one over the deviation, of each channel."""


def _uses_batch(case: KernelCase, arrays: StepArrays) -> bool:
    return arrays.training and not case.attributes["frozen"]


def _number(case: KernelCase, name: str) -> float:
    return float(str(case.attributes[name]))


def _pixels(arrays: StepArrays) -> tuple[DeviceArray, int]:
    """The batch's real images, and the pixels per image; images that only fill the batch count nowhere."""
    x = arrays["x"]
    return arrays["photos"], x.size // (x.shape[0] * x.shape[-1])


def _sum(
    term: str, shared: bool, arrays: StepArrays, statistics: Statistics, out: DeviceArray, epsilon: float = 0.0
) -> None:
    """Note the launches of one sum; that of "x" becomes the mean, that of "square" one over the deviation."""
    x = as_matrix(arrays["x"])
    dy = as_matrix(arrays["dy"]) if term in ("dy", "product") else x
    slices, rows, lines = (blocks_of(x.shape[0], SLICE_ROWS), SLICE_ROWS, ROWS) if shared else (1, x.shape[0], 1)
    partials, grid = arrays.scratch("sums", (slices, x.shape[1])), (blocks_of(x.shape[1], COLUMNS), slices)
    make_sums(term)[at(grid, (COLUMNS, lines))](x, dy, *statistics, partials, *_pixels(arrays), rows)
    kinds = int(term in ("x", "square")), int(term == "square")
    finish_sums[over(out.size)](partials, out, *_pixels(arrays), *kinds, epsilon)


def _statistics(case: KernelCase, arrays: StepArrays, shared: bool) -> Statistics:
    channels, epsilon = arrays["x"].shape[-1], _number(case, "epsilon")
    statistics = mean, inverse = arrays.scratch("mean", (channels,)), arrays.scratch("inverse", (channels,))
    if _uses_batch(case, arrays):
        _sum("x", shared, arrays, statistics, mean)
        _sum("square", shared, arrays, statistics, inverse, epsilon)
    else:
        take_running[over(channels)](arrays["running_mean"], arrays["running_var"], mean, inverse, epsilon)
    return statistics


def launch_forward(shared: bool, case: KernelCase, arrays: StepArrays) -> None:
    """x -> out, and new running statistics."""
    x, out = as_matrix(arrays["x"]), as_matrix(arrays["out"])
    mean, inverse = _statistics(case, arrays, shared)
    if _uses_batch(case, arrays):
        numbers = _number(case, "momentum"), _number(case, "epsilon")
        running = arrays["running_mean"], arrays["running_var"]
        move_running[over(mean.size)](mean, inverse, *running, *_pixels(arrays), *numbers)
    normalise[over(x.size)](x, mean, inverse, arrays["weight"], arrays["bias"], out)


def _gradients(
    case: KernelCase, arrays: StepArrays, shared: bool, dweight: DeviceArray, dbias: DeviceArray
) -> Statistics:
    """Note the launches of both sums over pixels, and of the statistics before them."""
    statistics = _statistics(case, arrays, shared)
    _sum("dy", shared, arrays, statistics, dbias)
    _sum("product", shared, arrays, statistics, dweight)
    return statistics


def launch_backward_weight(shared: bool, case: KernelCase, arrays: StepArrays) -> None:
    """(x, dy) -> dweight, dbias; the statistics are computed again from x."""
    bias = arrays["dbias"] if "dbias" in arrays else arrays.scratch("dbias", arrays["bias"].shape)
    _gradients(case, arrays, shared, arrays["dweight"], bias)


def launch_backward_input(shared: bool, case: KernelCase, arrays: StepArrays) -> None:
    """(x, dy, weight) -> dx; computes the sums of the other gradient again."""
    x, dy, dx = as_matrix(arrays["x"]), as_matrix(arrays["dy"]), as_matrix(arrays["dx"])
    dweight, dbias = (arrays.scratch(name, (x.shape[1],)) for name in ("sum weight", "sum bias"))
    mean, inverse = _gradients(case, arrays, shared, dweight, dbias)
    batch = int(_uses_batch(case, arrays))
    backward_input[over(x.size)](x, dy, mean, inverse, arrays["weight"], dweight, dbias, dx, *_pixels(arrays), batch)
