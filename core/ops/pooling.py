"""Pools: the largest value or the mean of each window, and the mean of a whole image.

In a max pool ties go to the first in reading order, as in PyTorch, and padding never wins. In an average pool, as in
PyTorch, the sum is divided by the part of the window inside the image or its padding with `count_include_pad` (the
default), else by the part inside the image; what reaches beyond the padding in ceil mode never counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from core.graph import Attributes, Shape
from core.ops.attributes import only_image, read_bool
from core.ops.contract import Array, Call, Cost, Gradients, Op, Result, volume
from core.ops.window import add_windows, read_pool_window, read_window, windows

_WINDOW: Final[dict[str, Any]] = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0, 0, 0), "ceil_mode": False}


def _shape(attributes: Attributes, inputs: Sequence[Shape]) -> Shape:
    height, width, channels = only_image(inputs)
    return (*read_pool_window(attributes).output(height, width), channels)


def _cost(attributes: Attributes, inputs: Sequence[Shape], output: Shape) -> Cost:
    taps, divisions = volume(read_window(attributes).kernel), int("count_include_pad" in attributes)
    return Cost(volume(output) * (taps + divisions), 4 * (volume(inputs[0]) + volume(output)))


def _max_forward(call: Call) -> Result:
    """Saves `winner`: the flat place ``i * kw + j`` in the window, ``(N, rows, columns, C)``."""
    seen = windows(call.inputs[0], read_window(call.attributes), -np.inf)
    flat = seen.reshape(*seen.shape[:4], -1)
    winner = flat.argmax(-1)
    return Result(np.take_along_axis(flat, winner[..., None], -1)[..., 0], {"winner": winner})


def _max_backward(call: Call, result: Result, gradient: Array) -> Gradients:
    window = read_window(call.attributes)
    parts = np.zeros((*gradient.shape, volume(window.kernel)), gradient.dtype)
    np.put_along_axis(parts, result.saved["winner"][..., None], gradient[..., None], -1)
    return Gradients((add_windows(parts.reshape(*gradient.shape, *window.kernel), window, *call.inputs[0].shape[1:3]),))


MAX_POOL: Final = Op(
    name="max_pool", defaults=_WINDOW, shape=_shape, cost=_cost, forward=_max_forward, backward=_max_backward,
)


def _avg_shape(attributes: Attributes, inputs: Sequence[Shape]) -> Shape:
    read_bool(attributes, "count_include_pad")
    return _shape(attributes, inputs)


def divisors(attributes: Attributes, height: int, width: int) -> Array:
    """Return the number by which each window's sum is divided, float64 ``(rows, columns)``."""
    window, include = read_window(attributes), read_bool(attributes, "count_include_pad")
    counts, sides = window.output(height, width), []
    for axis, size in enumerate((height, width)):
        before, after = window.padding[axis], window.padding[axis + 2]
        start = np.arange(counts[axis]) * window.stride[axis] - before
        low, high = (-before, size + after) if include else (0, size)
        sides.append(np.minimum(start + window.kernel[axis], high) - np.maximum(start, low))
    return np.outer(*sides).astype(np.float64)


def _divisors_for(x: Array, attributes: Attributes) -> Array:
    return divisors(attributes, *x.shape[1:3]).astype(x.dtype)[..., None]


def _avg_forward(call: Call) -> Result:
    total = windows(call.inputs[0], read_window(call.attributes)).sum((4, 5))
    return Result(total / _divisors_for(call.inputs[0], call.attributes))


def _avg_backward(call: Call, result: Result, gradient: Array) -> Gradients:
    x, window = call.inputs[0], read_window(call.attributes)
    share = (gradient / _divisors_for(x, call.attributes))[..., None, None]
    parts = np.broadcast_to(share, (*gradient.shape, *window.kernel))
    return Gradients((add_windows(parts, window, *x.shape[1:3]),))


AVG_POOL: Final = Op(
    name="avg_pool", defaults={**_WINDOW, "count_include_pad": True}, shape=_avg_shape, cost=_cost,
    forward=_avg_forward, backward=_avg_backward,
)


def _global_backward(call: Call, result: Result, gradient: Array) -> Gradients:
    shape = call.inputs[0].shape
    return Gradients((np.broadcast_to(gradient[:, None, None] / (shape[1] * shape[2]), shape),))


GLOBAL_AVG_POOL: Final = Op(
    name="global_avg_pool", defaults={}, shape=lambda attributes, inputs: only_image(inputs)[2:],
    cost=lambda attributes, inputs, output: Cost(volume(inputs[0]), 4 * (volume(inputs[0]) + volume(output))),
    forward=lambda call: Result(call.inputs[0].mean((1, 2))), backward=_global_backward,
)
