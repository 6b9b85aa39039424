"""Max, average and global average pooling. Backward gathers: every input pixel asks its windows, so nothing races."""

from __future__ import annotations

from core.cpu.memory import floats, int32s, words

# Record. X is the input (its gradient in backward), Y the output, each with row and pixel strides in bytes.
# AUX: winners int32 (rows, columns, C) of max, or 1 / window size float32 (rows, columns) of avg; 0 for none.
X, X_ROW, X_PIXEL, HEIGHT, WIDTH, CHANNELS = range(1, 7)
Y, Y_ROW, Y_PIXEL, ROWS, COLUMNS, AUX = range(7, 13)
KERNEL_Y, KERNEL_X, STRIDE_Y, STRIDE_X, TOP, LEFT = range(13, 19)
ACCUMULATE: int = 19
"""Backward adds to what is there."""
CLOSED: int = 20
"""Forward of max: 1 drops winners not above 0, 2 also those not below 6 (gradient of a fused ReLU or ReLU6)."""


def run_max_pool(record, context, photo, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Tasks are output rows. Ties go to the first pixel in reading order, NaN wins."""
    w = words(record)
    channels = w[CHANNELS]
    for oy in range(low, high):
        y0 = oy * w[STRIDE_Y] - w[TOP]
        for ox in range(w[COLUMNS]):
            x0 = ox * w[STRIDE_X] - w[LEFT]
            out = floats(w[Y] + oy * w[Y_ROW] + ox * w[Y_PIXEL], channels)
            out[:] = -float("inf")
            winner = int32s(w[AUX] + (oy * w[COLUMNS] + ox) * channels * 4, channels)
            for iy in range(max(y0, 0), min(y0 + w[KERNEL_Y], w[HEIGHT])):
                for ix in range(max(x0, 0), min(x0 + w[KERNEL_X], w[WIDTH])):
                    seen = floats(w[X] + iy * w[X_ROW] + ix * w[X_PIXEL], channels)
                    if w[AUX] == 0:
                        for c in range(channels):
                            out[c] = seen[c] if seen[c] > out[c] or seen[c] != seen[c] else out[c]
                    else:
                        place = (iy - y0) * w[KERNEL_X] + ix - x0
                        for c in range(channels):
                            wins = seen[c] > out[c] or seen[c] != seen[c]
                            out[c] = seen[c] if wins else out[c]
                            winner[c] = place if wins else winner[c]
            if w[CLOSED]:
                cap = 6.0 if w[CLOSED] == 2 else float("inf")
                for c in range(channels):
                    winner[c] = winner[c] if out[c] > 0 and out[c] < cap else -1


def run_max_pool_backward(record, context, photo, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
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
                row_place = (iy + w[TOP] - oy * w[STRIDE_Y]) * w[KERNEL_X] + ix + w[LEFT]
                for ox in range(first_x, last_x + 1):
                    place = row_place - ox * w[STRIDE_X]
                    dy = floats(w[Y] + oy * w[Y_ROW] + ox * w[Y_PIXEL], channels)
                    winner = int32s(w[AUX] + (oy * w[COLUMNS] + ox) * channels * 4, channels)
                    for c in range(channels):
                        dx[c] += dy[c] if winner[c] == place else 0


def run_avg_pool(record, context, photo, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Tasks are output rows; global pooling is one window over everything."""
    w = words(record)
    channels = w[CHANNELS]
    for oy in range(low, high):
        y0 = oy * w[STRIDE_Y] - w[TOP]
        for ox in range(w[COLUMNS]):
            x0 = ox * w[STRIDE_X] - w[LEFT]
            out = floats(w[Y] + oy * w[Y_ROW] + ox * w[Y_PIXEL], channels)
            out[:] = 0
            share = floats(w[AUX] + (oy * w[COLUMNS] + ox) * 4, 1)[0]
            for iy in range(max(y0, 0), min(y0 + w[KERNEL_Y], w[HEIGHT])):
                for ix in range(max(x0, 0), min(x0 + w[KERNEL_X], w[WIDTH])):
                    seen = floats(w[X] + iy * w[X_ROW] + ix * w[X_PIXEL], channels)
                    for c in range(channels):
                        out[c] += seen[c]
            for c in range(channels):
                out[c] *= share


def run_avg_pool_backward(record, context, photo, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
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
