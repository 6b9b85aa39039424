"""The 3 x 3 depthwise convolution a row at a time: nine taps of a vector of channels stay in registers.

The register tile's calls cost more than the 72 multiply-adds of one. The order of the sum is the
tile's, and so are the bits.
"""

from __future__ import annotations

from core.cpu.activation import CLIP, activate
from core.cpu.memory import words
from core.cpu.pixels import depthwise_row

X, X_ROW, X_PIXEL, X_STEP, X_DOWN = range(1, 6)
"""The first window; bytes to the next row and pixel, and to the next window beside and below."""
TAPS, TAP, BIAS, ACTIVATION = range(6, 10)
"""Filter (3, 3, C) and bytes from tap to tap; the activation's number (`core.cpu.activation`)."""
OUT, OUT_ROW, OUT_PIXEL, ROWS, COLUMNS = range(10, 15)
CHANNELS, BLOCKS, AT_ONCE, BY_ROW = range(15, 19)
"""Blocks of `AT_ONCE` channels; BY_ROW as `core.cpu.tiled.BY_ROW`."""


def run_depthwise(record, context, image, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Tasks are (block, row), rows fastest, or (row, block)."""
    w = words(record)
    rows, blocks, activation = w[ROWS], w[BLOCKS], w[ACTIVATION]
    clip = activation if activation <= CLIP else 0
    for task in range(low, high):
        r, block = (task // blocks, task % blocks) if w[BY_ROW] else (task % rows, task // rows)
        first = block * w[AT_ONCE]
        shift, channels = 4 * first, min(w[AT_ONCE], w[CHANNELS] - first)
        out = w[OUT] + r * w[OUT_ROW] + shift
        depthwise_row(
            out, w[OUT_PIXEL], w[X] + r * w[X_DOWN] + shift, w[X_ROW], w[X_PIXEL],
            w[X_STEP], w[TAPS] + shift, w[TAP], w[BIAS] + shift if w[BIAS] else 0, w[COLUMNS],
            channels, clip,
        )  # fmt: skip
        if activation > CLIP:
            activate(activation, out, w[OUT_PIXEL], w[COLUMNS], channels)
