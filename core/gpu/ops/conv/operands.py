"""What the products of a convolution read: its input, its window and its packed filters.

Packed filters are described by the index of each element in the flat weights. A dense layer is a 1x1 convolution of one
pixel, whose features may have gaps between them in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from core.gpu.frame import Frame
from core.gpu.launch import Tensor
from core.gpu.ops.conv.geometry import reads_image, slices_of, window_of
from core.ops.contract import Array
from core.ops.window import POINT, Window
from core.program import Step

DEPTH_BYTES: Final = 128
"""Rows of packed bf16 filters are padded to the longest row of a stage."""
CROSSED_PIXELS: Final = 4096
"""Most pixels of an input gradient that reads the filters of the forward pass. With more, rotated filters save more
than packing them costs (`benchmarks.two_trees`)."""


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
    """Elements of a packed row for a sum over `total`; those of float32 are not padded: weights are read in place."""
    unit = DEPTH_BYTES // element if element == 2 else 1
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


def pack_backward(weight: Array, window: Window, element: int, slices: int = 1) -> Array:
    """Rotated filters ``(channels, depth)`` for the input gradient, those of each slice and phase after another.

    A phase (y, x) modulo the stride has the taps ``ky = y + top``, ``kx = x + left`` modulo the stride.
    """
    (kh, kw), (sy, sx), (top, left, _, _) = window.kernel, window.stride, window.padding
    sliced, vector = weight.reshape(slices, -1, *weight.shape[1:]), 16 // element
    depth = -(-sliced.shape[1] // vector) * vector
    longest = padded_depth(-(-kh // sy) * -(-kw // sx) * depth, element)
    packed = []
    for slice_of in sliced:
        for y, x in np.ndindex(sy, sx):
            taps = slice_of[:, (y + top) % sy :: sy, (x + left) % sx :: sx][:, ::-1, ::-1].transpose(3, 1, 2, 0)
            rows = pack_forward(taps, Taps(taps.shape[1:3], depth), element)
            packed.append(np.pad(rows, ((0, 0), (0, longest - rows.shape[1])), constant_values=-1))
    return np.concatenate(packed)


def positions_of(packed: Array) -> Array:
    """The position of each weight in packed filters."""
    positions = np.flatnonzero(packed >= 0)
    weights = packed.reshape(-1)[positions]
    ordered = np.empty(weights.size, np.int32)
    ordered[weights - weights.min()] = positions
    return ordered


@dataclass(frozen=True, slots=True)
class Operands:
    """Input (or its gradient), window, the layout of the sum over it, and the filters.

    `filters` returns the index of each weight in the flat weights, OHWI over the channels in memory, or -1. `x` is the
    first of `slices` of the groups (`core.gpu.ops.conv.geometry.slices_of`).
    """

    x: Tensor
    window: Window
    taps: Taps
    filters: Callable[[], Array]
    slices: int = 1

    def shares_filters(self, images: int) -> bool:
        """Whether the input gradient, of the shape of `x`, reads the filters of the forward pass, across their rows."""
        is_point = self.window.kernel == POINT.kernel and self.window.stride == POINT.stride
        return is_point and images * self.x.height * self.x.width <= CROSSED_PIXELS

    def pack_rows(self, frame: Frame, step: Step) -> int:
        """Address of the filters, row by row."""
        return frame.packed(f"{step.node}.weight", lambda: pack_forward(self.filters(), self.taps, frame.element))

    def gradient_positions(self, element: int, bias: bool) -> Array:
        """Index in a partial sum of each weight, then of each bias where it is trained.

        A partial sum has the weights and biases of each slice in turn.
        """
        filters = self.filters()
        packed = pack_forward(filters, self.taps, element)[:, : self.taps.total]
        weights, every, own = positions_of(packed), np.arange(len(filters)), len(packed) // self.slices
        weights += weights // (own * self.taps.total) * own
        return np.concatenate([weights, (every // own + 1) * own * self.taps.total + every]) if bias else weights

    def is_gradient_in_order(self, element: int) -> bool:
        """Whether a partial sum has the weights, and then the biases, in their order and nothing else."""
        if self.slices > 1:
            return False
        positions = self.gradient_positions(element, True)
        return np.array_equal(positions, np.arange(positions.size))


def operands_of(frame: Frame, step: Step, gradient: bool = False) -> Operands:
    value = step.inputs[0]
    if step.op == "dense":
        x, positions = frame.flat(value, gradient)

        def filters() -> Array:
            indices = frame.indices(f"{step.node}.weight")
            wide = np.full((len(indices), 1, 1, x.channels), -1, np.int32)
            wide[:, 0, 0, positions] = indices
            return wide

        return Operands(x, POINT, taps_of(x, POINT, False), filters)
    slices, window = slices_of(frame, step), window_of(frame, step)
    x = frame.tensor(value, gradient).first_of(slices)
    taps = taps_of(x, window, reads_image(step))
    return Operands(x, window, taps, lambda: frame.filters(step, slices), slices)
