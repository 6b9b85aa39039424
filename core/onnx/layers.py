"""Rules for ONNX ops that compute: convolution, dense, batch norm, pools, activations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any, Final, TypeAlias

import numpy as np

from core.errors import ModelFileError
from core.graph import Shape
from core.onnx.importer import NCHW, Attributes, Importer, OnnxValue, describe, shortest, to_number
from core.ops.contract import Array, volume
from core.ops.flatten import channels_last
from core.ops.window import Window, same_padding

Rule: TypeAlias = Callable[[Importer, Any, Attributes], OnnxValue]


def read_conv(importer: Importer, node: Any, attributes: Attributes) -> OnnxValue:
    """To conv2d or depthwise_conv2d; a pending Pad joins its own pads."""
    x, weight = importer.image(node.input[0], "Conv", pad=True), _weights(importer, node, 1)
    image, groups = importer.shape(x), attributes.get("group", 1)
    if weight.ndim != 4:
        raise ModelFileError(f"{describe(node)} has filters of {weight.ndim} axes; only images are supported.")
    if len(image) == 1:
        return _convolve_features(importer, node, x, weight, attributes)
    framed = (image[0] + x.pad[0] + x.pad[2], image[1] + x.pad[1] + x.pad[3], image[2])
    window = _window_of(describe(node), attributes, weight.shape[2:], framed)
    if window.kernel != weight.shape[2:]:
        raise ModelFileError(f"{describe(node)} states another kernel size than its filters have.")
    top, left, bottom, right = (a + b for a, b in zip(window.padding, x.pad, strict=True))
    bias, depthwise = importer.constant(node, 2) is not None, groups == image[2] == weight.shape[0] > 1
    name = importer.add(
        "depthwise_conv2d" if depthwise else "conv2d", node, (x.node,), kernel=window.kernel, stride=window.stride,
        padding=(top, left, bottom, right), bias=bias,
        **({} if depthwise else {"filters": weight.shape[0], "groups": groups}),
    )  # fmt: skip
    importer.own(name, "weight", weight.transpose(0, 2, 3, 1))
    if bias:
        importer.own(name, "bias", _weights(importer, node, 2))
    return OnnxValue(name)


def _convolve_features(importer: Importer, node: Any, x: OnnxValue, weight: Array, attributes: Attributes) -> OnnxValue:
    """Convert a 1x1 convolution after the global average to a dense layer."""
    plain = weight.shape[2:] == (1, 1) and not any(attributes.get("pads", ())) and not any(x.pad)
    if not plain or attributes.get("group", 1) != 1:
        raise ModelFileError(f"{describe(node)} convolves an image of one pixel; only 1x1 filters may.")
    return _make_dense(importer, node, x, weight[:, :, 0, 0], importer.constant(node, 2))


def read_gemm(importer: Importer, node: Any, attributes: Attributes) -> OnnxValue:
    """To dense; alpha and beta go into the weights, flattened features into the engine's order."""
    x, weight, bias = importer.value(node.input[0]), _weights(importer, node, 1), importer.constant(node, 2)
    if attributes.get("transA", 0) or weight.ndim != 2 or len(importer.shape(x)) != 1:
        raise ModelFileError(f"{describe(node)} is not a dense layer on flattened features.")
    weight = weight if attributes.get("transB", 0) else weight.T
    bias = None if bias is None else bias * np.float32(attributes.get("beta", 1.0))
    return _make_dense(importer, node, x, weight * np.float32(attributes.get("alpha", 1.0)), bias)


def _make_dense(importer: Importer, node: Any, x: OnnxValue, weight: Array, bias: Array | None) -> OnnxValue:
    name = importer.add("dense", node, (x.node,), units=weight.shape[0], bias=bias is not None)
    if x.image is not None and weight.shape[1] == volume(x.image):
        weight = channels_last(weight, x.image)
    importer.own(name, "weight", weight)
    if bias is not None:
        sound = bias.size in (1, weight.shape[0]) and bias.ndim <= 2
        importer.own(name, "bias", np.broadcast_to(bias.ravel(), weight.shape[:1]) if sound else bias)
    return OnnxValue(name, x.axes)


