"""Batch normalisation: sums per image, one merge per batch, then a scale and a shift per channel.

Each image has sums of its own, and the merge adds them in the order of the images, all in float64: the
same bits for any number of threads.
"""

from __future__ import annotations

from math import sqrt

from core.cpu.memory import doubles, floats, words
from core.cpu.pixels import gradient_moments, moments

# Record.
X, X_ROW, X_PIXEL, HEIGHT, WIDTH, CHANNELS = range(1, 7)
DY, DY_ROW, DY_PIXEL = range(7, 10)
SUMS: int = 10
"""(image, 2, C) float64: sums of x and of x squared, or of dy and of dy times the normalised x.

In float32 the difference of squares loses a variance that is small beside the mean (seen: 3e-4)."""
SAVED: int = 11
"""(5, C) floats: mean, 1 / deviation, and three coefficients (forward: scale, shift; backward: of dy, x and 1)."""
WEIGHT, BIAS, MEAN, VARIANCE, SETTINGS = range(12, 17)
"""Parameters of C floats; SETTINGS: epsilon and momentum. In backward WEIGHT and BIAS are gradients to add to."""
GAMMA: int = 17
COEFFICIENTS: int = 18
"""(3, C) floats that the gradient uses: ``dx = k0 dy + k1 x + k2``."""

# Context.
COUNT: int = 15
"""Images in the batch."""
TOTAL, RANKS = 24, 25
"""Images that the sums are of, and ranks with such images: more than the batch's where statistics are synchronized."""

BLOCK: int = 16
"""Channels of one task of a merge."""


def run_statistics(record, context, image, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Sums of x and of its square over one image, in float64. One task."""
    w = words(record)
    channels = w[CHANNELS]
    sums = w[SUMS] + image * channels * 16
    moments(w[X], w[X_ROW], w[X_PIXEL], w[HEIGHT], w[WIDTH], channels, sums, sums + channels * 8)


def run_merge(record, context, image, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Statistics of the batch, the running ones, scale and shift. Tasks are blocks of channels."""
    w = words(record)
    channels, images = w[CHANNELS], words(context)[COUNT]
    settings = floats(w[SETTINGS], 2)
    sums, saved = doubles(w[SUMS], images * 2 * channels), floats(w[SAVED], 4 * channels)
    weight, bias = floats(w[WEIGHT], channels), floats(w[BIAS], channels)
    running_mean, running_var = floats(w[MEAN], channels), floats(w[VARIANCE], channels)
    total = w[HEIGHT] * w[WIDTH] * words(context)[TOTAL]
    for c in range(low * BLOCK, min(channels, high * BLOCK)):
        mean, square = 0.0, 0.0
        for n in range(images):
            mean += sums[2 * n * channels + c]
            square += sums[(2 * n + 1) * channels + c]
        mean /= total
        square = max(square - mean * mean * total, 0.0)
        inverse = 1 / sqrt(square / total + settings[0])
        saved[c] = mean
        saved[channels + c] = inverse
        saved[2 * channels + c] = weight[c] * inverse
        saved[3 * channels + c] = bias[c] - mean * weight[c] * inverse
        rate = float(settings[1])
        running_mean[c] = (1 - rate) * running_mean[c] + rate * mean
        running_var[c] = (1 - rate) * running_var[c] + rate * square / max(total - 1, 1)


def run_fix(record, context, image, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Scale and shift from the running statistics. Tasks are blocks of channels."""
    w = words(record)
    channels = w[CHANNELS]
    saved = floats(w[SAVED], 4 * channels)
    weight, bias = floats(w[WEIGHT], channels), floats(w[BIAS], channels)
    mean, variance = floats(w[MEAN], channels), floats(w[VARIANCE], channels)
    epsilon = float(floats(w[SETTINGS], 2)[0])
    for c in range(low * BLOCK, min(channels, high * BLOCK)):
        inverse = 1 / sqrt(variance[c] + epsilon)
        saved[c] = mean[c]
        saved[channels + c] = inverse
        saved[2 * channels + c] = weight[c] * inverse
        saved[3 * channels + c] = bias[c] - mean[c] * weight[c] * inverse


def run_gradient_sums(record, context, image, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Sums of dy and of dy times the normalised x of one image. One task."""
    w = words(record)
    channels = w[CHANNELS]
    sums = w[SUMS] + image * channels * 16
    gradient_moments(
        w[X], w[X_ROW], w[X_PIXEL], w[DY], w[DY_ROW], w[DY_PIXEL], w[SAVED], w[HEIGHT], w[WIDTH], channels,
        sums, sums + channels * 8,
    )  # fmt: skip
    normal, inverse = doubles(sums + channels * 8, channels), floats(w[SAVED] + channels * 4, channels)
    for c in range(channels):
        normal[c] *= inverse[c]


def run_gradient_merge(record, context, image, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Gradients of weight and bias, and the coefficients of dx. Tasks are blocks of channels."""
    w = words(record)
    channels, images = w[CHANNELS], words(context)[COUNT]
    sums, saved = doubles(w[SUMS], images * 2 * channels), floats(w[SAVED], 4 * channels)
    weight, bias = floats(w[WEIGHT], channels), floats(w[BIAS], channels)
    k = floats(w[COEFFICIENTS], 3 * channels)
    gamma = floats(w[GAMMA], channels)
    total = w[HEIGHT] * w[WIDTH] * words(context)[TOTAL]
    for c in range(low * BLOCK, min(channels, high * BLOCK)):
        plain, normal = 0.0, 0.0
        for n in range(images):
            plain += sums[2 * n * channels + c]
            normal += sums[(2 * n + 1) * channels + c]
        if w[WEIGHT]:  # each rank's share of the sum
            weight[c] += normal / words(context)[RANKS]
            bias[c] += plain / words(context)[RANKS]
        inverse = float(saved[channels + c])
        scale = gamma[c] * inverse
        k[c] = scale
        k[channels + c] = -scale * inverse * normal / total
        k[2 * channels + c] = -scale * plain / total + scale * inverse * normal / total * saved[c]
