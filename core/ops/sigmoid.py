"""``1 / (1 + exp(-x))``, computed from ``exp(-|x|)`` so that nothing overflows."""

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
    return Cost(4 * volume(output), 8 * volume(output))


def _forward(attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, mode: Mode) -> Result:
    x = inputs[0]
    small = np.exp(-np.abs(x))
    return Result(np.where(x >= 0, 1, small) / (1 + small))


def _backward(
    attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, result: Result, gradient: Array, mode: Mode
) -> Gradients:
    y = result.output
    return Gradients((gradient * y * (1 - y),))


SIGMOID: Final = Op(
    name="sigmoid",
    defaults={},
    shape=_shape,
    cost=_cost,
    forward=_forward,
    backward=_backward,
)
