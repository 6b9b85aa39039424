"""Softmax, and softmax with cross entropy, naive: one thread per row reads it three times (largest, sum, result)."""

from __future__ import annotations

import math

from core.gpu.compilation.arrays import Float, Integers, Matrix, Vector, float32
from core.gpu.compilation.cuda import cuda, device_function
from core.gpu.teaching.kernel import DeviceArray, Where, kernel, over


@device_function
def log_sum(x: Matrix, n: int):
    """Largest of row n and the logarithm of the sum of exp(x - largest)."""
    top = x[n, 0]
    for c in range(1, x.shape[1]):
        top = max(top, x[n, c])
    total = float32(0)
    for c in range(x.shape[1]):
        total += float32(math.exp(x[n, c] - top))
    return top, float32(math.log(total))


@kernel
def naive_forward(x: Matrix, out: Matrix) -> None:
    n = cuda.grid(1)
    if n < x.shape[0]:
        top, rest = log_sum(x, n)
        for c in range(x.shape[1]):
            out[n, c] = math.exp(x[n, c] - top - rest)


@kernel
def naive_backward(out: Matrix, dy: Matrix, dx: Matrix) -> None:
    """``dx = out (dy - sum(dy out))``."""
    n = cuda.grid(1)
    if n < out.shape[0]:
        total = float32(0)
        for c in range(out.shape[1]):
            total += dy[n, c] * out[n, c]
        for c in range(out.shape[1]):
            dx[n, c] = out[n, c] * (dy[n, c] - total)


@device_function
def target(n, label, c, weights: Vector, targets: Matrix, smoothing):
    """Photo n's own target of class c, else the smoothed one, times its weight, before the division by the batch's."""
    if targets.shape[0] > 0:
        return targets[n, c] * weights[c]
    share = smoothing / weights.size
    if c == label:
        share += 1.0 - smoothing
    return float32(share) * weights[c]


@device_function
def batch_weight(labels: Integers, weights: Vector):
    """Sum of the labels' weights, 1 where nothing is labelled."""
    total = float32(0)
    for n in range(labels.size):
        if labels[n] >= 0:
            total += weights[labels[n]]
    return total if total > 0 else float32(1)


@kernel
def naive_loss_forward(
    x: Matrix, labels: Integers, class_weights: Vector, targets: Matrix, out: Matrix, smoothing: Float
) -> None:
    """One thread per photo: its share of the mean loss, into out (N, 1)."""
    n = cuda.grid(1)
    if n < x.shape[0]:
        share = float32(0)
        if labels[n] >= 0:
            top, rest = log_sum(x, n)
            for c in range(x.shape[1]):
                share -= target(n, labels[n], c, class_weights, targets, smoothing) * (x[n, c] - top - rest)
        out[n, 0] = share / batch_weight(labels, class_weights)


@kernel
def naive_loss_backward(
    x: Matrix, labels: Integers, class_weights: Vector, targets: Matrix, dy: Matrix, dx: Matrix, smoothing: Float
) -> None:
    """``dx = dy (p sum(target) - target)``, one thread per photo."""
    n = cuda.grid(1)
    if n >= x.shape[0]:
        return
    top, rest = log_sum(x, n)
    total = float32(0)
    for c in range(x.shape[1]):
        total += target(n, labels[n], c, class_weights, targets, smoothing)
    scale = dy[n, 0] / batch_weight(labels, class_weights) if labels[n] >= 0 else float32(0)
    for c in range(x.shape[1]):
        p = float32(math.exp(x[n, c] - top - rest))
        dx[n, c] = scale * (p * total - target(n, labels[n], c, class_weights, targets, smoothing))


def per_row(result: DeviceArray) -> Where:
    return over(result.size // result.shape[-1])
