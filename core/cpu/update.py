"""The optimizers of `core.ops.update` on flat arrays, in chunks that threads share, and the gradient's norm."""

from __future__ import annotations

from math import sqrt

import numpy as np
from numba import njit

from core.cpu.memory import bytes_at, doubles, floats, words

CHUNK: int = 4096
"""Floats of one task; the norm's partial sums are of chunks, so that threads do not change them."""

# Record. Addresses of flat arrays of COUNT floats; ROLE bytes say what learns; SUMS one float64 a chunk.
COUNT, WEIGHTS, GRADIENT, FIRST, SECOND, AVERAGE, ROLE, SETTINGS, RULE, SUMS = range(1, 11)
"""AVERAGE 0 keeps none; FIRST is the momentum of sgd."""

# Roles.
IDLE, LEARNS, DECAYS = range(3)

# Rules.
SGD, ADAM, ADAMW = range(3)

# Settings, float32, as `core.ops.update.scalars` and `Optimizer` give them.
(
    RATE, ROOT, SHRINK, EMA, CLIP, PARTS, MOMENTUM, NESTEROV, BETA1, REST1, BETA2, REST2, EPSILON, DECAY,
) = range(14)  # fmt: skip
SETTING_COUNT: int = 14


def run_norm(record, context, photo, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Sum of squares of every chunk of the gradient, in float64. Tasks are chunks."""
    w = words(record)
    gradient = floats(w[GRADIENT], w[COUNT])
    for task in range(low, high):
        total = 0.0
        for i in range(task * CHUNK, min(w[COUNT], (task + 1) * CHUNK)):
            total += float(gradient[i]) * float(gradient[i])
        doubles(w[SUMS], task + 1)[task] = total


def run_update(record, context, photo, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """One optimizer step. Tasks are chunks."""
    w = words(record)
    s = floats(w[SETTINGS], SETTING_COUNT)
    zero = np.float32(0)
    for task in range(low, high):
        start = task * CHUNK
        count = min(w[COUNT] - start, CHUNK)
        x, g = floats(w[WEIGHTS] + start * 4, count), floats(w[GRADIENT] + start * 4, count)
        first, second = floats(w[FIRST] + start * 4, count), floats(w[SECOND] + start * 4, count)
        role = bytes_at(w[ROLE] + start, count)
        if w[RULE] == SGD:
            for i in range(count):
                p = g[i] / s[PARTS] * s[CLIP] + (s[DECAY] * x[i] if role[i] == DECAYS else zero)
                m = s[MOMENTUM] * first[i] + p
                moved = p + s[MOMENTUM] * m if s[NESTEROV] > 0 else m
                first[i] = m if role[i] != IDLE else first[i]
                x[i] = x[i] - s[RATE] * moved if role[i] != IDLE else x[i]
        else:
            _adam(w, s, x, g, first, second, role)
        if w[AVERAGE]:
            average = floats(w[AVERAGE] + start * 4, count)
            for i in range(count):
                average[i] = s[EMA] * average[i] + (np.float32(1) - s[EMA]) * x[i]


@njit(inline="always")
def _adam(w, s, x, g, first, second, role):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    zero = np.float32(0)
    joined = s[DECAY] if w[RULE] == ADAM else zero
    shrink = s[SHRINK] if w[RULE] == ADAMW else np.float32(1)
    for i in range(len(x)):
        decays = role[i] == DECAYS
        old = x[i] * shrink if decays else x[i]
        p = g[i] / s[PARTS] * s[CLIP] + (joined * x[i] if decays else zero)
        m = s[BETA1] * first[i] + s[REST1] * p
        v = s[BETA2] * second[i] + s[REST2] * p * p
        new = old - s[RATE] * (m / (np.float32(sqrt(v)) * s[ROOT] + s[EPSILON]))
        learns = role[i] != IDLE
        first[i] = m if learns else first[i]
        second[i] = v if learns else second[i]
        x[i] = new if learns else x[i]
