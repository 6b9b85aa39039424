"""Max, average and global average pooling. Backward gathers: every input pixel asks its windows, so nothing races."""

from __future__ import annotations

from core.cpu.instruction_set import current_isa
from core.cpu.maximum import WIDE, make_gather, make_maximum
from core.cpu.memory import floats, words

# Record. X is the input (its gradient in backward), Y the output, each with row and pixel strides in bytes.
# AUX: winners int32 (rows, columns, C) of max, or 1 / window size float32 (rows, columns) of avg; 0 for none.
X, X_ROW, X_PIXEL, HEIGHT, WIDTH, CHANNELS = range(1, 7)
Y, Y_ROW, Y_PIXEL, ROWS, COLUMNS, AUX = range(7, 13)
KERNEL_Y, KERNEL_X, STRIDE_Y, STRIDE_X, TOP, LEFT = range(13, 19)
ACCUMULATE: int = 19
"""Backward adds to what is there."""
CLOSED: int = 20
"""Forward of max: 1 drops winners not above 0, 2 also those not below 6 (gradient of a fused ReLU or ReLU6)."""


VECTOR_WIDTH = current_isa().vector_width
maximum, gather = make_maximum(current_isa()), make_gather(current_isa())


def run_max_pool(record, context, image, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Tasks are output rows. Ties go to the first pixel in reading order, NaN wins."""
    w = words(record)
    channels = w[CHANNELS]
    for oy in range(low, high):
        top = oy * w[STRIDE_Y] - w[TOP]
        y0, y1 = max(top, 0), min(top + w[KERNEL_Y], w[HEIGHT])
        for ox in range(w[COLUMNS]):
            left = ox * w[STRIDE_X] - w[LEFT]
            x0, x1 = max(left, 0), min(left + w[KERNEL_X], w[WIDTH])
            x = w[X] + y0 * w[X_ROW] + x0 * w[X_PIXEL]
            out = w[Y] + oy * w[Y_ROW] + ox * w[Y_PIXEL]
            winner = w[AUX] + (oy * w[COLUMNS] + ox) * channels * 4 if w[AUX] else 0
            place = (y0 - top) * w[KERNEL_X] + x0 - left
            c = 0
            while c < channels:
                wide = WIDE if channels - c >= WIDE * VECTOR_WIDTH else 1
                kept = winner + 4 * c if winner else 0
                maximum(
                    wide, kept, x + 4 * c, w[X_ROW], w[X_PIXEL], y1 - y0, x1 - x0, out + 4 * c,
                    place, w[KERNEL_X], w[CLOSED], channels - c,
                )  # fmt: skip
                c += wide * VECTOR_WIDTH


def run_max_pool_backward(record, context, image, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Tasks are input rows."""
    w = words(record)
    channels = w[CHANNELS]
    places = w[COLUMNS] * channels * 4
    for iy in range(low, high):
        first_y = max(0, (iy + w[TOP] - w[KERNEL_Y] + w[STRIDE_Y]) // w[STRIDE_Y])
        last_y = min(w[ROWS] - 1, (iy + w[TOP]) // w[STRIDE_Y])
        for ix in range(w[WIDTH]):
            dx = w[X] + iy * w[X_ROW] + ix * w[X_PIXEL]
            first_x = max(0, (ix + w[LEFT] - w[KERNEL_X] + w[STRIDE_X]) // w[STRIDE_X])
            last_x = min(w[COLUMNS] - 1, (ix + w[LEFT]) // w[STRIDE_X])
            dy = w[Y] + first_y * w[Y_ROW] + first_x * w[Y_PIXEL]
            winners = w[AUX] + first_y * places + first_x * channels * 4
            place = (iy + w[TOP] - first_y * w[STRIDE_Y]) * w[KERNEL_X] + ix + w[LEFT] - first_x * w[STRIDE_X]
            c = 0
            while c < channels:
                wide = WIDE if channels - c >= WIDE * VECTOR_WIDTH else 1
                gather(
                    wide, dx + 4 * c, w[ACCUMULATE], dy + 4 * c, w[Y_ROW], w[Y_PIXEL], winners + 4 * c, places,
                    channels * 4, last_y + 1 - first_y, last_x + 1 - first_x, place, w[STRIDE_Y] * w[KERNEL_X],
                    w[STRIDE_X], channels - c,
                )  # fmt: skip
                c += wide * VECTOR_WIDTH


def run_avg_pool(record, context, image, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Tasks are output rows; global pooling is one window over everything."""
    w = words(record)
    channels = w[CHANNELS]
    for oy in range(low, high):
        y0 = oy * w[STRIDE_Y] - w[TOP]
        for ox in range(w[COLUMNS]):
            x0 = ox * w[STRIDE_X] - w[LEFT]
            out = floats(w[Y] + oy * w[Y_ROW] + ox * w[Y_PIXEL], channels)
            for c in range(channels):
                out[c] = 0
            share = floats(w[AUX] + (oy * w[COLUMNS] + ox) * 4, 1)[0]
            for iy in range(max(y0, 0), min(y0 + w[KERNEL_Y], w[HEIGHT])):
                for ix in range(max(x0, 0), min(x0 + w[KERNEL_X], w[WIDTH])):
                    seen = floats(w[X] + iy * w[X_ROW] + ix * w[X_PIXEL], channels)
                    for c in range(channels):
                        out[c] += seen[c]
            for c in range(channels):
                out[c] *= share


def run_avg_pool_backward(record, context, image, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Tasks are input rows."""
    w = words(record)
    channels = w[CHANNELS]
    for iy in range(low, high):
        first_y = max(0, (iy + w[TOP] - w[KERNEL_Y] + w[STRIDE_Y]) // w[STRIDE_Y])
        last_y = min(w[ROWS] - 1, (iy + w[TOP]) // w[STRIDE_Y])
        for ix in range(w[WIDTH]):
            dx = floats(w[X] + iy * w[X_ROW] + ix * w[X_PIXEL], channels)
            first_x = max(0, (ix + w[LEFT] - w[KERNEL_X] + w[STRIDE_X]) // w[STRIDE_X])
            last_x = min(w[COLUMNS] - 1, (ix + w[LEFT]) // w[STRIDE_X])
            if not w[ACCUMULATE]:
                dx[:] = 0
            for oy in range(first_y, last_y + 1):
                for ox in range(first_x, last_x + 1):
                    share = floats(w[AUX] + (oy * w[COLUMNS] + ox) * 4, 1)[0]
                    dy = floats(w[Y] + oy * w[Y_ROW] + ox * w[Y_PIXEL], channels)
                    for c in range(channels):
                        dx[c] += dy[c] * share
