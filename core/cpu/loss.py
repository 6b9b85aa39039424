"""Kernels of softmax and of the losses, over the channels of one pixel. Sums are in float64."""

from __future__ import annotations

from math import exp, log, log1p

from core.cpu.context import CORRECT, INVERSE_WEIGHT, LABELS, LOSSES, TARGETS
from core.cpu.memory import floats, int32s, words

# Record: X logits or y, Y output or gradient, DX gradient of the input; all C floats.
X, Y, DX, CHANNELS, ACCUMULATE = range(1, 6)
SMOOTHING, WEIGHTS = 6, 7
"""Addresses of one float, and of C class weights."""


def run_softmax(record: int, context: int, image: int, low: int, high: int) -> None:
    """One task."""
    w = words(record)
    x, y = floats(w[X], w[CHANNELS]), floats(w[Y], w[CHANNELS])
    top, total = max(x), 0.0
    for c in range(len(x)):
        y[c] = exp(x[c] - top)
        total += y[c]
    for c in range(len(x)):
        y[c] /= total


def run_softmax_backward(record: int, context: int, image: int, low: int, high: int) -> None:
    """One task: ``dx = y (dy - sum of dy y)``; X is y, Y is dy."""
    w = words(record)
    y, dy, dx = floats(w[X], w[CHANNELS]), floats(w[Y], w[CHANNELS]), floats(w[DX], w[CHANNELS])
    total = 0.0
    for c in range(len(y)):
        total += dy[c] * y[c]
    for c in range(len(y)):
        dx[c] = y[c] * (dy[c] - total) + (dx[c] if w[ACCUMULATE] else 0.0)


def run_cross_entropy(record: int, context: int, image: int, low: int, high: int) -> None:
    """One task: the image's share of the loss, whether it is correct, and with DX the gradient of the logits."""
    w, run = words(record), words(context)
    x, weights = floats(w[X], w[CHANNELS]), floats(w[WEIGHTS], w[CHANNELS])
    smoothing, inverse = floats(w[SMOOTHING], 1)[0], floats(run[INVERSE_WEIGHT], 1)[0]
    label = int32s(run[LABELS] + image * 4, 1)[0]
    targets = floats(run[TARGETS] + image * w[CHANNELS] * 4, w[CHANNELS])
    best, total, finite = 0, 0.0, 0.0
    for c in range(len(x)):
        finite += x[c]
        if x[c] > x[best]:
            best = c
    for c in range(len(x)):
        total += exp(x[c] - x[best])
    offset = x[best] + log(total)
    loss, mass = 0.0, 0.0
    for c in range(len(x)):
        q = targets[c] if run[TARGETS] else smoothing / len(x) + (1 - smoothing if c == label else 0.0)
        target = q * weights[c] * inverse if label >= 0 else 0.0
        loss -= target * (x[c] - offset)
        mass += target
    if w[DX]:
        dx = floats(w[DX], w[CHANNELS])
        for c in range(len(x)):
            q = targets[c] if run[TARGETS] else smoothing / len(x) + (1 - smoothing if c == label else 0.0)
            target = q * weights[c] * inverse if label >= 0 else 0.0
            dx[c] = exp(x[c] - offset) * mass - target + (dx[c] if w[ACCUMULATE] else 0.0)
    floats(run[LOSSES] + image * 4, 1)[0] = loss + (finite - finite)  # NaN and infinity must show
    int32s(run[CORRECT] + image * 4, 1)[0] = 1 if label == best else 0


def run_binary_cross_entropy(record: int, context: int, image: int, low: int, high: int) -> None:
    """One task: the same for several labels, of which all must be correct."""
    w, run = words(record), words(context)
    x, targets = floats(w[X], w[CHANNELS]), floats(run[TARGETS] + image * w[CHANNELS] * 4, w[CHANNELS])
    known = int32s(run[LABELS] + image * 4, 1)[0] >= 0
    scale = floats(run[INVERSE_WEIGHT], 1)[0] / len(x) if known else 0.0
    loss, right = 0.0, known
    for c in range(len(x)):
        small = exp(-abs(x[c]))  # at most 1, however large the logit
        loss += max(x[c], 0.0) - targets[c] * x[c] + log1p(small)
        right = right and (x[c] > 0.0) == (targets[c] > 0.5)
        if w[DX]:
            p = (1.0 if x[c] >= 0.0 else small) / (1.0 + small)
            dx = floats(w[DX], w[CHANNELS])
            dx[c] = scale * (p - targets[c]) + (dx[c] if w[ACCUMULATE] else 0.0)
    floats(run[LOSSES] + image * 4, 1)[0] = scale * loss
    int32s(run[CORRECT] + image * 4, 1)[0] = 1 if right else 0
