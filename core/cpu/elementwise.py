"""Everything that looks at one element: copy, add, scale and shift, sigmoid, dropout, activations, and gradients."""

from __future__ import annotations

from math import exp
from typing import Final

import numpy as np
from numba import njit, uint32

from core.cpu.memory import floats, words
from core.cpu.pixels import affine_row, norm_gradient_row

# Record: out = clip(f(a, b)); gradients: out (+)= f(a, y) where the mask is open.
MODE, HEIGHT, WIDTH, CHANNELS = range(1, 5)
OUT, OUT_ROW, OUT_PIXEL = range(5, 8)
A, A_ROW, A_PIXEL = range(8, 11)
B, B_ROW, B_PIXEL = range(11, 14)
SCALE, SHIFT = 14, 15
"""Addresses of C floats each (AFFINE); of three times C floats (NORM_GRADIENT); of the float 1 / (1 - rate),
with the threshold as a number in SHIFT (DROPOUT)."""
RELU: int = 16
"""1 clips below at 0, 2 also above at 6; in gradients the same for the mask."""
ACCUMULATE: int = 17
KEY: int = 18

COPY, ADD, AFFINE, SIGMOID, SIGMOID_GRADIENT, DROPOUT, NORM_GRADIENT = range(7)

# Context.
SEED, STEP, PHOTO0 = 8, 9, 10


