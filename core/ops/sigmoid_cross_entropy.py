"""Sigmoid and binary cross entropy in one: the loss of photos that may have several labels.

PyTorch's ``BCEWithLogitsLoss()``: the mean of ``log(1 + exp(z)) - q z`` over labels and photos, for logits z and
targets q from 0 to 1, ``(N, classes)``. Photos whose label, here the number of their label set, is -1 are ignored.

The output ``(N, 1)`` holds each photo's share of that mean: their sum is the loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from core.graph import Attributes, Shape
from core.ops.contract import Array, Arrays, Cost, Gradients, Mode, Op, Result


def _shape(attributes: Attributes, inputs: Sequence[Shape]) -> Shape:
    if len(inputs) != 2 or len(inputs[0]) != 1 or inputs[1] != ():
        raise ValueError("takes logits of (classes,) and the label.")
    if attributes["taught"] is not True:
        raise ValueError("taught must be true: the loss reads a target for each label.")
    return (1,)


def _cost(attributes: Attributes, inputs: Sequence[Shape], output: Shape) -> Cost:
    return Cost(8 * inputs[0][0], 8 * inputs[0][0])


def _forward(attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, mode: Mode) -> Result:
    """Saves `gradient`, that of the loss ``(N, classes)``."""
    z, labels, targets = inputs
    known = labels >= 0
    share = (known / max(int(known.sum()), 1) / z.shape[-1]).astype(z.dtype)[:, None]
    loss = (share * (np.logaddexp(0, z) - targets * z)).sum(-1, keepdims=True)
    small = np.exp(-np.abs(z))
    probability = np.where(z >= 0, 1, small) / (1 + small)
    return Result(loss.astype(z.dtype), {"gradient": (share * (probability - targets)).astype(z.dtype)})


def _backward(
    attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, result: Result, gradient: Array, mode: Mode
) -> Gradients:
    return Gradients((gradient * result.saved["gradient"], None))


SIGMOID_CROSS_ENTROPY: Final = Op(
    name="sigmoid_cross_entropy", defaults={"taught": True}, shape=_shape, cost=_cost, forward=_forward,
    backward=_backward,
)
