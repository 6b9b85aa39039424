"""Batch normalisation over the last axis. Source: Ioffe and Szegedy, 2015.

In training each channel is normalised by the batch's mean and (biased) variance, and the running
statistics move by `momentum` towards the mean and the unbiased variance, as in PyTorch. At
inference, and in training when `frozen`, the running statistics are used; a frozen layer is a
constant: neither its statistics nor its weight and bias are trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from core.graph import Attributes, Parameter, Shape
from core.ops.attributes import only_input, read_bool, read_number
from core.ops.contract import Array, Call, Cost, Gradients, Mode, Op, Result, volume


def _shape(attributes: Attributes, inputs: Sequence[Shape]) -> Shape:
    read_number(attributes, "epsilon", 1e-12, 1.0)
    read_number(attributes, "momentum", 0.0, 1.0)
    return only_input(inputs)


def _parameters(attributes: Attributes, inputs: Sequence[Shape]) -> tuple[Parameter, ...]:
    channels, trained = (only_input(inputs)[-1],), not read_bool(attributes, "frozen")
    return (
        Parameter("weight", channels, "ones", trained=trained, decay=False),
        Parameter("bias", channels, "zeros", trained=trained, decay=False),
        Parameter("running_mean", channels, "zeros", trained=False, decay=False),
        Parameter("running_var", channels, "ones", trained=False, decay=False),
    )


def _forward(call: Call) -> Result:
    """Saves `mean` and `inverse` (one over the deviation), both ``(C,)``."""
    x, epsilon = call.inputs[0], read_number(call.attributes, "epsilon", 1e-12, 1.0)
    updated: dict[str, Array] = {}
    if _uses_batch(call.attributes, call.mode):
        axes = tuple(range(x.ndim - 1))
        # Summed in float64: NumPy adds along leading axes one by one, 1e-4 off for a 48x48 batch in float32.
        mean, variance = (f(axes, dtype=np.float64).astype(x.dtype) for f in (x.mean, x.var))
        count = x.size // x.shape[-1]
        rate = read_number(call.attributes, "momentum", 0.0, 1.0)
        for role, new in (("running_mean", mean), ("running_var", variance * (count / max(count - 1, 1)))):
            updated[role] = (1 - rate) * call.parameters[role] + rate * new
    else:
        mean, variance = call.parameters["running_mean"], call.parameters["running_var"]
    inverse = 1 / np.sqrt(variance + x.dtype.type(epsilon))
    output = (x - mean) * (inverse * call.parameters["weight"]) + call.parameters["bias"]
    return Result(output, {"mean": mean, "inverse": inverse}, updated)


def _backward(call: Call, result: Result, gradient: Array) -> Gradients:
    mean, inverse = result.saved["mean"], result.saved["inverse"]
    axes = tuple(range(gradient.ndim - 1))
    normal = (call.inputs[0] - mean) * inverse
    dweight, dbias = (gradient * normal).sum(axes), gradient.sum(axes)
    if _uses_batch(call.attributes, call.mode):
        count = gradient.size // gradient.shape[-1]
        gradient = gradient - dbias / count - normal * (dweight / count)
    dx = gradient * (call.parameters["weight"] * inverse)
    trained = {} if read_bool(call.attributes, "frozen") else {"weight": dweight, "bias": dbias}
    return Gradients((dx,), trained)


def _uses_batch(attributes: Attributes, mode: Mode) -> bool:
    return mode.training and not read_bool(attributes, "frozen")


BATCH_NORM: Final = Op(
    name="batch_norm", defaults={"epsilon": 1e-5, "momentum": 0.1, "frozen": False}, shape=_shape,
    parameters=_parameters, cost=lambda attributes, inputs, output: Cost(2 * volume(output), 8 * volume(output)),
    forward=_forward, backward=_backward,
)
