"""``exp(x) / sum exp(x)`` over the last axis, after subtracting the largest value."""

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
    return Cost(5 * volume(output), 8 * volume(output))


def _forward(attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, mode: Mode) -> Result:
    x = inputs[0]
    powers = np.exp(x - x.max(-1, keepdims=True))
    return Result(powers / powers.sum(-1, keepdims=True))


def _backward(
    attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, result: Result, gradient: Array, mode: Mode
) -> Gradients:
    y = result.output
    return Gradients((y * (gradient - (gradient * y).sum(-1, keepdims=True)),))


SOFTMAX: Final = Op(name="softmax", defaults={}, shape=_shape, cost=_cost, forward=_forward, backward=_backward)
