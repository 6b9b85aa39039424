"""``(H, W, C)`` to ``(H * W * C,)`` in the engine's order, channels last. Plans make it a new shape only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from core.graph import Attributes, Shape
from core.ops.attributes import only_input
from core.ops.contract import Array, Arrays, Cost, Gradients, Mode, Op, Result, volume


def _shape(attributes: Attributes, inputs: Sequence[Shape]) -> Shape:
    return (volume(only_input(inputs)),)


def _forward(attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, mode: Mode) -> Result:
    return Result(inputs[0].reshape(len(inputs[0]), -1))


def _backward(
    attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, result: Result, gradient: Array, mode: Mode
) -> Gradients:
    return Gradients((gradient.reshape(inputs[0].shape),))


FLATTEN: Final = Op(
    name="flatten",
    defaults={},
    shape=_shape,
    cost=lambda attributes, inputs, output: Cost(0, 0),
    forward=_forward,
    backward=_backward,
)
