"""Fully connected layer: ``out[n, o] = bias[o] + sum over i of x[n, i] weight[o, i]``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from core.graph import Attributes, Parameter, Shape
from core.ops.attributes import only_input, read_bool, read_int, read_text
from core.ops.contract import Array, Arrays, Cost, Gradients, Mode, Op, Result


def _shape(attributes: Attributes, inputs: Sequence[Shape]) -> Shape:
    shape = only_input(inputs)
    if len(shape) != 1:
        raise ValueError(f"needs an input of (features,), not {shape}; put a flatten before it.")
    return (read_int(attributes, "units", low=1),)


def _parameters(attributes: Attributes, inputs: Sequence[Shape]) -> tuple[Parameter, ...]:
    units, features = read_int(attributes, "units", low=1), only_input(inputs)[0]
    weight = Parameter("weight", (units, features), read_text(attributes, "init"), fan_in=features)
    bias = Parameter("bias", (units,), decay=False)
    return (weight, bias) if read_bool(attributes, "bias") else (weight,)


def _cost(attributes: Attributes, inputs: Sequence[Shape], output: Shape) -> Cost:
    return Cost(2 * inputs[0][0] * output[0], 4 * (inputs[0][0] + output[0]))


def _forward(attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, mode: Mode) -> Result:
    out = inputs[0] @ parameters["weight"].T
    return Result(out + parameters["bias"] if "bias" in parameters else out)


def _backward(
    attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, result: Result, gradient: Array, mode: Mode
) -> Gradients:
    trained = {"weight": gradient.T @ inputs[0]}
    if "bias" in parameters:
        trained["bias"] = gradient.sum(0)
    return Gradients((gradient @ parameters["weight"],), trained)


DENSE: Final = Op(
    name="dense", defaults={"units": 0, "bias": True, "init": "he_uniform"}, shape=_shape, parameters=_parameters,
    cost=_cost, forward=_forward, backward=_backward,
)
