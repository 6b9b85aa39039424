"""The optimizers of `core.optim.optimizer` on flat arrays, in chunks that threads share, and the gradient's norm."""

from __future__ import annotations

import numpy as np
from numba import njit

from core.cpu.memory import bytes_at, doubles, floats, words

CHUNK: int = 4096
"""Floats of one task; the norm's partial sums are of chunks, so that threads do not change them."""

# Record. Addresses of flat arrays of COUNT floats; ROLE bytes say what is trained; SUMS one float64 a chunk.
COUNT, WEIGHTS, GRADIENT, FIRST, SECOND, AVERAGE, ROLE, SETTINGS, RULE, SUMS = range(1, 11)
"""AVERAGE 0 keeps none; FIRST is the momentum of sgd."""

# Roles.
IDLE, LEARNS, DECAYS = range(3)

# Rules.
SGD, ADAM, ADAMW = range(3)

# Settings, float32, as `core.optim.optimizer.scalars` and `Optimizer` give them.
RATE, ROOT, SHRINK, EMA, CLIP, PARTS, MOMENTUM, NESTEROV, BETA1, REST1, BETA2, REST2, EPSILON, DECAY = range(14)
SETTING_COUNT: int = 14


def run_norm(record, context, image, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Sum of squares of every chunk of the gradient, in float64. Tasks are chunks."""
    w = words(record)
    gradient = floats(w[GRADIENT], w[COUNT])
    for task in range(low, high):
        total = 0.0
        for i in range(task * CHUNK, min(w[COUNT], (task + 1) * CHUNK)):
            total += float(gradient[i]) * float(gradient[i])
        doubles(w[SUMS], task + 1)[task] = total


def run_update(record, context, image, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """One optimizer step. Tasks are chunks."""
    w = words(record)
    s = floats(w[SETTINGS], SETTING_COUNT)
    for task in range(low, high):
        start = task * CHUNK
        count = min(w[COUNT] - start, CHUNK)
        x, g = floats(w[WEIGHTS] + start * 4, count), floats(w[GRADIENT] + start * 4, count)
        first, second = floats(w[FIRST] + start * 4, count), floats(w[SECOND] + start * 4, count)
        role = bytes_at(w[ROLE] + start, count)
        if w[RULE] == SGD:
            _sgd(s, x, g, first, role)
        else:
            _adam(w, s, x, g, first, second, role)
        if w[AVERAGE]:
            average = floats(w[AVERAGE] + start * 4, count)
            ema, rest = s[EMA], np.float32(1) - s[EMA]
            for i in range(count):
                average[i] = ema * average[i] + rest * x[i]


@njit(inline="always")
def _sgd(s, x, g, first, role):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    scale, decay, momentum, rate = s[CLIP] / s[PARTS], s[DECAY], s[MOMENTUM], s[RATE]
    own = np.float32(1) if s[NESTEROV] > 0 else np.float32(0)
    behind = momentum if s[NESTEROV] > 0 else np.float32(1)
    for i in range(len(x)):
        p = g[i] * scale + (decay if role[i] == DECAYS else np.float32(0)) * x[i]
        m = momentum * first[i] + p
        learns = role[i] != IDLE
        first[i] = m if learns else first[i]
        x[i] = x[i] - rate * (own * p + behind * m) if learns else x[i]


@njit(inline="always")
def _adam(w, s, x, g, first, second, role):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    zero, one = np.float32(0), np.float32(1)
    joined = s[DECAY] if w[RULE] == ADAM else zero
    shrink = s[SHRINK] if w[RULE] == ADAMW else one
    scale, rate, root, epsilon = s[CLIP] / s[PARTS], s[RATE], s[ROOT], s[EPSILON]
    beta1, rest1, beta2, rest2 = s[BETA1], s[REST1], s[BETA2], s[REST2]
    for i in range(len(x)):
        decays = role[i] == DECAYS
        p = g[i] * scale + (joined if decays else zero) * x[i]
        m = beta1 * first[i] + rest1 * p
        v = beta2 * second[i] + rest2 * p * p
        new = x[i] * (shrink if decays else one) - rate * (m / (np.sqrt(v) * root + epsilon))
        learns = role[i] != IDLE
        first[i] = m if learns else first[i]
        second[i] = v if learns else second[i]
        x[i] = new if learns else x[i]
