"""ReLU, ReLU6, sigmoid, add, concat: nothing to share between threads, so bytes per second are all that counts.

- naive:      one thread per element
- vectorised: one thread per four elements in 16-byte accesses: a quarter of the instructions for the same bytes
"""

from __future__ import annotations

import math
from typing import Any, Final

from core.gpu.compilation.cuda import cuda, device_function
from core.gpu.driver.hosted import Arrays, Launcher, as_matrix, flat, over
from core.gpu.kernels.ladder.arrays import Int, Matrix, Vector, float32
from core.gpu.kernels.ladder.vector import load4, store4
from core.ops.registry import Case


@device_function
def relu(x):
    return max(x, float32(0))


@device_function
def relu6(x):
    return min(max(x, float32(0)), float32(6))


@device_function
def sigmoid(x):
    small = math.exp(-abs(x))  # of a negative number: cannot overflow
    return float32((float32(1) if x >= 0 else small) / (float32(1) + small))


@device_function
def relu_slope(y, dy):
    return dy if y > 0 else float32(0)


@device_function
def relu6_slope(y, dy):
    return dy if 0 < y < 6 else float32(0)


@device_function
def sigmoid_slope(y, dy):
    return dy * y * (float32(1) - y)


@device_function
def plus(a, b):
    return a + b


def make_map(function: Any) -> tuple[Any, Any]:
    """(naive, vectorised) kernels of ``out = function(x)`` on flat arrays."""

    @cuda.jit
    def naive(x: Vector, out: Vector) -> None:
        i = cuda.grid(1)
        if i < out.size:
            out[i] = function(x[i])

    @cuda.jit
    def vectorised(x: Vector, out: Vector) -> None:
        i = cuda.grid(1) * 4
        if i + 3 < out.size:
            v = load4(x, i)
            store4(out, i, function(v[0]), function(v[1]), function(v[2]), function(v[3]))
        else:
            for k in range(i, out.size):  # the last three at most
                out[k] = function(x[k])

    return naive, vectorised


def make_zip(function: Any) -> tuple[Any, Any]:
    """(naive, vectorised) kernels of ``out = function(a, b)`` on flat arrays."""

    @cuda.jit
    def naive(a: Vector, b: Vector, out: Vector) -> None:
        i = cuda.grid(1)
        if i < out.size:
            out[i] = function(a[i], b[i])

    @cuda.jit
    def vectorised(a: Vector, b: Vector, out: Vector) -> None:
        i = cuda.grid(1) * 4
        if i + 3 < out.size:
            v = load4(a, i)
            w = load4(b, i)
            store4(out, i, function(v[0], w[0]), function(v[1], w[1]), function(v[2], w[2]), function(v[3], w[3]))
        else:
            for k in range(i, out.size):
                out[k] = function(a[k], b[k])

    return naive, vectorised


naive_relu, vectorised_relu = make_map(relu)
naive_relu6, vectorised_relu6 = make_map(relu6)
naive_sigmoid, vectorised_sigmoid = make_map(sigmoid)
naive_relu_slope, vectorised_relu_slope = make_zip(relu_slope)
naive_relu6_slope, vectorised_relu6_slope = make_zip(relu6_slope)
naive_sigmoid_slope, vectorised_sigmoid_slope = make_zip(sigmoid_slope)
naive_add, vectorised_add = make_zip(plus)


@cuda.jit
def copy_channels(source: Matrix, target: Matrix, source_at: Int, target_at: Int, channels: Int) -> None:
    """Channels of source (pixels, C) from `source_at` to those of target from `target_at`: concat and its gradient."""
    i = cuda.grid(1)
    if i < source.shape[0] * channels:
        pixel, c = i // channels, i % channels
        target[pixel, target_at + c] = source[pixel, source_at + c]


@cuda.jit
def copy(x: Vector, out: Vector) -> None:
    """The gradient of add: both inputs get it as it is."""
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i]


def launch_forward(kernel: Any, each: int = 1) -> Launcher:
    """Launcher of a map x -> out; `each` elements a thread."""

    def launch(case: Case, arrays: Arrays) -> None:
        out = flat(arrays["out"])
        kernel[over(out.size, each)](flat(arrays["x"]), out)

    return launch


def launch_backward(kernel: Any, each: int = 1) -> Launcher:
    """Launcher of a gradient (out, dy) -> dx."""

    def launch(case: Case, arrays: Arrays) -> None:
        dx = flat(arrays["dx"])
        kernel[over(dx.size, each)](flat(arrays["out"]), flat(arrays["dy"]), dx)

    return launch


def launch_add(kernel: Any, each: int = 1) -> Launcher:
    """Launcher of (x, x2) -> out."""

    def launch(case: Case, arrays: Arrays) -> None:
        out = flat(arrays["out"])
        kernel[over(out.size, each)](flat(arrays["x"]), flat(arrays["x2"]), out)

    return launch


def launch_add_backward(case: Case, arrays: Arrays) -> None:
    for name in ("dx", "dx2"):
        dx = flat(arrays[name])
        copy[over(dx.size)](flat(arrays["dy"]), dx)


def numbered(name: str, k: int) -> str:
    """Name of the k-th input: x, x2, x3 ..."""
    return name if k == 0 else f"{name}{k + 1}"


def launch_concat(case: Case, arrays: Arrays) -> None:
    at = 0
    for k in range(len(case.inputs)):
        source = as_matrix(arrays[numbered("x", k)])
        copy_channels[over(source.size)](source, as_matrix(arrays["out"]), 0, at, source.shape[1])
        at += source.shape[1]


def launch_concat_backward(case: Case, arrays: Arrays) -> None:
    at = 0
    for k in range(len(case.inputs)):
        target = as_matrix(arrays[numbered("dx", k)])
        copy_channels[over(target.size)](as_matrix(arrays["dy"]), target, at, 0, target.shape[1])
        at += target.shape[1]


ELEMENTS: Final = 4
"""Elements of a vectorised thread."""
