"""Product of an image ``(H, W, C)`` and one factor per channel ``(C,)``: the scale of a squeeze and excitation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from core.graph import Attributes, Shape
from core.ops.contract import Array, Arrays, Cost, Gradients, Mode, Op, Result, volume


def _shape(attributes: Attributes, inputs: Sequence[Shape]) -> Shape:
    if len(inputs) != 2 or len(inputs[0]) != 3 or inputs[1] != inputs[0][2:]:
        raise ValueError(f"needs an image (height, width, channels) and a factor (channels,), not {list(inputs)}.")
    return inputs[0]


def _cost(attributes: Attributes, inputs: Sequence[Shape], output: Shape) -> Cost:
    return Cost(volume(output), 8 * volume(output) + 4 * volume(inputs[1]))


def _forward(attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, mode: Mode) -> Result:
    return Result(inputs[0] * inputs[1][:, None, None])


def _backward(
    attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, result: Result, gradient: Array, mode: Mode
) -> Gradients:
    return Gradients((gradient * inputs[1][:, None, None], (gradient * inputs[0]).sum((1, 2))))


MULTIPLY: Final = Op(name="multiply", defaults={}, shape=_shape, cost=_cost, forward=_forward, backward=_backward)
