"""The layout of a convolution's packed filters, as the index of each element in the flat weights."""

from __future__ import annotations

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


def positions_of(packed: Array) -> Array:
    """The position of each weight in packed filters."""
    positions = np.flatnonzero(packed >= 0)
    weights = packed.reshape(-1)[positions]
    ordered = np.empty(weights.size, np.int32)
    ordered[weights - weights.min()] = positions
    return ordered
