"""The optimizers on flat arrays, one thread per weight (`core.optim.optimizer` is the reference).

- naive: sgd and adam as written in their papers; clipping and the scalars of the step come from the host
"""

from __future__ import annotations

import math
from typing import Any

from core.gpu.compilation.cuda import cuda
from core.gpu.driver.hosted import Arrays, over
from core.gpu.kernels.ladder.arrays import Float, Int, Vector, float32
from core.ops.registry import Case
from core.optim.optimizer import Optimizer, clip_factor, gradient_norm, scalars


@cuda.jit
def naive_descent(weights: Vector, gradient: Vector, rate: Float) -> None:
    """``weights -= rate gradient``: plain gradient descent, the first lesson."""
    i = cuda.grid(1)
    if i < weights.size:
        weights[i] -= float32(rate) * gradient[i]


@cuda.jit
def naive_sgd(
    weights: Vector, gradient: Vector, momentum: Vector, decayed: Vector,
    rate: Float, factor: Float, decay: Float, keep: Float, nesterov: Int,
) -> None:
    """``momentum = keep momentum + g``; the weights step along it, or along ``g + keep momentum`` (Nesterov)."""
    i = cuda.grid(1)
    if i < weights.size:
        g = gradient[i] * float32(factor) + decayed[i] * float32(decay) * weights[i]
        moved = float32(keep) * momentum[i] + g
        momentum[i] = moved
        if nesterov:
            moved = g + float32(keep) * moved
        weights[i] -= float32(rate) * moved


@cuda.jit
def naive_adam(
    weights: Vector, gradient: Vector, first: Vector, second: Vector, decayed: Vector,
    rate: Float, root: Float, shrink: Float, factor: Float, decay: Float, beta1: Float, beta2: Float, epsilon: Float,
) -> None:
    """Adam (decay joins the gradient) and AdamW (shrink < 1 pulls the decayed weights, decay is 0)."""
    i = cuda.grid(1)
    if i < weights.size:
        w = weights[i]
        g = gradient[i] * float32(factor) + decayed[i] * float32(decay) * w
        if decayed[i] > 0:
            w *= float32(shrink)
        m = float32(beta1) * first[i] + float32(1.0 - beta1) * g
        v = float32(beta2) * second[i] + float32(1.0 - beta2) * g * g
        first[i] = m
        second[i] = v
        weights[i] = w - float32(rate) * (m / (float32(math.sqrt(v)) * float32(root) + float32(epsilon)))


@cuda.jit
def average_weights(weights: Vector, average: Vector, decay: Float) -> None:
    i = cuda.grid(1)
    if i < weights.size:
        average[i] = float32(decay) * average[i] + float32(1.0 - decay) * weights[i]


def launch_naive(case: Case, arrays: Arrays) -> None:
    """One step on device arrays "weights", "gradient", "decayed" (0 or 1) and the optimizer's state by name.

    "optimizer", "learning_rate" and "step" (from 1) are plain values in the same dict.
    """
    optimizer: Optimizer = arrays["optimizer"]
    now = scalars(optimizer, arrays["learning_rate"], arrays["step"])
    weights, gradient, decayed = arrays["weights"], arrays["gradient"], arrays["decayed"]
    factor = clip_factor(optimizer, gradient_norm(gradient.copy_to_host())) if optimizer.clip_norm > 0 else 1.0
    shared: tuple[Any, ...]
    if optimizer.name == "sgd":
        shared = (now.rate, factor, optimizer.weight_decay, optimizer.momentum, int(optimizer.nesterov))
        naive_sgd[over(weights.size)](weights, gradient, arrays["momentum"], decayed, *shared)
    else:
        decay = 0.0 if optimizer.name == "adamw" else optimizer.weight_decay
        shared = (now.rate, now.root, now.shrink, factor, decay, optimizer.beta1, optimizer.beta2, optimizer.epsilon)
        naive_adam[over(weights.size)](weights, gradient, arrays["first"], arrays["second"], decayed, *shared)
    if optimizer.average > 0:
        average_weights[over(weights.size)](weights, arrays["average"], now.average)
