"""Ops that combine several inputs: add, multiply and concat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from core.graph import Attributes, Shape
from core.ops.contract import Array, Call, Cost, Gradients, Op, Result, volume


def _add_shape(attributes: Attributes, inputs: Sequence[Shape]) -> Shape:
    if len(inputs) != 2 or not inputs[0] or inputs[0] != inputs[1]:
        raise ValueError(f"needs two inputs of one shape, not {list(inputs)}.")
    return inputs[0]


ADD: Final = Op(
    name="add", defaults={}, shape=_add_shape,
    cost=lambda attributes, inputs, output: Cost(volume(output), 12 * volume(output)),
    forward=lambda call: Result(call.inputs[0] + call.inputs[1]),
    backward=lambda call, result, gradient: Gradients((gradient, gradient)),
)
"""Sum of two inputs of one shape: the skip connection."""


def _multiply_shape(attributes: Attributes, inputs: Sequence[Shape]) -> Shape:
    if len(inputs) != 2 or len(inputs[0]) != 3 or inputs[1] != inputs[0][2:]:
        raise ValueError(f"needs an image (height, width, channels) and a factor (channels,), not {list(inputs)}.")
    return inputs[0]


MULTIPLY: Final = Op(
    name="multiply", defaults={}, shape=_multiply_shape,
    forward=lambda call: Result(call.inputs[0] * call.inputs[1][:, None, None]),
    cost=lambda attributes, inputs, output: Cost(volume(output), 8 * volume(output) + 4 * volume(inputs[1])),
    backward=lambda call, result, dy: Gradients(
        (dy * call.inputs[1][:, None, None], (dy * call.inputs[0]).sum((1, 2)))),
)
"""Product of an image ``(H, W, C)`` and one factor per channel ``(C,)``: the scale of a squeeze and excitation."""


def _concat_shape(attributes: Attributes, inputs: Sequence[Shape]) -> Shape:
    if not inputs or not all(inputs) or len({s[:-1] for s in inputs}) != 1:
        raise ValueError(f"needs inputs that differ only in their channels, not {list(inputs)}.")
    return (*inputs[0][:-1], sum(s[-1] for s in inputs))


def _concat_backward(call: Call, result: Result, gradient: Array) -> Gradients:
    ends = np.cumsum([x.shape[-1] for x in call.inputs])[:-1]
    return Gradients(tuple(np.split(gradient, ends, -1)))


CONCAT: Final = Op(
    name="concat", defaults={}, shape=_concat_shape, backward=_concat_backward,
    forward=lambda call: Result(np.concatenate(call.inputs, -1)),
    cost=lambda attributes, inputs, output: Cost(0, 8 * volume(output)),
)
"""Channels of several inputs side by side. Plans usually let the inputs write into slices of the output instead."""
