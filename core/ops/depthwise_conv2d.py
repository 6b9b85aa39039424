"""Depthwise convolution: every channel has one filter of its own, ``(C, kh, kw, 1)``.

Source: Howard et al., "MobileNets", 2017, section 3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from core.graph import Attributes, Parameter, Shape
from core.ops.attributes import only_image, read_bool, read_text
from core.ops.contract import Array, Arrays, Cost, Gradients, Mode, Op, Result, volume
from core.ops.window import add_windows, pad, read_window, windows


def _shape(attributes: Attributes, inputs: Sequence[Shape]) -> Shape:
    height, width, channels = only_image(inputs)
    return (*read_window(attributes).output(height, width), channels)


def _parameters(attributes: Attributes, inputs: Sequence[Shape]) -> tuple[Parameter, ...]:
    channels, (kh, kw) = only_image(inputs)[2], read_window(attributes).kernel
    weight = Parameter("weight", (channels, kh, kw, 1), read_text(attributes, "init"), fan_in=kh * kw)
    bias = Parameter("bias", (channels,), decay=False)
    return (weight, bias) if read_bool(attributes, "bias") else (weight,)


def _cost(attributes: Attributes, inputs: Sequence[Shape], output: Shape) -> Cost:
    kh, kw = read_window(attributes).kernel
    return Cost(2 * volume(output) * kh * kw, 4 * (volume(inputs[0]) + volume(output)))


def _forward(attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, mode: Mode) -> Result:
    x, window = inputs[0], read_window(attributes)
    seen = windows(pad(x, window, 0.0), window, *x.shape[1:3])
    out = np.einsum("nyxcij,cij->nyxc", seen, parameters["weight"][..., 0])
    return Result(out + parameters["bias"] if "bias" in parameters else out)


def _backward(
    attributes: Attributes, inputs: Sequence[Array], parameters: Arrays, result: Result, gradient: Array, mode: Mode
) -> Gradients:
    x, window, weight = inputs[0], read_window(attributes), parameters["weight"][..., 0]
    seen = windows(pad(x, window, 0.0), window, *x.shape[1:3])
    trained = {"weight": np.einsum("nyxc,nyxcij->cij", gradient, seen)[..., None]}
    if "bias" in parameters:
        trained["bias"] = gradient.sum((0, 1, 2))
    spread = gradient[..., None, None] * weight
    return Gradients((add_windows(spread, window, *x.shape[1:3]),), trained)


DEPTHWISE_CONV2D: Final = Op(
    name="depthwise_conv2d",
    defaults={
        "kernel": (3, 3),
        "stride": (1, 1),
        "padding": (0, 0, 0, 0),
        "bias": True,
        "init": "he_uniform",
    },
    shape=_shape, parameters=_parameters, cost=_cost, forward=_forward, backward=_backward,
)
