"""Batch normalisation: sums per image, one merge per batch, then a scale and a shift per channel.

Each image has sums of its own, and the merge adds them in the order of the images, all in float64: the
same bits for any number of threads.
"""

from __future__ import annotations

import ctypes
from math import sqrt
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from core.communicator import Communicator
from core.cpu.context import COUNT, RANKS, TOTAL
from core.cpu.memory import doubles, floats, words
from core.cpu.records import Record, Words
from core.cpu.vectors import I64, Pixels, row_intrinsic
from core.ops.contract import Array

# Record.
X, X_ROW, X_PIXEL, HEIGHT, WIDTH, CHANNELS = range(1, 7)
DY, DY_ROW, DY_PIXEL = range(7, 10)
SUMS: int = 10
"""(image, 2, C) float64: sums of x and of x squared, or of dy and of dy times the normalised x.

In float32 the difference of squares loses a variance that is small compared with the mean (observed: 3e-4)."""
SAVED: int = 11
"""(5, C) floats: mean, 1 / deviation, and three coefficients (forward: scale, shift; backward: of dy, x and 1)."""
WEIGHT, BIAS, MEAN, VARIANCE, SETTINGS = range(12, 17)
"""Parameters of C floats; SETTINGS: epsilon and momentum. In backward WEIGHT and BIAS are gradients to add to."""
GAMMA: int = 17
COEFFICIENTS: int = 18
"""(3, C) floats that the gradient uses: ``dx = k0 dy + k1 x + k2``."""

BLOCK: int = 16
"""Channels of one task of a merge."""


def _emit_affine(p: Pixels) -> None:
    out, out_pixel, x, x_pixel, scale, shift, count, channels, clip = p.a
    v, b = p.v, p.b
    bounds = p.clip_bounds(clip)

    def body(channel: Any, mask: Any) -> None:
        factor, term = (v.load(p.at(k, (channel, 4)), mask) for k in (scale, shift))
        with cgutils.for_range(b, count) as pixel:
            value = v.multiply_add(v.load(p.at(x, (channel, 4), (pixel.index, x_pixel)), mask), factor, term)
            v.store(p.clip(value, bounds), p.at(out, (channel, 4), (pixel.index, out_pixel)), mask)

    p.for_channels(channels, body)


affine_row = row_intrinsic("affine", 9, _emit_affine)
"""``affine_row(out, out_pixel, x, x_pixel, scale, shift, count, channels, clip)`` computes ``clip(x * scale + shift)``
for a row of pixels; clip as `core.cpu.activation.CLIP`."""


def _emit_norm_gradient(p: Pixels) -> None:
    out, out_pixel, dy, dy_pixel, x, x_pixel, coefficients, count, channels, accumulate = p.a
    v, b = p.v, p.b
    adds = b.icmp_signed("!=", accumulate, ir.Constant(I64, 0))

    def body(channel: Any, mask: Any) -> None:
        k = [v.load(p.at(coefficients, (channel, 4), (channels, 4 * i)), mask) for i in range(3)]
        with cgutils.for_range(b, count) as pixel:
            seen = v.load(p.at(x, (channel, 4), (pixel.index, x_pixel)), mask)
            value = v.multiply_add(seen, k[1], k[2])
            value = v.multiply_add(v.load(p.at(dy, (channel, 4), (pixel.index, dy_pixel)), mask), k[0], value)
            place = p.at(out, (channel, 4), (pixel.index, out_pixel))
            old = v.slot(v.constant(0.0))
            with b.if_then(adds):
                b.store(v.load(place, mask), old)
            v.store(b.fadd(value, b.load(old)), place, mask)

    p.for_channels(channels, body)


norm_gradient_row = row_intrinsic("norm_gradient", 10, _emit_norm_gradient)
"""``norm_gradient_row(out, out_pixel, dy, dy_pixel, x, x_pixel, k, count, channels, accumulate)`` computes
``dy * k0 + x * k1 + k2`` for a row of pixels; k0, k1 and k2 have `channels` floats each."""


