"""Softmax and cross entropy in one: the loss at the end of a training graph.

PyTorch's ``CrossEntropyLoss(weight, label_smoothing, reduction="mean")``: with q the smoothed target,
the loss of photo n is ``sum over c of w[c] q[n, c] (-log p[n, c])`` and the mean is weighted: the sum
over the batch is divided by the sum of ``w[label]``. Labels of -1 are ignored.

With ``taught`` a third input ``(N, classes)`` gives each photo's q in place of its label's: what a teacher
says of it, mixed with the label or not (Hinton et al., "Distilling the knowledge in a neural network", 2015).

The output ``(N, 1)`` holds each photo's *share* of that mean: their plain sum is the loss. A batch in
which nothing is labelled has the loss 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from core.graph import Attributes, Shape
from core.ops.attributes import read_bool, read_number, read_numbers
from core.ops.contract import Array, Arrays, Cost, Gradients, Mode, Op, Result


def _shape(attributes: Attributes, inputs: Sequence[Shape]) -> Shape:
    if len(inputs) != 2 or len(inputs[0]) != 1 or inputs[1] != ():
        raise ValueError("takes logits of (classes,) and the label.")
    smoothing = read_number(attributes, "label_smoothing", 0.0, 1.0)
    if read_bool(attributes, "taught") and smoothing:
        raise ValueError("label_smoothing must be 0 where a teacher gives the targets.")
    weights = read_numbers(attributes, "class_weights")
    if weights and (len(weights) != inputs[0][0] or min(weights) < 0):
        raise ValueError(f"class_weights must be {inputs[0][0]} numbers of at least 0, or none.")
    return (1,)


def _cost(attributes: Attributes, inputs: Sequence[Shape], output: Shape) -> Cost:
    return Cost(6 * inputs[0][0], 8 * inputs[0][0])


def _forward(attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, mode: Mode) -> Result:
    """Saves `target`, the weighted smoothed target of each photo, and `p`, the probabilities; both ``(N, classes)``."""
    logits, labels, *taught = inputs
    shifted = logits - logits.max(-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    q = taught[0] if attributes["taught"] else _smoothed(attributes, labels, logits.shape[-1])
    target = _weighted(attributes, labels, q).astype(logits.dtype)
    share = -(target * log_p).sum(-1, keepdims=True)
    return Result(share, {"target": target, "p": np.exp(log_p)})


def _smoothed(attributes: Attributes, labels: Array, classes: int) -> Array:
    """One for the label's class, some of it for all; ``(N, classes)``."""
    smoothing = read_number(attributes, "label_smoothing", 0.0, 1.0)
    q = np.full((len(labels), classes), smoothing / classes)
    q[np.arange(len(labels)), np.maximum(labels, 0)] += 1 - smoothing
    return q


def _weighted(attributes: Attributes, labels: Array, q: Array) -> Array:
    """Target of each photo times class weights, over the sum of the labels' weights; zero rows where ignored."""
    weights = np.asarray(read_numbers(attributes, "class_weights") or (1.0,) * q.shape[-1])
    known = labels >= 0
    total = weights[labels[known]].sum()
    return np.where(known[:, None], q * weights, 0) / (total if total > 0 else 1.0)


def _backward(
    attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, result: Result, gradient: Array, mode: Mode
) -> Gradients:
    target, p = result.saved["target"], result.saved["p"]
    return Gradients((gradient * (p * target.sum(-1, keepdims=True) - target), None))


SOFTMAX_CROSS_ENTROPY: Final = Op(
    name="softmax_cross_entropy", defaults={"label_smoothing": 0.0, "class_weights": (), "taught": False}, shape=_shape,
    cost=_cost, forward=_forward, backward=_backward,
)
