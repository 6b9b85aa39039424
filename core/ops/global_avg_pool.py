"""Mean over all pixels of each channel: ``(H, W, C)`` to ``(C,)``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from core.graph import Attributes, Shape
from core.ops.attributes import only_image
from core.ops.contract import Array, Arrays, Cost, Gradients, Mode, Op, Result, volume


def _shape(attributes: Attributes, inputs: Sequence[Shape]) -> Shape:
    return (only_image(inputs)[2],)


def _cost(attributes: Attributes, inputs: Sequence[Shape], output: Shape) -> Cost:
    return Cost(volume(inputs[0]), 4 * (volume(inputs[0]) + volume(output)))


def _forward(attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, mode: Mode) -> Result:
    return Result(inputs[0].mean((1, 2)))


def _backward(
    attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, result: Result, gradient: Array, mode: Mode
) -> Gradients:
    shape = inputs[0].shape
    return Gradients((np.broadcast_to(gradient[:, None, None] / (shape[1] * shape[2]), shape),))


GLOBAL_AVG_POOL: Final = Op(
    name="global_avg_pool", defaults={}, shape=_shape, cost=_cost, forward=_forward, backward=_backward,
)