def _emit_moments(p: Pixels) -> None:
    x, x_row, x_pixel, height, width, channels, plain, other, *of_gradient = p.a
    dy, dy_row, dy_pixel, mean = of_gradient or (None,) * 4
    v, b = p.v, p.b

    def body(channel: Any, mask: Any) -> None:
        zero = ir.Constant(v.doubles, [0.0] * v.vector_width)
        total, product = v.slot(zero), v.slot(zero)
        middle = v.load(p.at(mean, (channel, 4)), mask) if of_gradient else None
        with cgutils.for_range(b, height) as y, cgutils.for_range(b, width) as pixel:
            seen = v.load(p.at(x, (channel, 4), (y.index, x_row), (pixel.index, x_pixel)), mask)
            if of_gradient:
                first = v.load(p.at(dy, (channel, 4), (y.index, dy_row), (pixel.index, dy_pixel)), mask)
                second = b.fpext(b.fmul(first, b.fsub(seen, middle)), v.doubles)
                b.store(b.fadd(b.load(product), second), product)
            else:
                first, wide = seen, b.fpext(seen, v.doubles)
                b.store(v.multiply_add(wide, wide, b.load(product)), product)
            b.store(b.fadd(b.load(total), b.fpext(first, v.doubles)), total)
        v.store(b.load(total), p.at(plain, (channel, 8)), mask)
        v.store(b.load(product), p.at(other, (channel, 8)), mask)

    p.for_channels(channels, body)


moments = row_intrinsic("moments", 8, _emit_moments)
"""``moments(x, x_row, x_pixel, height, width, channels, sum, squares)``: float64 sums of x and of x squared of each
channel over an image."""

gradient_moments = row_intrinsic("gradient_moments", 12, _emit_moments)
"""``gradient_moments(x, x_row, x_pixel, height, width, channels, sum, product, dy, dy_row, dy_pixel, mean)``: float64
sums of dy and of dy * (x - mean)."""


def run_statistics(record: int, context: int, image: int, low: int, high: int) -> None:
    """Sums of x and of its square over one image, in float64. One task."""
    w = words(record)
    channels = w[CHANNELS]
    sums = w[SUMS] + image * channels * 16
    moments(w[X], w[X_ROW], w[X_PIXEL], w[HEIGHT], w[WIDTH], channels, sums, sums + channels * 8)


def run_merge(record: int, context: int, image: int, low: int, high: int) -> None:
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


def run_fix(record: int, context: int, image: int, low: int, high: int) -> None:
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


def run_gradient_sums(record: int, context: int, image: int, low: int, high: int) -> None:
    """Sums of dy and of dy times the normalised x of one image. One task."""
    w = words(record)
    channels = w[CHANNELS]
    sums = w[SUMS] + image * channels * 16
    gradient_moments(
        w[X], w[X_ROW], w[X_PIXEL], w[HEIGHT], w[WIDTH], channels, sums, sums + channels * 8,
        w[DY], w[DY_ROW], w[DY_PIXEL], w[SAVED],
    )  # fmt: skip
    normal, inverse = doubles(sums + channels * 8, channels), floats(w[SAVED] + channels * 4, channels)
    for c in range(channels):
        normal[c] *= inverse[c]


def run_gradient_merge(record: int, context: int, image: int, low: int, high: int) -> None:
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


def add_ranks(record: Record, row: Words, context: Words, labels: Array, communicator: Communicator) -> None:
    """Replace the sums that a merge reads by the sums over all ranks; does nothing for other records. Collective.

    row: the record with its addresses. A photo without a label only fills the batch, and its gradient stays zero.
    """
    if record.kernel not in (run_merge, run_gradient_merge):
        return
    images, width = len(labels), 2 * int(row[CHANNELS])
    memory = (ctypes.c_double * (images * width)).from_address(int(row[SUMS]))
    sums, counted = np.ctypeslib.as_array(memory).reshape(images, width), labels >= 0
    own = np.append(sums[counted].sum(axis=0), (counted.sum(), counted.any()))
    parts = communicator.gather(own.tobytes())
    total: Array = np.sum([np.frombuffer(part, np.float64) for part in parts], axis=0)
    if not total[-2]:  # no rank has a labelled photo
        return
    if counted.any() or record.kernel is run_merge:
        sums[:] = 0
        sums[0], context[TOTAL], context[RANKS] = total[:-2], *total[-2:]
