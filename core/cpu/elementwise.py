"""Elementwise kernels: copy, add, multiply, scale and shift, dropout, activations, and gradients."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit, uint32

from core.cpu.activation import CLIP, activate, activate_gradient
from core.cpu.batch_norm import affine_row, norm_gradient_row
from core.cpu.context import PHOTO0, SEED, STEP
from core.cpu.memory import floats, words

# Record: out = activation(f(a, b)); gradients: out = activation's gradient of f(a) (+ out), given b.
MODE, HEIGHT, WIDTH, CHANNELS = range(1, 5)
OUT, OUT_ROW, OUT_PIXEL = range(5, 8)
A, A_ROW, A_PIXEL = range(8, 11)
B, B_ROW, B_PIXEL = range(11, 14)
SCALE, SHIFT = 14, 15
"""AFFINE: addresses of C floats each. NORM_GRADIENT: SCALE is the address of three times C floats. DROPOUT: SCALE is
the address of 1 / (1 - rate), SHIFT the threshold."""
ACTIVATION, ACCUMULATE, KEY = range(16, 19)
"""Number of the activation (`core.cpu.activation`), whether to add to `out`, and the key of a dropout."""

COPY, ADD, MULTIPLY, AFFINE, DROPOUT, NORM_GRADIENT = range(6)


def run_copy(record: int, context: int, image: int, low: int, high: int) -> None:
    """Tasks are rows, here and in the kernels below."""
    w = words(record)
    for y in range(low, high):
        for x in range(w[WIDTH]):
            out = _pixel(w, OUT, y, x)
            _copy(_pixel(w, A, y, x), out)
        _end(w, y)


def run_add(record: int, context: int, image: int, low: int, high: int) -> None:
    w = words(record)
    for y in range(low, high):
        for x in range(w[WIDTH]):
            out, a, b = _pixel(w, OUT, y, x), _pixel(w, A, y, x), _pixel(w, B, y, x)
            for c in range(len(out)):
                out[c] = a[c] + b[c]
        _end(w, y)


def run_multiply(record: int, context: int, image: int, low: int, high: int) -> None:
    w = words(record)
    for y in range(low, high):
        for x in range(w[WIDTH]):
            out, a, b = _pixel(w, OUT, y, x), _pixel(w, A, y, x), _pixel(w, B, y, x)
            _multiply(a, b, out)


def run_affine(record: int, context: int, image: int, low: int, high: int) -> None:
    w = words(record)
    for y in range(low, high):
        affine_row(
            w[OUT] + y * w[OUT_ROW], w[OUT_PIXEL], w[A] + y * w[A_ROW], w[A_PIXEL], w[SCALE], w[SHIFT],
            w[WIDTH], w[CHANNELS], w[ACTIVATION] if w[ACTIVATION] <= CLIP else 0,
        )  # fmt: skip
        if w[ACTIVATION] > CLIP:
            _end(w, y)


def run_dropout(record: int, context: int, image: int, low: int, high: int) -> None:
    w = words(record)
    for y in range(low, high):
        for x in range(w[WIDTH]):
            out, a = _pixel(w, OUT, y, x), _pixel(w, A, y, x)
            _drop(w, context, image, (y * w[WIDTH] + x) * w[CHANNELS], out, a)
        _end(w, y)


MAPS: Final = {COPY: run_copy, ADD: run_add, MULTIPLY: run_multiply, AFFINE: run_affine, DROPOUT: run_dropout}
"""Forward kernel of each mode, so that a network compiles only those that it uses."""


def run_map_gradient(record: int, context: int, image: int, low: int, high: int) -> None:
    """Tasks are rows. `b` is the factor of a product, or the input or output of the activation."""
    w = words(record)
    if w[MODE] == NORM_GRADIENT:
        for y in range(low, high):
            norm_gradient_row(
                w[OUT] + y * w[OUT_ROW], w[OUT_PIXEL], w[A] + y * w[A_ROW], w[A_PIXEL], w[B] + y * w[B_ROW],
                w[B_PIXEL], w[SCALE], w[WIDTH], w[CHANNELS], w[ACCUMULATE],
            )  # fmt: skip
        return
    line = np.empty(w[CHANNELS], np.float32)
    for y in range(low, high):
        for x in range(w[WIDTH]):
            out, a, b = _pixel(w, OUT, y, x), _pixel(w, A, y, x), _pixel(w, B, y, x)
            _gradient(w, context, image, (y * w[WIDTH] + x) * w[CHANNELS], line, a, b)
            if w[ACCUMULATE]:
                for c in range(len(line)):
                    line[c] += out[c]
            _copy(line, out)
        if w[ACTIVATION]:
            activate_gradient(
                w[ACTIVATION], w[OUT] + y * w[OUT_ROW], w[OUT_PIXEL], w[WIDTH], w[CHANNELS], w[B] + y * w[B_ROW],
                w[B_PIXEL],
            )  # fmt: skip


def run_factor_gradient(record: int, context: int, image: int, low: int, high: int) -> None:
    """Gradient of a product's factors: for each channel the sum of a times b over all pixels, row by row. One task."""
    w = words(record)
    out, row = floats(w[OUT], w[CHANNELS]), np.empty(w[CHANNELS], np.float32)
    if not w[ACCUMULATE]:
        out[:] = 0
    for y in range(w[HEIGHT]):
        row[:] = 0
        for x in range(w[WIDTH]):
            a, b = _pixel(w, A, y, x), _pixel(w, B, y, x)
            for c in range(len(row)):
                row[c] += a[c] * b[c]
        for c in range(len(row)):
            out[c] += row[c]


