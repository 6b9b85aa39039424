"""Ops that multiply by trained weights: convolution, depthwise convolution and dense layer.

- conv2d is the cross-correlation of any kernel, stride, padding and groups:
  ``out[n, y, x, o] = bias[o] + sum over i, j, c of padded[n, y s + i, x s + j, c] weight[o, i, j, c]``.
- depthwise_conv2d has one filter for every channel, ``(C, kh, kw, 1)``. Source: Howard et al., "MobileNets", 2017.
- dense: ``out[n, o] = bias[o] + sum over i of x[n, i] weight[o, i]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from core.graph import Attributes, Parameter, Shape
from core.ops.attributes import only_image, only_input, read_bool, read_int, read_text
from core.ops.contract import Array, Arrays, Call, Cost, Gradients, Op, Result, volume
from core.ops.window import Window, add_windows, read_window, windows

_WINDOW: Final[dict[str, Any]] = {"kernel": (1, 1), "stride": (1, 1), "padding": (0, 0, 0, 0)}
_WEIGHTS: Final[dict[str, Any]] = {"bias": True, "init": "he_uniform"}


def _weight_and_bias(attributes: Attributes, *shape: int) -> tuple[Parameter, ...]:
    weight = Parameter("weight", shape, read_text(attributes, "init"), fan_in=volume(shape[1:]))
    return (weight, Parameter("bias", shape[:1], decay=False)) if read_bool(attributes, "bias") else (weight,)


def _add_bias(out: Array, parameters: Arrays) -> Result:
    return Result(out + parameters["bias"] if "bias" in parameters else out)


def _gradients(dx: Array, dweight: Array, dy: Array, parameters: Arrays) -> Gradients:
    dbias = {"bias": dy.sum(tuple(range(dy.ndim - 1)))} if "bias" in parameters else {}
    return Gradients((dx,), {"weight": dweight, **dbias})


def _conv2d_shape(attributes: Attributes, inputs: Sequence[Shape]) -> Shape:
    height, width, channels = only_image(inputs)
    filters, groups = read_int(attributes, "filters", low=1), read_int(attributes, "groups", low=1)
    if channels % groups or filters % groups:
        raise ValueError(f"{groups} groups must divide the {channels} channels and the {filters} filters.")
    return (*read_window(attributes).output(height, width), filters)


def _conv2d_parameters(attributes: Attributes, inputs: Sequence[Shape]) -> tuple[Parameter, ...]:
    depth = only_image(inputs)[2] // read_int(attributes, "groups", low=1)
    return _weight_and_bias(attributes, read_int(attributes, "filters", low=1), *read_window(attributes).kernel, depth)


def _window_cost(attributes: Attributes, inputs: Sequence[Shape], output: Shape) -> Cost:
    depth = inputs[0][2] // read_int(attributes, "groups", low=1) if "groups" in attributes else 1
    taps = volume(read_window(attributes).kernel)
    return Cost(2 * volume(output) * taps * depth, 4 * (volume(inputs[0]) + volume(output)))


def _conv2d_forward(call: Call) -> Result:
    groups, window = read_int(call.attributes, "groups", low=1), read_window(call.attributes)
    pairs = zip(np.split(call.inputs[0], groups, -1), np.split(call.parameters["weight"], groups), strict=True)
    return _add_bias(np.concatenate([_convolve(x, w, window) for x, w in pairs], -1), call.parameters)


def _convolve(x: Array, weight: Array, window: Window) -> Array:
    return np.tensordot(windows(x, window), weight, axes=([3, 4, 5], [3, 1, 2]))


def _conv2d_backward(call: Call, result: Result, gradient: Array) -> Gradients:
    groups, window = read_int(call.attributes, "groups", low=1), read_window(call.attributes)
    weights, gradients = np.split(call.parameters["weight"], groups), np.split(gradient, groups, -1)
    dx, dweight = [], []
    for x, w, dy in zip(np.split(call.inputs[0], groups, -1), weights, gradients, strict=True):
        dweight.append(np.tensordot(dy, windows(x, window), axes=([0, 1, 2], [0, 1, 2])).transpose(0, 2, 3, 1))
        spread = np.tensordot(dy, w, axes=(3, 0)).transpose(0, 1, 2, 5, 3, 4)
        dx.append(add_windows(spread, window, *x.shape[1:3]))
    return _gradients(np.concatenate(dx, -1), np.concatenate(dweight), gradient, call.parameters)


CONV2D: Final = Op(
    name="conv2d", defaults={"filters": 0, **_WINDOW, "groups": 1, **_WEIGHTS}, shape=_conv2d_shape,
    parameters=_conv2d_parameters, cost=_window_cost, forward=_conv2d_forward, backward=_conv2d_backward,
)


def _depthwise_shape(attributes: Attributes, inputs: Sequence[Shape]) -> Shape:
    height, width, channels = only_image(inputs)
    return (*read_window(attributes).output(height, width), channels)


def _depthwise_parameters(attributes: Attributes, inputs: Sequence[Shape]) -> tuple[Parameter, ...]:
    return _weight_and_bias(attributes, only_image(inputs)[2], *read_window(attributes).kernel, 1)


def _depthwise_forward(call: Call) -> Result:
    seen = windows(call.inputs[0], read_window(call.attributes))
    return _add_bias(np.einsum("nyxcij,cij->nyxc", seen, call.parameters["weight"][..., 0]), call.parameters)


def _depthwise_backward(call: Call, result: Result, gradient: Array) -> Gradients:
    x, window, weight = call.inputs[0], read_window(call.attributes), call.parameters["weight"][..., 0]
    dweight = np.einsum("nyxc,nyxcij->cij", gradient, windows(x, window))[..., None]
    dx = add_windows(gradient[..., None, None] * weight, window, *x.shape[1:3])
    return _gradients(dx, dweight, gradient, call.parameters)


DEPTHWISE_CONV2D: Final = Op(
    name="depthwise_conv2d", defaults={**_WINDOW, "kernel": (3, 3), **_WEIGHTS}, shape=_depthwise_shape,
    parameters=_depthwise_parameters, cost=_window_cost, forward=_depthwise_forward, backward=_depthwise_backward,
)


def _dense_shape(attributes: Attributes, inputs: Sequence[Shape]) -> Shape:
    shape = only_input(inputs)
    if len(shape) != 1:
        raise ValueError(f"needs an input of (features,), not {shape}; put a flatten before it.")
    return (read_int(attributes, "units", low=1),)


def _dense_parameters(attributes: Attributes, inputs: Sequence[Shape]) -> tuple[Parameter, ...]:
    return _weight_and_bias(attributes, read_int(attributes, "units", low=1), only_input(inputs)[0])


DENSE: Final = Op(
    name="dense", defaults={"units": 0, **_WEIGHTS}, shape=_dense_shape, parameters=_dense_parameters,
    cost=lambda attributes, inputs, output: Cost(2 * inputs[0][0] * output[0], 4 * (inputs[0][0] + output[0])),
    forward=lambda call: _add_bias(call.inputs[0] @ call.parameters["weight"].T, call.parameters),
    backward=lambda call, result, dy: _gradients(
        dy @ call.parameters["weight"], dy.T @ call.inputs[0], dy, call.parameters),
)
