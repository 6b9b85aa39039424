"""The sliding window that convolutions and pools share: its size rule, and reads and sums through it.

Padding is ``(top, left, bottom, right)``, so that "same", "full" and TensorFlow's uneven padding
are all plain numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from core.graph import Attributes
from core.ops.attributes import read_bool, read_ints
from core.ops.contract import Array


@dataclass(frozen=True, slots=True)
class Window:
    """Kernel and stride as (rows, columns), padding as (top, left, bottom, right), in pixels."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    ceil_mode: bool = False

    def output(self, height: int, width: int) -> tuple[int, int]:
        """Output height and width. Raises ValueError where the window does not fit."""
        top, left, bottom, right = self.padding
        return (
            _positions("height", height, self.kernel[0], self.stride[0], top, bottom, self.ceil_mode),
            _positions("width", width, self.kernel[1], self.stride[1], left, right, self.ceil_mode),
        )


POINT: Final = Window((1, 1), (1, 1), (0, 0, 0, 0))
"""A window of one pixel: a convolution with it is a matrix product."""


def read_window(attributes: Attributes) -> Window:
    """Return the window of a node's attributes `kernel`, `stride`, `padding` and, if it has one, `ceil_mode`."""
    kh, kw = read_ints(attributes, "kernel", 2, low=1)
    sh, sw = read_ints(attributes, "stride", 2, low=1)
    top, left, bottom, right = read_ints(attributes, "padding", 4, low=0)
    ceil_mode = "ceil_mode" in attributes and read_bool(attributes, "ceil_mode")
    return Window((kh, kw), (sh, sw), (top, left, bottom, right), ceil_mode)


def read_pool_window(attributes: Attributes) -> Window:
    """Like `read_window`, but refuse windows entirely in the padding, which have no maximum and no mean."""
    window = read_window(attributes)
    (top, left, bottom, right), (kh, kw) = window.padding, window.kernel
    if max(top, bottom) >= kh or max(left, right) >= kw:
        raise ValueError(f"padding {window.padding} must be smaller than the kernel {window.kernel}.")
    return window


def _positions(side: str, size: int, kernel: int, stride: int, before: int, after: int, ceil_mode: bool) -> int:
    """Follow PyTorch: in ceil mode a last window may hang over, but must not start after the end of the image."""
    room = size + before + after - kernel
    if room < 0:
        raise ValueError(f"the kernel of {kernel} is larger than the padded {side} of {size + before + after}.")
    count = room // stride + 1
    if ceil_mode and room % stride and count * stride < size + before:
        count += 1
    return count


def same_padding(
    height: int, width: int, kernel: tuple[int, int], stride: tuple[int, int], upper: bool = True
) -> tuple[int, int, int, int]:
    """Padding for 1 / stride of the pixels; an odd one is at bottom and right, if not `upper` at top and left."""
    sides = zip((height, width), kernel, stride, strict=True)
    rows, columns = (max((-(-size // s) - 1) * s + k - size, 0) for size, k, s in sides)
    odd = 0 if upper else 1
    top, left = (rows + odd) // 2, (columns + odd) // 2
    return top, left, rows - top, columns - left


def pad(x: Array, window: Window, value: float) -> Array:
    """Pad x ``(N, H, W, C)`` with `value` as far as the last window reaches (in ceil mode beyond the padding)."""
    frame = [(0, 0)]
    for k, (size, count) in enumerate(zip(x.shape[1:3], window.output(*x.shape[1:3]), strict=True)):
        reach = (count - 1) * window.stride[k] + window.kernel[k]
        frame.append((window.padding[k], max(reach - window.padding[k] - size, 0)))
    return np.pad(x, [*frame, (0, 0)], constant_values=value)


def windows(x: Array, window: Window, fill: float = 0.0) -> Array:
    """Return a view ``(N, rows, columns, C, kh, kw)`` of every window of x ``(N, H, W, C)``, padded with `fill`."""
    rows, columns = window.output(*x.shape[1:3])
    view = sliding_window_view(pad(x, window, fill), window.kernel, axis=(1, 2))
    return view[:, :: window.stride[0], :: window.stride[1]][:, :rows, :columns]


def add_windows(parts: Array, window: Window, height: int, width: int) -> Array:
    """Sum windows ``(N, rows, columns, C, kh, kw)``, the transpose of `windows`: ``(N, height, width, C)``."""
    count, rows, columns, channels, kh, kw = parts.shape
    total = pad(np.zeros((count, height, width, channels), parts.dtype), window, 0)
    (top, left, _, _), (sh, sw) = window.padding, window.stride
    for i in range(kh):
        for j in range(kw):
            total[:, i : i + sh * rows : sh, j : j + sw * columns : sw] += parts[..., i, j]
    return total[:, top : top + height, left : left + width]
