"""``max(x, 0)``. The gradient passes where the output is above 0, so that kernels need only the output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from core.graph import Attributes, Shape
from core.ops.attributes import only_input
from core.ops.contract import Array, Arrays, Cost, Gradients, Mode, Op, Result, volume


def _shape(attributes: Attributes, inputs: Sequence[Shape]) -> Shape:
    return only_input(inputs)


def _cost(attributes: Attributes, inputs: Sequence[Shape], output: Shape) -> Cost:
    return Cost(1 * volume(output), 8 * volume(output))


def _forward(attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, mode: Mode) -> Result:
    return Result(np.maximum(inputs[0], 0))


def _backward(
    attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, result: Result, gradient: Array, mode: Mode
) -> Gradients:
    return Gradients((np.where(result.output > 0, gradient, 0).astype(gradient.dtype),))


RELU: Final = Op(
    name="relu",
    defaults={},
    shape=_shape,
    cost=_cost,
    forward=_forward,
    backward=_backward,
)
