"""``min(max(x, 0), 6)``. The gradient passes where the output lies strictly between 0 and 6."""

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
    return Cost(2 * volume(output), 8 * volume(output))


def _forward(attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, mode: Mode) -> Result:
    return Result(np.clip(inputs[0], 0, 6))


def _backward(
    attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, result: Result, gradient: Array, mode: Mode
) -> Gradients:
    passes = (result.output > 0) & (result.output < 6)
    return Gradients((np.where(passes, gradient, 0).astype(gradient.dtype),))


RELU6: Final = Op(
    name="relu6",
    defaults={},
    shape=_shape,
    cost=_cost,
    forward=_forward,
    backward=_backward,
)
