"""One rule per ONNX op that is read: what it becomes in our graph. `RULES` lists them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np

from core.errors import ModelFileError
from core.onnx.tensors import to_ints, to_number
from core.onnx.walk import NCHW, Value, Walk, attributes_of, describe, shortest
from core.onnx.windows import WINDOW, window_of
from core.ops.contract import Array, volume
from core.ops.flatten import channels_last

Rule: TypeAlias = Callable[[Walk, Any], None]

MAX_PENDING_PAD: Final = 1 << 12


def _conv(walk: Walk, node: Any) -> None:
    attributes = attributes_of(node, (*WINDOW, "group"))
    x, weight = walk.image(node.input[0], "Conv", pad=True), _weights(walk, node, 1)
    image, groups = walk.shape(x), attributes.get("group", 1)
    if weight.ndim != 4:
        raise ModelFileError(f"{describe(node)} has filters of {weight.ndim} axes; only images are read.")
    if len(image) == 1:
        _convolve_features(walk, node, x, weight, attributes)
        return
    window = window_of(describe(node), attributes, weight.shape[2:], image)
    if window.kernel != weight.shape[2:]:
        raise ModelFileError(f"{describe(node)} promises another kernel than its filters have.")
    top, left, bottom, right = (a + b for a, b in zip(window.padding, x.pad, strict=True))
    shared: dict[str, Any] = {
        "kernel": window.kernel,
        "stride": window.stride,
        "padding": (top, left, bottom, right),
        "bias": walk.constant(node, 2) is not None,
    }
    if groups == image[2] == weight.shape[0] > 1:
        name = walk.add("depthwise_conv2d", node, (x.node,), **shared)
    else:
        name = walk.add("conv2d", node, (x.node,), filters=weight.shape[0], groups=groups, **shared)
    walk.own(name, "weight", weight.transpose(0, 2, 3, 1))
    if shared["bias"]:
        walk.own(name, "bias", _weights(walk, node, 2))
    walk.values[node.output[0]] = Value(name)


def _convolve_features(walk: Walk, node: Any, x: Value, weight: Array, attributes: dict[str, Any]) -> None:
    """A 1x1 convolution after the global average is a dense layer."""
    plain = weight.shape[2:] == (1, 1) and not any(attributes.get("pads", ())) and not any(x.pad)
    if not plain or attributes.get("group", 1) != 1:
        raise ModelFileError(f"{describe(node)} convolves an image of one pixel, which is read for 1x1 filters only.")
    _make_dense(walk, node, x, weight[:, :, 0, 0], walk.constant(node, 2))


def _gemm(walk: Walk, node: Any) -> None:
    attributes = attributes_of(node, ("alpha", "beta", "transA", "transB"))
    x, weight, bias = walk.value(node.input[0]), _weights(walk, node, 1), walk.constant(node, 2)
    if attributes.get("transA", 0) or weight.ndim != 2 or len(walk.shape(x)) != 1:
        raise ModelFileError(f"{describe(node)} is not a dense layer on flattened features.")
    weight = weight if attributes.get("transB", 0) else weight.T
    if (alpha := attributes.get("alpha", 1.0)) != 1.0:
        weight = weight * np.float32(alpha)
    if bias is not None and (beta := attributes.get("beta", 1.0)) != 1.0:
        bias = bias * np.float32(beta)
    _make_dense(walk, node, x, weight, bias)


def _make_dense(walk: Walk, node: Any, x: Value, weight: Array, bias: Array | None) -> None:
    name = walk.add("dense", node, (x.node,), units=weight.shape[0], bias=bias is not None)
    if x.image is not None and weight.shape[1] == volume(x.image):
        weight = channels_last(weight, x.image)
    walk.own(name, "weight", weight)
    if bias is not None:
        sound = bias.size in (1, weight.shape[0]) and bias.ndim <= 2
        walk.own(name, "bias", np.broadcast_to(bias.ravel(), weight.shape[:1]) if sound else bias)
    walk.values[node.output[0]] = Value(name)


def _batch_norm(walk: Walk, node: Any) -> None:
    attributes = attributes_of(node, ("epsilon", "momentum", "spatial", "training_mode", "is_test"))
    if not attributes.get("spatial", 1) or attributes.get("training_mode", 0):
        raise ModelFileError(f"{describe(node)} is of a kind that is not read.")
    x = walk.image(node.input[0], "BatchNormalization")
    epsilon, momentum = float(attributes.get("epsilon", 1e-5)), shortest(1 - float(attributes.get("momentum", 0.9)))
    name = walk.add("batch_norm", node, (x.node,), epsilon=epsilon, momentum=min(max(momentum, 0.0), 1.0))
    for index, role in enumerate(("weight", "bias", "running_mean", "running_var"), 1):
        array = _weights(walk, node, index)
        ordered = x.image is not None and array.shape == (volume(x.image),)
        walk.own(name, role, channels_last(array, x.image) if ordered and x.image else array)
    walk.values[node.output[0]] = replace(x, node=name)


def _elementwise(op: str) -> Rule:
    def rule(walk: Walk, node: Any) -> None:
        attributes_of(node, ())
        _apply(walk, node, op)

    return rule


def _apply(walk: Walk, node: Any, op: str, **attributes: Any) -> None:
    x = walk.value(node.input[0])
    if any(x.pad):
        raise ModelFileError(f"A Pad before {node.op_type} does not fold; only one before Conv does.")
    walk.values[node.output[0]] = replace(x, node=walk.add(op, node, (x.node,), **attributes))


def _clip(walk: Walk, node: Any) -> None:
    attributes = attributes_of(node, ("min", "max"))
    bounds = []
    for index, (key, default) in enumerate((("min", -inf), ("max", inf)), 1):
        given = walk.constant(node, index)
        bounds.append(float(attributes.get(key, default)) if given is None else to_number(given, key))
    low, high = bounds
    if (low, high) not in ((0.0, 6.0), (0.0, inf)) and not (low == 0.0 and high >= np.finfo(np.float32).max):
        raise ModelFileError(f"{describe(node)} clips to {low:g} .. {high:g}; only 0 .. 6 and 0 .. infinity are read.")
    _apply(walk, node, "relu6" if high == 6.0 else "relu")


def _dropout(walk: Walk, node: Any) -> None:
    attributes = attributes_of(node, ("ratio", "seed", "is_test", "consumed_inputs"))
    given = walk.constant(node, 1)
    rate = float(attributes.get("ratio", 0.5)) if given is None else shortest(to_number(given, "ratio"))
    key = sum(n.op == "dropout" for n in walk.nodes.values())
    _apply(walk, node, "dropout", rate=min(rate, 0.99), key=key)


def _max_pool(walk: Walk, node: Any) -> None:
    attributes = attributes_of(node, (*WINDOW, "storage_order"))
    if len(node.output) > 1 and node.output[1]:
        raise ModelFileError(f"{describe(node)} gives the places of its largest values, which is not read.")
    _pool(walk, node, "max_pool", attributes)


def _average_pool(walk: Walk, node: Any) -> None:
    attributes = attributes_of(node, (*WINDOW, "count_include_pad"))
    _pool(walk, node, "avg_pool", attributes, count_include_pad=bool(attributes.get("count_include_pad", 0)))


def _pool(walk: Walk, node: Any, op: str, attributes: dict[str, Any], **more: Any) -> None:
    x = walk.image(node.input[0], node.op_type)
    if len(walk.shape(x)) != 3:
        raise ModelFileError(f"{describe(node)} pools features that are no image.")
    window = window_of(describe(node), attributes, (), walk.shape(x))
    name = walk.add(
        op, node, (x.node,), kernel=window.kernel, stride=window.stride, padding=window.padding,
        ceil_mode=window.ceil_mode, **more,
    )  # fmt: skip
    walk.values[node.output[0]] = Value(name)


def _global_average_pool(walk: Walk, node: Any) -> None:
    attributes_of(node, ())
    x = walk.image(node.input[0], "GlobalAveragePool")
    walk.values[node.output[0]] = Value(walk.add("global_avg_pool", node, (x.node,)))


def _concat(walk: Walk, node: Any) -> None:
    axis = attributes_of(node, ("axis",)).get("axis", 1)
    values = [walk.value(name) for name in node.input]
    same = {v.axes for v in values}
    if len(same) != 1 or any(any(v.pad) or v.image for v in values) or not -4 <= axis < 4:
        raise ModelFileError(f"{describe(node)} joins tensors of different layouts, which is not read.")
    axes = same.pop()
    if len(walk.shape(values[0])) == 3 and axes[axis] != 1 or len(walk.shape(values[0])) == 1 and axis not in (1, -1):
        raise ModelFileError(f"{describe(node)} joins along another axis than the channels, which is not read.")
    name = walk.add("concat", node, tuple(v.node for v in values))
    walk.values[node.output[0]] = Value(name, axes)


def _add(walk: Walk, node: Any) -> None:
    attributes_of(node, ())
    left, right = (walk.value(name) for name in node.input)
    if (left.axes, left.image) != (right.axes, right.image) or any(left.pad) or any(right.pad):
        raise ModelFileError(f"{describe(node)} adds tensors of different layouts, which is not read.")
    walk.values[node.output[0]] = replace(left, node=walk.add("add", node, (left.node, right.node)))


def _flatten(walk: Walk, node: Any) -> None:
    if attributes_of(node, ("axis",)).get("axis", 1) != 1:
        raise ModelFileError(f"{describe(node)} flattens along another axis than 1, which is not read.")
    _to_features(walk, node)


def _reshape(walk: Walk, node: Any) -> None:
    attributes_of(node, ("allowzero",))
    shape = to_ints(walk.constant(node, 1), f"The shape of {describe(node)}")
    size = volume(walk.shape(walk.value(node.input[0])))
    trailing = all(side == 1 for side in shape[2:])
    if len(shape) < 2 or not trailing or not (shape[1] in (-1, size) or (shape[0] == 1 and shape[1] == size)):
        raise ModelFileError(f"{describe(node)} to {shape} is not a flattening, which is all that is read.")
    _to_features(walk, node)


def _to_features(walk: Walk, node: Any) -> None:
    x = walk.value(node.input[0])
    shape = walk.shape(x)
    if any(x.pad):
        raise ModelFileError(f"A Pad before {node.op_type} does not fold; only one before Conv does.")
    if len(shape) == 1:
        walk.values[node.output[0]] = replace(x, axes=NCHW)
        return
    if x.axes not in (NCHW, (0, 2, 3, 1)):
        raise ModelFileError(f"A Transpose before {node.op_type} does not fold.")
    ordered = x.axes != NCHW or shape[0] * shape[1] == 1
    name = walk.add("flatten", node, (x.node,))
    walk.values[node.output[0]] = Value(name, image=None if ordered else shape)


def _transpose(walk: Walk, node: Any) -> None:
    order = tuple(attributes_of(node, ("perm",)).get("perm", (3, 2, 1, 0)))
    x = walk.value(node.input[0])
    if sorted(order) != [0, 1, 2, 3] or order[0] != 0 or len(walk.shape(x)) != 3 or any(x.pad):
        raise ModelFileError(f"{describe(node)} by {order} does not fold.")
    walk.values[node.output[0]] = replace(x, axes=tuple(x.axes[i] for i in order))


def _pad(walk: Walk, node: Any) -> None:
    attributes = attributes_of(node, ("mode", "pads", "value"))
    given, filler = walk.constant(node, 1), walk.constant(node, 2)
    pads = tuple(attributes.get("pads", ())) if given is None else to_ints(given, "pads")
    value = float(attributes.get("value", 0.0)) if filler is None else to_number(filler, "value")
    x = walk.image(node.input[0], "Pad", pad=True)
    plain = attributes.get("mode", b"constant") == b"constant" and value == 0 and walk.constant(node, 3) is None
    if not plain or len(pads) != 8 or any((*pads[:2], *pads[4:6])) or not all(0 <= p < MAX_PENDING_PAD for p in pads):
        raise ModelFileError(f"{describe(node)} is not a frame of zeros around an image, which is all that is read.")
    frame = (pads[2], pads[3], pads[6], pads[7])
    top, left, bottom, right = (min(a + b, MAX_PENDING_PAD) for a, b in zip(x.pad, frame, strict=True))
    walk.values[node.output[0]] = replace(x, pad=(top, left, bottom, right))


def _identity(walk: Walk, node: Any) -> None:
    attributes_of(node, ())
    if node.input[0] in walk.constants:
        walk.constants[node.output[0]] = walk.constants[node.input[0]]
    else:
        walk.values[node.output[0]] = walk.value(node.input[0])


def _constant(walk: Walk, node: Any) -> None:
    kinds = ("value", "value_float", "value_floats", "value_int", "value_ints")
    attributes = attributes_of(node, kinds)
    if len(attributes) != 1:
        raise ModelFileError(f"{describe(node)} must have one value.")
    walk.constants[node.output[0]] = np.asarray(next(iter(attributes.values())))


def _softmax(walk: Walk, node: Any) -> None:
    axis = attributes_of(node, ("axis",)).get("axis", -1 if walk.opset >= 13 else 1)
    x = walk.value(node.input[0])
    channels = x.axes[axis] == 1 if len(walk.shape(x)) == 3 and -4 <= axis < 4 else axis in (1, -1)
    if not channels or (len(walk.shape(x)) == 3 and walk.opset < 13):
        raise ModelFileError(f"{describe(node)} runs over another axis than the classes, which is not read.")
    _apply(walk, node, "softmax")


def _weights(walk: Walk, node: Any, index: int) -> Array:
    array = walk.constant(node, index)
    if array is None or array.dtype.kind != "f":
        raise ModelFileError(f"Input {index} of {describe(node)} must be constant weights.")
    return array


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "Add": _add,
        "AveragePool": _average_pool,
        "BatchNormalization": _batch_norm,
        "Clip": _clip,
        "Concat": _concat,
        "Constant": _constant,
        "Conv": _conv,
        "Dropout": _dropout,
        "Flatten": _flatten,
        "Gemm": _gemm,
        "GlobalAveragePool": _global_average_pool,
        "Identity": _identity,
        "MaxPool": _max_pool,
        "Pad": _pad,
        "Relu": _elementwise("relu"),
        "Reshape": _reshape,
        "Sigmoid": _elementwise("sigmoid"),
        "Softmax": _softmax,
        "Transpose": _transpose,
    }
)
