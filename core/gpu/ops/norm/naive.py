"""Batch normalization over the last axis: statistics per channel, then one thread per element.

- naive:  one thread per channel loops over all pixels, twice for the statistics
- shared: blocks of 32 channels x 8 rows of threads, many blocks per channel; partial sums are added in shared memory
          in a fixed order. The mean first, then squared distances to it: as exact as naive
"""

from __future__ import annotations

import math

from core.gpu.compilation.arrays import Float, Int, Integers, Matrix, Vector, float32, float64
from core.gpu.compilation.cuda import cuda
from core.gpu.teaching.column_sums import COLUMNS, ROWS, SLICE_ROWS, add_lines, launch_sum_columns, sum_rows
from core.gpu.teaching.kernel import DeviceArray, Where, as_matrix, at, blocks, kernel, over
from core.gpu.teaching.step_arrays import StepArrays
from core.ops.registry import KernelCase


@kernel
def naive_statistics(
    x: Matrix, mean: Vector, inverse: Vector, images: Integers, area: Int, epsilon: Float
) -> None:
    """Mean, and one over the deviation, of each column of x (pixels, C); `images` of `area` pixels are real."""
    c = cuda.grid(1)
    if c < x.shape[1]:
        pixels = images[0] * area
        total = float32(0)
        for p in range(pixels):
            total += x[p, c]
        center = total / float32(pixels)
        square = float32(0)
        for p in range(pixels):
            square += (x[p, c] - center) * (x[p, c] - center)
        mean[c] = center
        inverse[c] = 1.0 / math.sqrt(square / pixels + epsilon)


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
def shared_sums(x: Matrix, mean: Vector, parts: Matrix, images: Integers, area: Int, squares: Int) -> None:
    """Sums of x, or of squared distances to the mean: parts (slices, C) of `SLICE_ROWS` pixels each."""
    sums = cuda.shared.array((ROWS, COLUMNS), float32)
    lane, line = cuda.threadIdx.x, cuda.threadIdx.y
    c = cuda.blockIdx.x * COLUMNS + lane
    first = cuda.blockIdx.y * SLICE_ROWS
    total = float32(0)
    if c < x.shape[1]:
        for p in range(first + line, min(first + SLICE_ROWS, images[0] * area), ROWS):
            total += (x[p, c] - mean[c]) * (x[p, c] - mean[c]) if squares else x[p, c]
    total = add_lines(sums, total)
    if line == 0 and c < x.shape[1]:
        parts[cuda.blockIdx.y, c] = total


@kernel
def finish_sums(parts: Matrix, out: Vector, images: Integers, area: Int, squares: Int, epsilon: Float) -> None:
    """The mean from its slices, added in their order; or one over the deviation."""
    c = cuda.grid(1)
    if c < out.size:
        total = float32(0)
        for s in range(parts.shape[0]):
            total += parts[s, c]
        mean = total / float32(images[0] * area)
        out[c] = 1.0 / math.sqrt(mean + epsilon) if squares else mean


@kernel
def naive_gradients(x: Matrix, dy: Matrix, mean: Vector, inverse: Vector, dweight: Vector, dbias: Vector) -> None:
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


@kernel
def shared_gradient(x: Matrix, dy: Matrix, mean: Vector, inverse: Vector, parts: Matrix, rows_each: Int) -> None:
    """The sum of dy times the normalised x: parts (slices, C)."""
    sums = cuda.shared.array((ROWS, COLUMNS), float32)
    lane, line = cuda.threadIdx.x, cuda.threadIdx.y
    c = cuda.blockIdx.x * COLUMNS + lane
    first = cuda.blockIdx.y * rows_each
    total = float32(0)
    if c < x.shape[1]:
        for p in range(first + line, min(first + rows_each, x.shape[0]), ROWS):
            total += dy[p, c] * (x[p, c] - mean[c]) * inverse[c]
    total = add_lines(sums, total)
    if line == 0 and c < x.shape[1]:
        parts[cuda.blockIdx.y, c] = total


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


def _uses_batch(case: KernelCase, arrays: StepArrays) -> bool:
    return arrays.training and not case.attributes["frozen"]


def _number(case: KernelCase, name: str) -> float:
    return float(str(case.attributes[name]))


def _pixels(arrays: StepArrays) -> tuple[DeviceArray, int]:
    """The batch's real images, and the pixels per image; images that only fill the batch count nowhere."""
    x = arrays["x"]
    return arrays["photos"], x.size // (x.shape[0] * x.shape[-1])


def _slices(parts: DeviceArray) -> Where:
    """The blocks that sum slices of pixels."""
    return at((blocks(parts.shape[1], COLUMNS), parts.shape[0]), (COLUMNS, ROWS))


def _statistics(case: KernelCase, arrays: StepArrays, shared: bool) -> tuple[DeviceArray, DeviceArray]:
    """Mean, and one over the deviation, of each channel."""
    x, epsilon = as_matrix(arrays["x"]), _number(case, "epsilon")
    channels = x.shape[1]
    mean, inverse = arrays.scratch("mean", (channels,)), arrays.scratch("inverse", (channels,))
    if not _uses_batch(case, arrays):
        take_running[over(channels)](arrays["running_mean"], arrays["running_var"], mean, inverse, epsilon)
    elif not shared:
        naive_statistics[over(channels)](x, mean, inverse, *_pixels(arrays), epsilon)
    else:
        parts = arrays.scratch("sums", (blocks(x.shape[0], SLICE_ROWS), channels))
        for out, squares in ((mean, 0), (inverse, 1)):
            shared_sums[_slices(parts)](x, mean, parts, *_pixels(arrays), squares)
            finish_sums[over(channels)](parts, out, *_pixels(arrays), squares, epsilon)
    return mean, inverse


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
) -> tuple[DeviceArray, DeviceArray]:
    """Note the launches of both sums over pixels; returns the mean and one over the deviation."""
    x, dy = as_matrix(arrays["x"]), as_matrix(arrays["dy"])
    mean, inverse = _statistics(case, arrays, shared)
    if shared:
        launch_sum_columns(dy, dbias)
        parts = arrays.scratch("gradients", (blocks(x.shape[0], SLICE_ROWS), x.shape[1]))
        shared_gradient[_slices(parts)](x, dy, mean, inverse, parts, SLICE_ROWS)
        sum_rows[over(dweight.size)](parts, dweight)
    else:
        naive_gradients[over(x.shape[1])](x, dy, mean, inverse, dweight, dbias)
    return mean, inverse


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
