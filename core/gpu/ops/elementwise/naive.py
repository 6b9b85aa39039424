"""Activations, sums, products with factors, concatenation and dropout, naive: one thread per element.

Threads share no data, so memory bandwidth alone decides the speed.
"""

from __future__ import annotations

from functools import partial

from core.gpu.compilation.arrays import Cube, Float, Int, Integers, Matrix, Vector, float32
from core.gpu.compilation.cuda import cuda, u32
from core.gpu.ops.elementwise.activations import ACTIVATIONS
from core.gpu.ops.elementwise.combine import element_bits, image_words
from core.gpu.teaching.kernel import TeachingKernel, as_matrix, kernel, over
from core.gpu.teaching.step_arrays import StepArrays
from core.ops.registry import KernelCase, numbered


def make_activation(op: str) -> TeachingKernel:
    """Kernel of an activation on flat arrays, by its formula in `ACTIVATIONS`."""
    function, _ = ACTIVATIONS[op]

    @partial(TeachingKernel, made_by=("make_activation", op))
    def activation(x: Vector, out: Vector) -> None:
        i = cuda.grid(1)
        if i < out.size:
            out[i] = function(x[i])

    return activation


def make_gradient(op: str) -> TeachingKernel:
    """Kernel of its gradient, from the output or, where `needs_input` says so, from the input."""
    _, function = ACTIVATIONS[op]

    @partial(TeachingKernel, made_by=("make_gradient", op))
    def gradient(y: Vector, dy: Vector, dx: Vector) -> None:
        i = cuda.grid(1)
        if i < dx.size:
            dx[i] = function(dy[i], y[i])

    return gradient


@kernel
def naive_add(a: Vector, b: Vector, out: Vector) -> None:
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a[i] + b[i]


@kernel
def naive_scale(x: Cube, factors: Matrix, out: Cube) -> None:
    """x (N, pixels, C) times one factor for each image and channel, (N, C)."""
    i = cuda.grid(1)
    if i < out.size:
        n, p, c = i // (x.shape[1] * x.shape[2]), i // x.shape[2] % x.shape[1], i % x.shape[2]
        out[n, p, c] = x[n, p, c] * factors[n, c]


@kernel
def naive_factor_gradient(dy: Cube, x: Cube, out: Matrix) -> None:
    """One thread per factor loops over the pixels of its image."""
    i = cuda.grid(1)
    if i < out.size:
        n, c = i // out.shape[1], i % out.shape[1]
        total = float32(0)
        for p in range(x.shape[1]):
            total += dy[n, p, c] * x[n, p, c]
        out[n, c] = total


@kernel
def copy_channels(source: Matrix, target: Matrix, source_at: Int, target_at: Int, channels: Int) -> None:
    """Channels of source (pixels, C) from `source_at` to those of target from `target_at`: concat and gradients."""
    i = cuda.grid(1)
    if i < source.shape[0] * channels:
        pixel, c = i // channels, i % channels
        target[pixel, target_at + c] = source[pixel, source_at + c]


def launch_concat(case: KernelCase, arrays: StepArrays) -> None:
    channel = 0
    for k in range(len(case.inputs)):
        source = as_matrix(arrays[numbered("x", k)])
        copy_channels[over(source.size)](source, as_matrix(arrays["out"]), 0, channel, source.shape[1])
        channel += source.shape[1]


def launch_copies(case: KernelCase, arrays: StepArrays) -> None:
    """The gradients of the inputs of a sum, all of dy, and of a concatenation, its channels one after another."""
    channel = 0
    for k in range(len(case.inputs)):
        target = as_matrix(arrays[numbered("dx", k)])
        copy_channels[over(target.size)](as_matrix(arrays["dy"]), target, channel, 0, target.shape[1])
        channel += target.shape[1] if case.op == "concat" else 0


@kernel
def naive_dropout(
    x: Vector, out: Vector, seed: Integers, step: Integers, photo0: Integers, volume: Int, key: Int, limit: Int,
    scale: Float,
) -> None:  # fmt: skip
    """``out = x scale`` where the element's bits reach `limit`, else 0; `volume` elements an image."""
    i = cuda.grid(1)
    if i < out.size:
        words = image_words(u32(seed[0]), u32(step[0]), u32(key), u32(photo0[0] + i // volume))
        kept = element_bits(u32(i % volume), words) >= limit
        out[i] = x[i] * float32(scale) if kept else float32(0)
