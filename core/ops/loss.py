"""Softmax, and the losses at the end of a training graph: softmax and sigmoid with their cross entropy.

The output of a loss ``(N, 1)`` has each photo's share of the mean: the sum of the shares is the loss. Photos with the
label -1 are ignored; a batch without labels has the loss 0.

- softmax_cross_entropy is PyTorch's ``CrossEntropyLoss(weight, label_smoothing, reduction="mean")``: with smoothed
  targets q, the loss of photo n is ``sum over c of w[c] q[n, c] (-log p[n, c])``, and the sum over the batch is
  divided by the sum of ``w[label]``. With `targets` a third input ``(N, classes)`` has each photo's q: the prediction
  of a teacher, mixed with the label or not (Hinton et al., "Distilling the knowledge in a neural network", 2015).
- sigmoid_cross_entropy is PyTorch's ``BCEWithLogitsLoss()``, for photos with several labels: the mean of
  ``log(1 + exp(z)) - q z`` over labels and photos, for logits z and targets q from 0 to 1, ``(N, classes)``. A
  photo's label is the number of its label set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from core.graph import Attributes, Shape
from core.ops.activation import sigmoid
from core.ops.attributes import only_input, read_bool, read_number, read_numbers
from core.ops.contract import Array, Call, Cost, Gradients, Op, Result, volume


def _softmax_forward(call: Call) -> Result:
    x = call.inputs[0]
    powers = np.exp(x - x.max(-1, keepdims=True))
    return Result(powers / powers.sum(-1, keepdims=True))


def _softmax_backward(call: Call, result: Result, gradient: Array) -> Gradients:
    y = result.output
    return Gradients((y * (gradient - (gradient * y).sum(-1, keepdims=True)),))


SOFTMAX: Final = Op(
    name="softmax", defaults={}, shape=lambda attributes, inputs: only_input(inputs), forward=_softmax_forward,
    backward=_softmax_backward, cost=lambda attributes, inputs, output: Cost(5 * volume(output), 8 * volume(output)),
)


def _check_inputs(inputs: Sequence[Shape]) -> None:
    if len(inputs) != 2 or len(inputs[0]) != 1 or inputs[1] != ():
        raise ValueError("takes logits of (classes,) and the label.")


def _cross_entropy_shape(attributes: Attributes, inputs: Sequence[Shape]) -> Shape:
    _check_inputs(inputs)
    smoothing = read_number(attributes, "label_smoothing", 0.0, 1.0)
    if read_bool(attributes, "targets") and smoothing:
        raise ValueError("label_smoothing must be 0 where a teacher gives the targets.")
    weights = read_numbers(attributes, "class_weights")
    if weights and (len(weights) != inputs[0][0] or min(weights) < 0):
        raise ValueError(f"class_weights must be {inputs[0][0]} numbers of at least 0, or none.")
    return (1,)


def _cross_entropy_forward(call: Call) -> Result:
    """Saves `target`, the weighted smoothed target of each photo, and `p`, the probabilities; both ``(N, classes)``."""
    logits, labels, *targets = call.inputs
    shifted = logits - logits.max(-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    q = targets[0] if call.attributes["targets"] else _smoothed(call.attributes, labels, logits.shape[-1])
    target = _weighted(call.attributes, labels, q).astype(logits.dtype)
    share = -(target * log_p).sum(-1, keepdims=True)
    return Result(share, {"target": target, "p": np.exp(log_p)})


def _smoothed(attributes: Attributes, labels: Array, classes: int) -> Array:
    """Return the smoothed targets of the labels, ``(N, classes)``."""
    smoothing = read_number(attributes, "label_smoothing", 0.0, 1.0)
    q = np.full((len(labels), classes), smoothing / classes)
    q[np.arange(len(labels)), np.maximum(labels, 0)] += 1 - smoothing
    return q


def _weighted(attributes: Attributes, labels: Array, q: Array) -> Array:
    """Return each target times class weights, over the sum of the labels' weights; zeros for ignored photos."""
    weights = np.asarray(read_numbers(attributes, "class_weights") or (1.0,) * q.shape[-1])
    known = labels >= 0
    total = weights[labels[known]].sum()
    return np.where(known[:, None], q * weights, 0) / (total if total > 0 else 1.0)


def _cross_entropy_backward(call: Call, result: Result, gradient: Array) -> Gradients:
    target, p = result.saved["target"], result.saved["p"]
    return Gradients((gradient * (p * target.sum(-1, keepdims=True) - target), None))


SOFTMAX_CROSS_ENTROPY: Final = Op(
    name="softmax_cross_entropy", defaults={"label_smoothing": 0.0, "class_weights": (), "targets": False},
    shape=_cross_entropy_shape, forward=_cross_entropy_forward, backward=_cross_entropy_backward,
    cost=lambda attributes, inputs, output: Cost(6 * inputs[0][0], 8 * inputs[0][0]),
)


def _sigmoid_shape(attributes: Attributes, inputs: Sequence[Shape]) -> Shape:
    _check_inputs(inputs)
    if attributes["targets"] is not True:
        raise ValueError("targets must be true: the loss reads a target for each label.")
    return (1,)


def _sigmoid_forward(call: Call) -> Result:
    """Saves `gradient`, that of the loss ``(N, classes)``."""
    z, labels, targets = call.inputs
    known = labels >= 0
    share = (known / max(int(known.sum()), 1) / z.shape[-1]).astype(z.dtype)[:, None]
    loss = (share * (np.logaddexp(0, z) - targets * z)).sum(-1, keepdims=True)
    return Result(loss.astype(z.dtype), {"gradient": (share * (sigmoid(z) - targets)).astype(z.dtype)})


SIGMOID_CROSS_ENTROPY: Final = Op(
    name="sigmoid_cross_entropy", defaults={"targets": True}, shape=_sigmoid_shape, forward=_sigmoid_forward,
    backward=lambda call, result, dy: Gradients((dy * result.saved["gradient"], None)),
    cost=lambda attributes, inputs, output: Cost(8 * inputs[0][0], 8 * inputs[0][0]),
)
