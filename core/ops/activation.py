"""The table of activations, from which their ops, their fusion and the inputs of their gradients follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from core.ops.attributes import only_input
from core.ops.contract import Array, Call, Cost, Gradients, Op, Result, volume


@dataclass(frozen=True, slots=True)
class Activation:
    """A function of one element, without attributes.

    value: y as a function of x. gradient: of x, from the gradient of y and from y, or from x if `needs_input`. flops:
    per element. fuses: whether it may join the step before it; one that `needs_input` fuses at inference only,
    because a fused step does not keep its x.
    """

    name: str
    value: Callable[[Array], Array]
    gradient: Callable[[Array, Array], Array]
    flops: int
    needs_input: bool = False
    fuses: bool = True


def sigmoid(x: Array) -> Array:
    """``1 / (1 + exp(-x))``, computed from ``exp(-|x|)`` so that nothing overflows."""
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, small) / (1 + small))


def _hard_sigmoid(x: Array) -> Array:
    return np.asarray(np.clip(x + 3, 0, 6) / 6)


def _hard_swish_gradient(dy: Array, x: Array) -> Array:
    inside = np.where(x < 3, dy * (2 * x + 3) / 6, dy)
    return np.where(x > -3, inside, 0)


def _silu_gradient(dy: Array, x: Array) -> Array:
    s = sigmoid(x)
    return np.asarray(dy * (s + x * s * (1 - s)))


ACTIVATIONS: Final[Mapping[str, Activation]] = MappingProxyType({row.name: row for row in (
    Activation("relu", lambda x: np.maximum(x, 0), lambda dy, y: np.where(y > 0, dy, 0), 1),
    Activation("relu6", lambda x: np.clip(x, 0, 6), lambda dy, y: np.where((y > 0) & (y < 6), dy, 0), 2),
    Activation("sigmoid", sigmoid, lambda dy, y: dy * y * (1 - y), 4, fuses=False),
    Activation("hard_sigmoid", _hard_sigmoid, lambda dy, y: np.where((y > 0) & (y < 1), dy / 6, 0), 4),
    Activation("hard_swish", lambda x: x * _hard_sigmoid(x), _hard_swish_gradient, 5, needs_input=True),
    Activation("silu", lambda x: x * sigmoid(x), _silu_gradient, 5, needs_input=True),
)})  # fmt: skip
"""All activations. Sources: Howard et al., "Searching for MobileNetV3", 2019 (hard sigmoid, hard swish); Elfwing et
al., "Sigmoid-weighted linear units", 2018 (SiLU). At its bends a function has the gradient 0, as in PyTorch; the hard
swish, which has two sides there, has that of the outer side."""


def _op(row: Activation) -> Op:

    def backward(call: Call, result: Result, dy: Array) -> Gradients:
        seen = call.inputs[0] if row.needs_input else result.output
        return Gradients((row.gradient(dy, seen).astype(dy.dtype),))

    return Op(
        row.name, {}, shape=lambda attributes, inputs: only_input(inputs), backward=backward,
        cost=lambda attributes, inputs, output: Cost(row.flops * volume(output), 8 * volume(output)),
        forward=lambda call: Result(row.value(call.inputs[0])),
    )


ACTIVATION_OPS: Final = tuple(_op(row) for row in ACTIVATIONS.values())