def read_batch_norm(importer: Importer, node: Any, attributes: Attributes) -> OnnxValue:
    """To batch_norm, by image channels or by flattened features."""
    if not attributes.get("spatial", 1) or attributes.get("training_mode", 0):
        raise ModelFileError(f"{describe(node)} is in training mode or not by channel. Export it for inference.")
    x = importer.image(node.input[0], "BatchNormalization")
    epsilon, momentum = float(attributes.get("epsilon", 1e-5)), shortest(1 - float(attributes.get("momentum", 0.9)))
    name = importer.add("batch_norm", node, (x.node,), epsilon=epsilon, momentum=min(max(momentum, 0.0), 1.0))
    for index, role in enumerate(("weight", "bias", "running_mean", "running_var"), 1):
        array = _weights(importer, node, index)
        ordered = x.image is not None and array.shape == (volume(x.image),)
        importer.own(name, role, channels_last(array, x.image) if ordered and x.image else array)
    return replace(x, node=name)


def elementwise(op: str) -> Rule:
    """Return the rule of an op without attributes that becomes one of ours."""
    return lambda importer, node, attributes: _apply(importer, node, op)


def _apply(importer: Importer, node: Any, op: str, **attributes: Any) -> OnnxValue:
    x = importer.unpadded(node.input[0], node.op_type)
    return replace(x, node=importer.add(op, node, (x.node,), **attributes))


def read_clip(importer: Importer, node: Any, attributes: Attributes) -> OnnxValue:
    """To relu6 or relu: bounds 0 and 6, or 0 and none."""
    bounds = []
    for index, (key, default) in enumerate((("min", -inf), ("max", inf)), 1):
        given = importer.constant(node, index)
        bounds.append(float(attributes.get(key, default)) if given is None else to_number(given, key))
    low, high = bounds
    if low != 0.0 or not (high == 6.0 or high >= np.finfo(np.float32).max):
        raise ModelFileError(f"{describe(node)} clips to {low:g} .. {high:g}; supported are 0 .. 6 and 0 .. infinity.")
    return _apply(importer, node, "relu6" if high == 6.0 else "relu")


def read_hard_sigmoid(importer: Importer, node: Any, attributes: Attributes) -> OnnxValue:
    """To hard_sigmoid: PyTorch's, ``clip(x / 6 + 1 / 2, 0, 1)``, which is not ONNX's own default."""
    alpha, beta = float(attributes.get("alpha", 0.2)), float(attributes.get("beta", 0.5))
    if abs(alpha - 1 / 6) > 1e-6 or beta != 0.5:
        raise ModelFileError(f"{describe(node)} is x * {alpha:g} + {beta:g}, clipped; only x / 6 + 0.5 is supported.")
    return _apply(importer, node, "hard_sigmoid")


def read_multiply(importer: Importer, node: Any, attributes: Attributes) -> OnnxValue:
    """To multiply, an image by one factor a channel; to silu and hard_swish, x by its own sigmoid."""
    left, right = (importer.value(name) for name in node.input)
    if any(left.pad) or any(right.pad) or left.axes != right.axes:
        raise ModelFileError(f"{describe(node)} multiplies tensors of different layouts, which is not supported.")
    for x, gate in ((left, right), (right, left)):
        made = importer.nodes[gate.node]
        if made.op in _GATED and made.inputs == (x.node,):
            return replace(x, node=importer.add(_GATED[made.op], node, (x.node,)))
        if importer.shape(gate) == importer.shape(x)[2:] and gate.image is None:
            return replace(x, node=importer.add("multiply", node, (x.node, gate.node)))
    raise ModelFileError(f"{describe(node)} is neither x times its sigmoid nor an image times a factor for each "
                         "channel, which is all that is supported.")


_GATED: Final = {"sigmoid": "silu", "hard_sigmoid": "hard_swish"}
"""What x times a gate of x is."""


def read_dropout(importer: Importer, node: Any, attributes: Attributes) -> OnnxValue:
    given = importer.constant(node, 1)
    rate = float(attributes.get("ratio", 0.5)) if given is None else shortest(to_number(given, "ratio"))
    key = sum(n.op == "dropout" for n in importer.nodes.values())
    return _apply(importer, node, "dropout", rate=min(rate, 0.99), key=key)


