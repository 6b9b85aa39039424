"""Mean of each window.

As PyTorch: with `count_include_pad` (the default there and here) the sum is divided by the part of
the window inside the image or its padding, else by the part inside the image; what reaches beyond
the padding in ceil mode never counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from core.graph import Attributes, Shape
from core.ops.attributes import only_image, read_bool
from core.ops.contract import Array, Arrays, Cost, Gradients, Mode, Op, Result, volume
from core.ops.window import add_windows, pad, read_pool_window, read_window, windows


def _shape(attributes: Attributes, inputs: Sequence[Shape]) -> Shape:
    height, width, channels = only_image(inputs)
    read_bool(attributes, "count_include_pad")
    return (*read_pool_window(attributes).output(height, width), channels)


def _cost(attributes: Attributes, inputs: Sequence[Shape], output: Shape) -> Cost:
    kh, kw = read_window(attributes).kernel
    return Cost(volume(output) * (kh * kw + 1), 4 * (volume(inputs[0]) + volume(output)))


def divisors(attributes: Attributes, height: int, width: int) -> Array:
    """Number each window's sum is divided by, float64 ``(rows, columns)``."""
    window, include = read_window(attributes), read_bool(attributes, "count_include_pad")
    top, left, bottom, right = window.padding
    sides = []
    for size, count, kernel, stride, before, after in (
        (height, window.output(height, width)[0], window.kernel[0], window.stride[0], top, bottom),
        (width, window.output(height, width)[1], window.kernel[1], window.stride[1], left, right),
    ):
        start = np.arange(count) * stride - before
        low, high = (-before, size + after) if include else (0, size)
        sides.append(np.minimum(start + kernel, high) - np.maximum(start, low))
    return np.outer(*sides).astype(np.float64)


def _forward(attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, mode: Mode) -> Result:
    x, window = inputs[0], read_window(attributes)
    total = windows(pad(x, window, 0.0), window, *x.shape[1:3]).sum((4, 5))
    return Result(total / _divisors_for(x, attributes))


def _backward(
    attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, result: Result, gradient: Array, mode: Mode
) -> Gradients:
    x, window = inputs[0], read_window(attributes)
    share = (gradient / _divisors_for(x, attributes))[..., None, None]
    parts = np.broadcast_to(share, (*gradient.shape, *window.kernel))
    return Gradients((add_windows(parts, window, *x.shape[1:3]),))


def _divisors_for(x: Array, attributes: Attributes) -> Array:
    return divisors(attributes, *x.shape[1:3]).astype(x.dtype)[..., None]


AVG_POOL: Final = Op(
    name="avg_pool",
    defaults={
        "kernel": (2, 2), "stride": (2, 2), "padding": (0, 0, 0, 0), "ceil_mode": False, "count_include_pad": True,
    },
    shape=_shape, cost=_cost, forward=_forward, backward=_backward,
)
