"""The photo transform of `core.ops.photo` for one photo: uint8 pixels to the network's input buffer."""

from __future__ import annotations

from math import floor

from numba import njit

from core.cpu.memory import bytes_at, floats, words
from core.ops.photo import BLUR, BLUR_RADIUS, GREY, ROW

# Record: where the input buffer lies; 6 floats: the mean (3, or 1 if grey) and from the fourth on 1 / std.
OUT, OUT_ROW, HEIGHT, WIDTH, CHANNELS, NORMAL = range(1, 7)

# Context, set by the plan for each call.
PHOTOS, PHOTO_BYTES, SOURCE_HEIGHT, SOURCE_WIDTH, ROWS, INDEX = range(6)
"""uint8 photos, bytes of one, their size, the float rows, and 0 or int64 rows of the photos to take."""


def run_photo(record, context, photo, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Tasks are rows of the output."""
    w, run = words(record), words(context)
    height, width = run[SOURCE_HEIGHT], run[SOURCE_WIDTH]
    row = floats(run[ROWS] + photo * ROW * 4, ROW)
    which = words(run[INDEX] + photo * 8)[0] if run[INDEX] else photo
    pixels = bytes_at(run[PHOTOS] + which * run[PHOTO_BYTES], height * width * 3)
    normal = floats(w[NORMAL], 6)
    channels = w[CHANNELS]
    for y in range(low, high):
        out = floats(w[OUT] + y * w[OUT_ROW], w[WIDTH] * channels)
        if channels == 3 and _is_plain(row, w[WIDTH], w[HEIGHT], width, height):
            _copy_row(pixels, row, normal, out, y, width)
        else:
            _transform_row(pixels, row, normal, out, y, height, width, channels)
        y0, x0, y1, x1 = int(row[20]), int(row[21]), int(row[22]), int(row[23])
        if y0 <= y < y1:
            for i in range(max(x0, 0) * channels, min(max(x1, 0), w[WIDTH]) * channels):
                out[i] = 0


@njit
def _is_plain(row, columns, rows, width, height):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """True if whole pixels are copied: no scaling, colour or blur, and no pixel outside the photo."""
    for i in range(12):
        if row[6 + i] != (1.0 if i % 5 == 0 else 0.0):
            return False
    straight = row[0] == 1 and row[1] == 0 and row[3] == 0 and row[4] == 1 and row[BLUR] == 0
    whole = row[2] == floor(row[2]) and row[5] == floor(row[5]) and row[2] >= 0 and row[5] >= 0
    return straight and whole and row[2] + columns <= width and row[5] + rows <= height


@njit(inline="always")
def _copy_row(pixels, row, normal, out, y, width):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    start = ((y + int(row[5])) * width + int(row[2])) * 3
    line = pixels[start : start + len(out)]
    for i in range(len(out)):
        out[i] = line[i]
    for c in range(3):
        scale = normal[3 + c] / 255
        shift = -normal[c] * normal[3 + c]
        for x in range(len(out) // 3):
            out[3 * x + c] = out[3 * x + c] * scale + shift


@njit(inline="always")
def _transform_row(pixels, row, normal, out, y, height, width, channels):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    a0, a1, a2, a3, a4, a5 = row[0], row[1], row[2], row[3], row[4], row[5]
    w, r = row[BLUR], row[BLUR_RADIUS]
    for x in range(len(out) // channels):
        sx = a0 * x + a1 * y + a2
        sy = a3 * x + a4 * y + a5
        red, green, blue = _sample(pixels, sx, sy, height, width)
        if w > 0:
            r1, g1, b1 = _sample(pixels, sx - r, sy, height, width)
            r2, g2, b2 = _sample(pixels, sx + r, sy, height, width)
            r3, g3, b3 = _sample(pixels, sx, sy - r, height, width)
            r4, g4, b4 = _sample(pixels, sx, sy + r, height, width)
            red = (1 - 4 * w) * red + w * (r1 + r2 + r3 + r4)
            green = (1 - 4 * w) * green + w * (g1 + g2 + g3 + g4)
            blue = (1 - 4 * w) * blue + w * (b1 + b2 + b3 + b4)
        grey = 0.0
        for c in range(3):
            m = 6 + 4 * c
            value = row[m] * red + row[m + 1] * green + row[m + 2] * blue + row[m + 3]
            value = min(max(value, 0.0), 1.0)
            grey += GREY[c] * value
            if channels == 3:
                out[3 * x + c] = (value - normal[c]) * normal[3 + c]
        if channels == 1:
            out[x] = (grey - normal[0]) * normal[3]


@njit(inline="always")
def _sample(pixels, sx, sy, height, width):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Bilinear sample in 0..1 with clamped coordinates."""
    sx = min(max(sx, 0.0), width - 1.0)
    sy = min(max(sy, 0.0), height - 1.0)
    x0, y0 = int(sx), int(sy)
    fx, fy = sx - x0, sy - y0
    right = 3 if x0 + 1 < width else 0
    p = (y0 * width + x0) * 3
    q = p + (width * 3 if y0 + 1 < height else 0)
    w00, w01 = (1 - fx) * (1 - fy) / 255, fx * (1 - fy) / 255
    w10, w11 = (1 - fx) * fy / 255, fx * fy / 255
    red = pixels[p] * w00 + pixels[p + right] * w01 + pixels[q] * w10 + pixels[q + right] * w11
    p, q = p + 1, q + 1
    green = pixels[p] * w00 + pixels[p + right] * w01 + pixels[q] * w10 + pixels[q + right] * w11
    p, q = p + 1, q + 1
    blue = pixels[p] * w00 + pixels[p + right] * w01 + pixels[q] * w10 + pixels[q + right] * w11
    return red, green, blue
