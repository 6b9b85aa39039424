"""Largest value of each window. Ties go to the first in reading order, as in PyTorch; padding never wins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from core.graph import Attributes, Shape
from core.ops.attributes import only_image
from core.ops.contract import Array, Arrays, Cost, Gradients, Mode, Op, Result, volume
from core.ops.window import add_windows, pad, read_pool_window, read_window, windows


def _shape(attributes: Attributes, inputs: Sequence[Shape]) -> Shape:
    height, width, channels = only_image(inputs)
    return (*read_pool_window(attributes).output(height, width), channels)


def _cost(attributes: Attributes, inputs: Sequence[Shape], output: Shape) -> Cost:
    kh, kw = read_window(attributes).kernel
    return Cost(volume(output) * kh * kw, 4 * (volume(inputs[0]) + volume(output)))


def _forward(attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, mode: Mode) -> Result:
    """Saves `winner`: the flat place ``i * kw + j`` in the window, ``(N, rows, columns, C)``."""
    x, window = inputs[0], read_window(attributes)
    seen = windows(pad(x, window, -np.inf), window, *x.shape[1:3])
    flat = seen.reshape(*seen.shape[:4], -1)
    winner = flat.argmax(-1)
    return Result(np.take_along_axis(flat, winner[..., None], -1)[..., 0], {"winner": winner})


def _backward(
    attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, result: Result, gradient: Array, mode: Mode
) -> Gradients:
    x, window = inputs[0], read_window(attributes)
    kh, kw = window.kernel
    parts = np.zeros((*gradient.shape, kh * kw), gradient.dtype)
    np.put_along_axis(parts, result.saved["winner"][..., None], gradient[..., None], -1)
    return Gradients((add_windows(parts.reshape(*gradient.shape, kh, kw), window, *x.shape[1:3]),))


MAX_POOL: Final = Op(
    name="max_pool", defaults={"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0, 0, 0), "ceil_mode": False},
    shape=_shape, cost=_cost, forward=_forward, backward=_backward,
)
