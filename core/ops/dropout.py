"""Dropout: in training each element is zeroed with probability `rate`, the rest scaled by ``1 / (1 - rate)``.

The mask is a function of (seed, step, key, photo, element) and is computed again where it is needed
(`core.ops.random`). `key` tells the dropouts of one network apart; the photo is its index in the
step, the element its flat channels-last index in the photo. Source: Srivastava et al., 2014.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from core.graph import Attributes, Shape
from core.ops.attributes import only_input, read_int, read_number
from core.ops.contract import Array, Arrays, Cost, Gradients, Mode, Op, Result, volume
from core.ops.random import bits, stream, threshold

MAX_RATE: Final = 0.99


def _shape(attributes: Attributes, inputs: Sequence[Shape]) -> Shape:
    read_number(attributes, "rate", 0.0, MAX_RATE)
    read_int(attributes, "key", low=0)
    return only_input(inputs)


def _cost(attributes: Attributes, inputs: Sequence[Shape], output: Shape) -> Cost:
    return Cost(volume(output), 8 * volume(output))


def scales(attributes: Attributes, shape: Shape, mode: Mode) -> Array:
    """What every element is multiplied by, 0 or ``1 / (1 - rate)``: float32 of the batch's shape."""
    rate, key = read_number(attributes, "rate", 0.0, MAX_RATE), read_int(attributes, "key", low=0)
    keep = np.empty(shape, np.float32)
    for n in range(shape[0]):
        drawn = bits(stream(mode.seed, mode.step, key, mode.photo0 + n), volume(shape[1:]))
        keep[n] = (drawn >= threshold(rate)).reshape(shape[1:])
    return keep * np.float32(1 / (1 - rate))


def _forward(attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, mode: Mode) -> Result:
    x = inputs[0]
    return Result(x * scales(attributes, x.shape, mode).astype(x.dtype) if mode.training else x)


def _backward(
    attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, result: Result, gradient: Array, mode: Mode
) -> Gradients:
    if not mode.training:
        return Gradients((gradient,))
    return Gradients((gradient * scales(attributes, gradient.shape, mode).astype(gradient.dtype),))


DROPOUT: Final = Op(
    name="dropout", defaults={"rate": 0.5, "key": 0}, shape=_shape, cost=_cost, forward=_forward, backward=_backward,
)