def read_pool(importer: Importer, node: Any, attributes: Attributes) -> OnnxValue:
    """To max_pool or avg_pool; unlike PyTorch, ONNX counts the padding only where asked to."""
    if len(node.output) > 1 and node.output[1]:
        raise ModelFileError(f"{describe(node)} returns the indices of its maxima, which is not supported.")
    x = importer.image(node.input[0], node.op_type)
    if len(importer.shape(x)) != 3:
        raise ModelFileError(f"{describe(node)} pools features that are no image.")
    window = _window_of(describe(node), attributes, (), importer.shape(x))
    needed = [(-(-size // s) - 1) * s + k - size
              for size, k, s in zip(importer.shape(x), window.kernel, window.stride, strict=False)]  # fmt: skip
    if attributes.get("auto_pad", b"")[:4] == b"SAME" and min(needed) < -1:
        raise ModelFileError(f"{describe(node)} would have a padding below 0, which programs compute differently.")
    largest, counted = node.op_type == "MaxPool", bool(attributes.get("count_include_pad", 0))
    name = importer.add(
        "max_pool" if largest else "avg_pool", node, (x.node,), kernel=window.kernel, stride=window.stride,
        padding=window.padding, ceil_mode=window.ceil_mode, **({} if largest else {"count_include_pad": counted}),
    )  # fmt: skip
    return OnnxValue(name)


def read_average(importer: Importer, node: Any, attributes: Attributes) -> OnnxValue:
    """The mean over all pixels, also as ReduceMean, to global_avg_pool: (N, C, 1, 1) in the file is (N, C) here."""
    x, reduced = importer.unpadded(node.input[0], node.op_type), node.op_type == "ReduceMean"
    over = importer.integers(node, attributes, "axes") if reduced else (2, 3)
    if len(importer.shape(x)) != 3 or sorted(x.axes[axis] for axis in over) != [2, 3]:
        raise ModelFileError(f"{describe(node)} is not the mean over rows and columns, which is all that is supported.")
    axes = x.axes if attributes.get("keepdims", 1) else NCHW[:2]
    return OnnxValue(importer.add("global_avg_pool", node, (x.node,)), axes)


def read_add(importer: Importer, node: Any, attributes: Attributes) -> OnnxValue:
    left, right = (importer.value(name) for name in node.input)
    if (left.axes, left.image) != (right.axes, right.image) or any(left.pad) or any(right.pad):
        raise ModelFileError(f"{describe(node)} adds tensors of different layouts, which is not supported.")
    return replace(left, node=importer.add("add", node, (left.node, right.node)))


def read_softmax(importer: Importer, node: Any, attributes: Attributes) -> OnnxValue:
    """To softmax over the channels. Before opset 13 it ran over all axes from its own on."""
    axis = attributes.get("axis", -1 if importer.opset >= 13 else 1)
    x = importer.value(node.input[0])
    channels = -len(x.axes) <= axis < len(x.axes) and x.axes[axis] == 1
    if not channels or (len(importer.shape(x)) == 3 and importer.opset < 13):
        raise ModelFileError(f"{describe(node)} runs over another axis than the classes, which is not supported.")
    return _apply(importer, node, "softmax")


def _weights(importer: Importer, node: Any, index: int) -> Array:
    array = importer.constant(node, index)
    if array is None or array.dtype.kind != "f":
        raise ModelFileError(f"Input {index} of {describe(node)} must be constant weights.")
    return array


def _window_of(name: str, attributes: Attributes, kernel: Shape, image: Shape) -> Window:
    """Return the window of a Conv or pool over an image of (height, width, channels). Raises ModelFileError."""
    kernel = _pair(name, "kernel_shape", attributes, kernel)
    stride = _pair(name, "strides", attributes, (1, 1))
    if _pair(name, "dilations", attributes, (1, 1)) != (1, 1):
        raise ModelFileError(f"{name} is dilated, which is not supported.")
    if min(stride) < 1 or min(kernel) < 1:
        raise ModelFileError(f"{name} has the kernel {kernel} and the strides {stride}, which are not valid.")
    auto = attributes.get("auto_pad", b"NOTSET")
    if auto in (b"SAME_UPPER", b"SAME_LOWER"):
        padding = same_padding(image[0], image[1], kernel, stride, auto == b"SAME_UPPER")
    elif auto in (b"NOTSET", b"VALID"):
        pads = attributes.get("pads", (0, 0, 0, 0)) if auto == b"NOTSET" else (0, 0, 0, 0)
        if len(pads) != 4 or not all(isinstance(p, int) for p in pads):
            raise ModelFileError(f"{name} needs four whole numbers as pads; only images are supported.")
        padding = pads[0], pads[1], pads[2], pads[3]
    else:
        raise ModelFileError(f"{name} has the automatic padding {auto!r}, which does not exist.")
    return Window(kernel, stride, padding, bool(attributes.get("ceil_mode", 0)))


def _pair(name: str, key: str, attributes: Attributes, default: Shape) -> tuple[int, int]:
    value = attributes.get(key, default)
    if not isinstance(value, list | tuple) or len(value) != 2 or not all(isinstance(v, int) for v in value):
        raise ModelFileError(f"{name} needs two whole numbers as {key}; only images are supported.")
    return value[0], value[1]
