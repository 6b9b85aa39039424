"""Sum of two inputs of one shape: the skip connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from core.graph import Attributes, Shape
from core.ops.contract import Array, Arrays, Cost, Gradients, Mode, Op, Result, volume


def _shape(attributes: Attributes, inputs: Sequence[Shape]) -> Shape:
    if len(inputs) != 2 or not inputs[0] or inputs[0] != inputs[1]:
        raise ValueError(f"needs two inputs of one shape, not {list(inputs)}.")
    return inputs[0]


def _cost(attributes: Attributes, inputs: Sequence[Shape], output: Shape) -> Cost:
    return Cost(volume(output), 12 * volume(output))


def _forward(attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, mode: Mode) -> Result:
    return Result(inputs[0] + inputs[1])


def _backward(
    attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, result: Result, gradient: Array, mode: Mode
) -> Gradients:
    return Gradients((gradient, gradient))


ADD: Final = Op(name="add", defaults={}, shape=_shape, cost=_cost, forward=_forward, backward=_backward)
