"""The layout of a convolution's packed filters, as the index of each element in the flat weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from core.gpu.launch import Tensor
from core.ops.contract import Array
from core.ops.window import Window

DEPTH_BYTES: Final = 128
"""Rows of packed filters are padded to the longest row of a stage."""


@final
@dataclass(frozen=True, slots=True)
class Taps:
    """The layout of the sum over a window: `kernel` taps of `channels` elements each.

    The convolution of the input image unfolds a row of the window into the channels (`unfold` pixels of `pixel`
    elements), so that three colours do not waste a 16-byte load each.
    """

    kernel: tuple[int, int]
    channels: int
    unfold: int = 0
    pixel: int = 0

    @property
    def total(self) -> int:
        return self.kernel[0] * self.kernel[1] * self.channels


def taps_of(x: Tensor, window: Window, is_image: bool) -> Taps:
    """The layout for reading `x`."""
    if is_image:
        width = -(-window.kernel[1] * x.pitch // (2 * x.vector)) * 2 * x.vector
        return Taps((window.kernel[0], 1), width, window.kernel[1], x.pitch)
    return Taps(window.kernel, x.padded)


def padded_depth(total: int, element: int) -> int:
    """Elements of a packed row for a sum over `total`."""
    unit = DEPTH_BYTES // element
    return -(-total // unit) * unit


def partial_size(filters: int, taps: Taps) -> int:
    """Floats of one partial weight and bias gradient."""
    return filters * taps.total + filters


def pack_forward(weight: Array, taps: Taps, element: int) -> Array:
    """Packed filters ``(filters up to 16 bytes, depth)`` of indices; `weight` OHWI holds the source's indices."""
    filters, kh, kw, depth = weight.shape
    vector = 16 // element
    rows = -(-filters // vector) * vector
    packed = np.full((rows, padded_depth(taps.total, element)), -1, np.int32)
    view = packed[:, : taps.total].reshape(rows, *taps.kernel, taps.channels)
    if taps.unfold:
        wide = np.full((filters, kh, taps.unfold, taps.pixel), -1, np.int32)
        wide[..., :depth] = weight
        view[:filters, :, 0, : taps.unfold * taps.pixel] = wide.reshape(filters, kh, -1)
    else:
        view[:filters, :, :, :depth] = weight
    return packed


def pack_backward(weight: Array, element: int, slices: int = 1) -> Array:
    """Rotated filters ``(channels, depth)`` for the input gradient; slices of the groups one after another."""
    vector, sliced = 16 // element, weight.reshape(slices, -1, *weight.shape[1:])
    rotated = sliced[:, :, ::-1, ::-1].transpose(0, 4, 2, 3, 1)
    taps = Taps(weight.shape[1:3], -(-sliced.shape[1] // vector) * vector)
    return pack_forward(rotated.reshape(-1, *rotated.shape[2:]), taps, element)


def gradient_places(
    shape: Sequence[int], taps: Taps, packed_rows: int, bias: bool, groups: int = 1, slices: int = 1
) -> Array:
    """Index in a partial result of each weight (OHWI order), then of each bias.

    A partial result has the weights and biases of each slice of the groups in turn; `packed_rows`: filters of a slice.
    """
    filters, _, kw, depth = shape
    f, i, j, c = np.meshgrid(*(np.arange(s) for s in shape), indexing="ij")
    c = c + f // (filters // groups) % (groups // slices) * depth
    column = i * taps.channels + j * taps.pixel + c if taps.unfold else (i * kw + j) * taps.channels + c
    own, size = filters // slices, partial_size(packed_rows, taps)
    places = (f // own * size + f % own * taps.total + column).reshape(-1)
    if bias:
        every = np.arange(filters)
        places = np.concatenate([places, every // own * size + packed_rows * taps.total + every % own])
    return places.astype(np.int32)
