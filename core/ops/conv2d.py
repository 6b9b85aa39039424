"""Convolution (cross-correlation, as everywhere in deep learning): any kernel, stride, padding and groups.

``out[n, y, x, o] = bias[o] + sum over i, j, c of padded[n, y s + i, x s + j, c] weight[o, i, j, c]``
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from core.graph import Attributes, Parameter, Shape
from core.ops.attributes import only_image, read_bool, read_int, read_text
from core.ops.contract import Array, Arrays, Cost, Gradients, Mode, Op, Result, volume
from core.ops.window import Window, add_windows, pad, read_window, windows


def _shape(attributes: Attributes, inputs: Sequence[Shape]) -> Shape:
    height, width, channels = only_image(inputs)
    filters, groups = read_int(attributes, "filters", low=1), read_int(attributes, "groups", low=1)
    if channels % groups or filters % groups:
        raise ValueError(f"{groups} groups must divide the {channels} channels and the {filters} filters.")
    return (*read_window(attributes).output(height, width), filters)


def _parameters(attributes: Attributes, inputs: Sequence[Shape]) -> tuple[Parameter, ...]:
    filters, (kh, kw) = read_int(attributes, "filters", low=1), read_window(attributes).kernel
    depth = only_image(inputs)[2] // read_int(attributes, "groups", low=1)
    weight = Parameter("weight", (filters, kh, kw, depth), read_text(attributes, "init"), fan_in=kh * kw * depth)
    bias = Parameter("bias", (filters,), decay=False)
    return (weight, bias) if read_bool(attributes, "bias") else (weight,)


def _cost(attributes: Attributes, inputs: Sequence[Shape], output: Shape) -> Cost:
    kh, kw = read_window(attributes).kernel
    depth = inputs[0][2] // read_int(attributes, "groups", low=1)
    return Cost(2 * volume(output) * kh * kw * depth, 4 * (volume(inputs[0]) + volume(output)))


def _forward(attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, mode: Mode) -> Result:
    groups, window = read_int(attributes, "groups", low=1), read_window(attributes)
    parts = [
        _convolve(x, w, window)
        for x, w in zip(np.split(inputs[0], groups, -1), np.split(parameters["weight"], groups), strict=True)
    ]
    out = np.concatenate(parts, -1)
    return Result(out + parameters["bias"] if "bias" in parameters else out)


def _convolve(x: Array, weight: Array, window: Window) -> Array:
    seen = windows(pad(x, window, 0.0), window, *x.shape[1:3])
    return np.tensordot(seen, weight, axes=([3, 4, 5], [3, 1, 2]))


def _backward(
    attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, result: Result, gradient: Array, mode: Mode
) -> Gradients:
    groups, window = read_int(attributes, "groups", low=1), read_window(attributes)
    dx, dweight = [], []
    for x, w, dy in zip(
        np.split(inputs[0], groups, -1), np.split(parameters["weight"], groups), np.split(gradient, groups, -1),
        strict=True,
    ):
        seen = windows(pad(x, window, 0.0), window, *x.shape[1:3])
        dweight.append(np.tensordot(dy, seen, axes=([0, 1, 2], [0, 1, 2])).transpose(0, 2, 3, 1))
        spread = np.tensordot(dy, w, axes=(3, 0)).transpose(0, 1, 2, 5, 3, 4)
        dx.append(add_windows(spread, window, *x.shape[1:3]))
    trained = {"weight": np.concatenate(dweight)}
    if "bias" in parameters:
        trained["bias"] = gradient.sum((0, 1, 2))
    return Gradients((np.concatenate(dx, -1),), trained)


CONV2D: Final = Op(
    name="conv2d",
    defaults={
        "filters": 0,
        "kernel": (1, 1),
        "stride": (1, 1),
        "padding": (0, 0, 0, 0),
        "groups": 1,
        "bias": True,
        "init": "he_uniform",
    },
    shape=_shape, parameters=_parameters, cost=_cost, forward=_forward, backward=_backward,
)
