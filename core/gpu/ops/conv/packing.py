"""How a convolution's filters lie packed for the kernels, as places of each element in the flat weights."""

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
    """How the sum over a window is laid out: `kernel` taps of `channels` elements each, in a grid of pixels.

    A photo's convolution unfolds a row of the window into the channels (`unfold` pixels of `pixel` elements), so
    that three colours do not waste a 16-byte load each.
    """

    kernel: tuple[int, int]
    channels: int
    unfold: int = 0
    pixel: int = 0

    @property
    def total(self) -> int:
        return self.kernel[0] * self.kernel[1] * self.channels


def taps_of(x: Tensor, window: Window, is_photo: bool) -> Taps:
    """The layout for reading `x`."""
    if is_photo:
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


def pack_backward(weight: Array, element: int) -> Array:
    """Rotated filters ``(channels, depth)`` for the input gradient."""
    vector = 16 // element
    filters, kh, kw, channels = weight.shape
    wide = np.full((-(-channels // vector) * vector, kh, kw, -(-filters // vector) * vector), -1, np.int32)
    wide[:channels, :, :, :filters] = weight[:, ::-1, ::-1].transpose(3, 1, 2, 0)
    rows = wide.reshape(len(wide), -1)
    packed = np.full((len(rows), padded_depth(rows.shape[1], element)), -1, np.int32)
    packed[:, : rows.shape[1]] = rows
    return packed


def gradient_places(shape: Sequence[int], taps: Taps, packed_rows: int, bias: bool, groups: int = 1) -> Array:
    """Where in a partial result each weight (OHWI order), then each bias, lies."""
    filters, kh, kw, depth = shape
    f, i, j, c = np.meshgrid(*(np.arange(s) for s in shape), indexing="ij")
    c = c + f // (filters // groups) * depth
    if taps.unfold:
        column = i * taps.channels + j * taps.pixel + c
    else:
        column = (i * kw + j) * taps.channels + c
    places = (f * taps.total + column).reshape(-1)
    if bias:
        places = np.concatenate([places, packed_rows * taps.total + np.arange(filters)])
    return places.astype(np.int32)
