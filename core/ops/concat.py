"""Channels of several inputs side by side. Plans let the inputs write into slices instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from core.graph import Attributes, Shape
from core.ops.contract import Array, Arrays, Cost, Gradients, Mode, Op, Result, volume


def _shape(attributes: Attributes, inputs: Sequence[Shape]) -> Shape:
    if not inputs or not all(inputs) or len({s[:-1] for s in inputs}) != 1:
        raise ValueError(f"needs inputs that differ only in their channels, not {list(inputs)}.")
    return (*inputs[0][:-1], sum(s[-1] for s in inputs))


def _cost(attributes: Attributes, inputs: Sequence[Shape], output: Shape) -> Cost:
    return Cost(0, 8 * volume(output))


def _forward(attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, mode: Mode) -> Result:
    return Result(np.concatenate(inputs, -1))


def _backward(
    attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, result: Result, gradient: Array, mode: Mode
) -> Gradients:
    ends = np.cumsum([x.shape[-1] for x in inputs])[:-1]
    return Gradients(tuple(np.split(gradient, ends, -1)))


CONCAT: Final = Op(name="concat", defaults={}, shape=_shape, cost=_cost, forward=_forward, backward=_backward)