def run_copy(record, context, photo, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Tasks are rows, here and in the kernels below."""
    w = words(record)
    for y in range(low, high):
        for x in range(w[WIDTH]):
            out = floats(w[OUT] + y * w[OUT_ROW] + x * w[OUT_PIXEL], w[CHANNELS])
            _copy(floats(w[A] + y * w[A_ROW] + x * w[A_PIXEL], w[CHANNELS]), out)
            _clip(out, w[RELU])


def run_add(record, context, photo, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    w = words(record)
    for y in range(low, high):
        for x in range(w[WIDTH]):
            out = floats(w[OUT] + y * w[OUT_ROW] + x * w[OUT_PIXEL], w[CHANNELS])
            a = floats(w[A] + y * w[A_ROW] + x * w[A_PIXEL], w[CHANNELS])
            b = floats(w[B] + y * w[B_ROW] + x * w[B_PIXEL], w[CHANNELS])
            for c in range(len(out)):
                out[c] = a[c] + b[c]
            _clip(out, w[RELU])


def run_affine(record, context, photo, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    w = words(record)
    for y in range(low, high):
        affine_row(
            w[OUT] + y * w[OUT_ROW], w[OUT_PIXEL], w[A] + y * w[A_ROW], w[A_PIXEL], w[SCALE], w[SHIFT],
            w[WIDTH], w[CHANNELS], w[RELU],
        )  # fmt: skip


def run_sigmoid(record, context, photo, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    w = words(record)
    for y in range(low, high):
        for x in range(w[WIDTH]):
            out = floats(w[OUT] + y * w[OUT_ROW] + x * w[OUT_PIXEL], w[CHANNELS])
            a = floats(w[A] + y * w[A_ROW] + x * w[A_PIXEL], w[CHANNELS])
            for c in range(len(out)):
                small = np.float32(exp(-abs(a[c])))
                out[c] = (np.float32(1) if a[c] >= 0 else small) / (np.float32(1) + small)
            _clip(out, w[RELU])


def run_dropout(record, context, photo, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    w = words(record)
    for y in range(low, high):
        for x in range(w[WIDTH]):
            out = floats(w[OUT] + y * w[OUT_ROW] + x * w[OUT_PIXEL], w[CHANNELS])
            a = floats(w[A] + y * w[A_ROW] + x * w[A_PIXEL], w[CHANNELS])
            _drop(w, context, photo, (y * w[WIDTH] + x) * w[CHANNELS], out, a)
            _clip(out, w[RELU])


MAPS: Final = {COPY: run_copy, ADD: run_add, AFFINE: run_affine, SIGMOID: run_sigmoid, DROPOUT: run_dropout}
"""Forward kernel of each mode: a network compiles only those that it uses."""


def run_map_gradient(record, context, photo, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Tasks are rows. `b` is the output y that a sigmoid needs, or whose activation is the mask."""
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
            out = floats(w[OUT] + y * w[OUT_ROW] + x * w[OUT_PIXEL], w[CHANNELS])
            a = floats(w[A] + y * w[A_ROW] + x * w[A_PIXEL], w[CHANNELS])
            b = floats(w[B] + y * w[B_ROW] + x * w[B_PIXEL], w[CHANNELS])
            _gradient(w, context, photo, (y * w[WIDTH] + x) * w[CHANNELS], line, a, b)
            if w[ACCUMULATE]:
                for c in range(len(line)):
                    line[c] += out[c]
            if w[RELU]:
                cap = np.float32(6 if w[RELU] == 2 else np.inf)
                for c in range(len(line)):
                    out[c] = line[c] if b[c] > 0 and b[c] < cap else 0
            else:
                for c in range(len(line)):
                    out[c] = line[c]


@njit(inline="always")
def _gradient(w, context, photo, element, out, a, b):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    mode = w[MODE]
    if mode == COPY:
        _copy(a, out)
    elif mode == AFFINE:
        scale, shift = floats(w[SCALE], len(out)), floats(w[SHIFT], len(out))
        for c in range(len(out)):
            out[c] = a[c] * scale[c] + shift[c]
    elif mode == SIGMOID_GRADIENT:
        for c in range(len(out)):
            out[c] = a[c] * b[c] * (np.float32(1) - b[c])
    else:
        _drop(w, context, photo, element, out, a)


@njit(inline="always")
def _copy(a, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    for c in range(len(out)):
        out[c] = a[c]


@njit(inline="always")
def _clip(out, clip):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    if clip:
        cap = np.float32(6 if clip == 2 else np.inf)
        for c in range(len(out)):
            v = out[c]
            v = np.float32(0) if v < 0 else v
            out[c] = cap if v > cap else v


@njit(inline="always")
def _drop(w, context, photo, element, out, a):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Elements below the threshold become zero, the others are scaled; `element`: number of the first."""
    run = words(context)
    first = _stream(run[SEED], run[STEP], w[KEY], run[PHOTO0] + photo)
    second = _mix(uint32(first + uint32(0x9E3779B9)))
    scale, threshold = floats(w[SCALE], 1)[0], uint32(w[SHIFT])
    for c in range(len(out)):
        drawn = _mix(uint32(_mix(uint32(uint32(element + c) ^ first)) + second))
        out[c] = a[c] * scale if drawn >= threshold else np.float32(0)


@njit
def _mix(x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """`core.ops.random.mix` on uint32."""
    x = uint32(x ^ (x >> uint32(16)))
    x = uint32(x * uint32(0x7FEB352D))
    x = uint32(x ^ (x >> uint32(15)))
    x = uint32(x * uint32(0x846CA68B))
    return uint32(x ^ (x >> uint32(16)))


@njit
def _stream(seed, step, key, photo):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """First word of `core.ops.random.stream`."""
    golden = uint32(0x9E3779B9)
    first = _mix(uint32(golden + uint32(seed)))
    first = _mix(uint32(first + golden + uint32(step)))
    first = _mix(uint32(first + golden + uint32(key)))
    return _mix(uint32(first + golden + uint32(photo)))


def run_border(record, context, photo, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Zeros from each row's end to the next row's start. Tasks are rows; OUT_PIXEL is the bytes of a border."""
    w = words(record)
    for y in range(low, high):
        out = floats(w[OUT] + y * w[OUT_ROW], w[OUT_PIXEL] // 4)
        for i in range(len(out)):
            out[i] = 0


def run_emit(record, context, photo, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Copy a view to row `photo` of a shared array without borders at OUT. Tasks are rows."""
    w = words(record)
    size = w[WIDTH] * w[CHANNELS] * 4
    for y in range(low, high):
        for x in range(w[WIDTH]):
            start = w[OUT] + (photo * w[HEIGHT] + y) * size + x * w[CHANNELS] * 4
            out = floats(start, w[CHANNELS])
            a = floats(w[A] + y * w[A_ROW] + x * w[A_PIXEL], w[CHANNELS])
            for c in range(len(out)):
                out[c] = a[c]