@njit(inline="always")
def _gradient(w, context, image, element, out, a, b):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    mode = w[MODE]
    if mode == COPY:
        _copy(a, out)
    elif mode == AFFINE:
        scale, shift = floats(w[SCALE], len(out)), floats(w[SHIFT], len(out))
        for c in range(len(out)):
            out[c] = a[c] * scale[c] + shift[c]
    elif mode == MULTIPLY:
        _multiply(a, b, out)
    else:
        _drop(w, context, image, element, out, a)


@njit(inline="always")
def _pixel(w, first, y, x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Return the channels of a pixel; fields `first` to `first + 2` are its array's address and strides."""
    return floats(w[first] + y * w[first + 1] + x * w[first + 2], w[CHANNELS])


@njit(inline="always")
def _copy(a, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    for c in range(len(out)):
        out[c] = a[c]


@njit(inline="always")
def _multiply(a, b, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    for c in range(len(out)):
        out[c] = a[c] * b[c]


@njit(inline="always")
def _end(w, y):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    if w[ACTIVATION]:
        activate(w[ACTIVATION], w[OUT] + y * w[OUT_ROW], w[OUT_PIXEL], w[WIDTH], w[CHANNELS])


@njit(inline="always")
def _drop(w, context, image, element, out, a):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Zero elements whose random bits are below the threshold, scale the others; `element`: number of the first."""
    run = words(context)
    first = _stream(run[SEED], run[STEP], w[KEY], run[PHOTO0] + image)
    second = _mix(uint32(first + uint32(0x9E3779B9)))
    scale, threshold = floats(w[SCALE], 1)[0], uint32(w[SHIFT])
    for c in range(len(out)):
        drawn = _mix(uint32(_mix(uint32(uint32(element + c) ^ first)) + second))
        out[c] = a[c] * scale if drawn >= threshold else np.float32(0)


@njit
def _mix(x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """`core.ops.dropout.mix` on uint32."""
    x = uint32(x ^ (x >> uint32(16)))
    x = uint32(x * uint32(0x7FEB352D))
    x = uint32(x ^ (x >> uint32(15)))
    x = uint32(x * uint32(0x846CA68B))
    return uint32(x ^ (x >> uint32(16)))


@njit
def _stream(seed, step, key, image):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """First word of `core.ops.dropout.stream`."""
    golden = uint32(0x9E3779B9)
    first = _mix(uint32(golden + uint32(seed)))
    first = _mix(uint32(first + golden + uint32(step)))
    first = _mix(uint32(first + golden + uint32(key)))
    return _mix(uint32(first + golden + uint32(image)))


def run_border(record: int, context: int, image: int, low: int, high: int) -> None:
    """Write zeros from each row's end to the next row's start. Tasks are rows; OUT_PIXEL is the bytes of a border."""
    w = words(record)
    for y in range(low, high):
        out = floats(w[OUT] + y * w[OUT_ROW], w[OUT_PIXEL] // 4)
        for i in range(len(out)):
            out[i] = 0


def run_output(record: int, context: int, image: int, low: int, high: int) -> None:
    """Copy a view to row `image` of a shared array without borders at OUT. Tasks are rows."""
    w = words(record)
    size = w[WIDTH] * w[CHANNELS] * 4
    for y in range(low, high):
        for x in range(w[WIDTH]):
            start = w[OUT] + (image * w[HEIGHT] + y) * size + x * w[CHANNELS] * 4
            _copy(_pixel(w, A, y, x), floats(start, w[CHANNELS]))
