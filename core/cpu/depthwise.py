"""Depthwise convolution: bound by memory, so plain loops over channels that the compiler vectorises.

Packed filters and private gradients are (kh, kw, C): all channels of a tap side by side.
"""

from __future__ import annotations

import numpy as np

from core.cpu.memory import floats, words

# Record. X with a zero border (its gradient in backward), Y output; strides in bytes.
X, X_ROW, X_PIXEL, HEIGHT, WIDTH, CHANNELS = range(1, 7)
Y, Y_ROW, Y_PIXEL, ROWS, COLUMNS = range(7, 12)
KERNEL_Y, KERNEL_X, STRIDE_Y, STRIDE_X, TOP, LEFT = range(12, 18)
FILTER, BIAS, RELU, ACCUMULATE = range(18, 22)
"""BIAS 0 is none; RELU 1 clips at 0, 2 also at 6, and is the mask in backward."""
MASK, MASK_ROW, MASK_PIXEL = range(22, 25)


def run_depthwise(record, context, photo, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Tasks are output rows."""
    w = words(record)
    channels = w[CHANNELS]
    bias = floats(w[BIAS], channels)
    cap = np.float32(6 if w[RELU] == 2 else np.inf)
    for oy in range(low, high):
        for ox in range(w[COLUMNS]):
            out = floats(w[Y] + oy * w[Y_ROW] + ox * w[Y_PIXEL], channels)
            if w[BIAS]:
                for c in range(channels):
                    out[c] = bias[c]
            else:
                out[:] = 0
            corner = w[X] + (oy * w[STRIDE_Y] - w[TOP]) * w[X_ROW] + (ox * w[STRIDE_X] - w[LEFT]) * w[X_PIXEL]
            for ky in range(w[KERNEL_Y]):
                for kx in range(w[KERNEL_X]):
                    seen = floats(corner + ky * w[X_ROW] + kx * w[X_PIXEL], channels)
                    tap = floats(w[FILTER] + (ky * w[KERNEL_X] + kx) * channels * 4, channels)
                    for c in range(channels):
                        out[c] += seen[c] * tap[c]
            if w[RELU]:
                for c in range(channels):
                    v = np.float32(0) if out[c] < 0 else out[c]
                    out[c] = cap if v > cap else v


def run_depthwise_input(record, context, photo, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Input gradient; tasks are input rows, each pixel gathers from the windows it lies in."""
    w = words(record)
    channels = w[CHANNELS]
    cap = np.float32(6 if w[RELU] == 2 else np.inf)
    for iy in range(low, high):
        for ix in range(w[WIDTH]):
            dx = floats(w[X] + iy * w[X_ROW] + ix * w[X_PIXEL], channels)
            if not w[ACCUMULATE]:
                dx[:] = 0
            for ky in range(w[KERNEL_Y]):
                oy = (iy + w[TOP] - ky) // w[STRIDE_Y]
                if oy * w[STRIDE_Y] != iy + w[TOP] - ky or oy < 0 or oy >= w[ROWS]:
                    continue
                for kx in range(w[KERNEL_X]):
                    ox = (ix + w[LEFT] - kx) // w[STRIDE_X]
                    if ox * w[STRIDE_X] != ix + w[LEFT] - kx or ox < 0 or ox >= w[COLUMNS]:
                        continue
                    dy = floats(w[Y] + oy * w[Y_ROW] + ox * w[Y_PIXEL], channels)
                    tap = floats(w[FILTER] + (ky * w[KERNEL_X] + kx) * channels * 4, channels)
                    for c in range(channels):
                        dx[c] += dy[c] * tap[c]
            if w[RELU]:
                y = floats(w[MASK] + iy * w[MASK_ROW] + ix * w[MASK_PIXEL], channels)
                for c in range(channels):
                    dx[c] = dx[c] if y[c] > 0 and y[c] < cap else 0


def run_depthwise_weight(record, context, photo, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Adds to the filter's and the bias's gradient; one task."""
    w = words(record)
    channels = w[CHANNELS]
    bias = floats(w[BIAS], channels)
    for oy in range(w[ROWS]):
        for ox in range(w[COLUMNS]):
            dy = floats(w[Y] + oy * w[Y_ROW] + ox * w[Y_PIXEL], channels)
            corner = w[X] + (oy * w[STRIDE_Y] - w[TOP]) * w[X_ROW] + (ox * w[STRIDE_X] - w[LEFT]) * w[X_PIXEL]
            if w[BIAS]:
                for c in range(channels):
                    bias[c] += dy[c]
            for ky in range(w[KERNEL_Y]):
                for kx in range(w[KERNEL_X]):
                    seen = floats(corner + ky * w[X_ROW] + kx * w[X_PIXEL], channels)
                    tap = floats(w[FILTER] + (ky * w[KERNEL_X] + kx) * channels * 4, channels)
                    for c in range(channels):
                        tap[c] += seen[c] * dy[c]
