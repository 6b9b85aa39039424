"""Writes a network as ONNX, opset 17: channels first, from photo to logits, with its preprocessing as metadata.

The network of a model for several labels per photo ends with a sigmoid: its output is the probability of each label.
A quantised network has QuantizeLinear and DequantizeLinear (QDQ) around its layers, the form that runtimes fuse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from core.graph import PHOTO, Graph, Node
from core.onnx.metadata import LABELS, to_metadata
from core.onnx.quantisation import Quantised, Scale
from core.ops.contract import Arrays
from core.ops.flatten import to_torch

OPSET: Final = 17
IR_VERSION: Final = 8
LOGITS: Final = "logits"
PROBABILITIES: Final = "probabilities"

Writer: TypeAlias = Callable[[Node, tuple[str, ...], str], list[Any]]


def write_onnx(
    graph: Graph, weights: Arrays, classes: tuple[str, ...] = (), temperature: float = 1.0,
    more: Mapping[str, str] | None = None,
) -> bytes:  # fmt: skip
    """Return an ONNX file that computes "logits" ``(N, classes)`` from "photo" ``(N, channels, H, W)``.

    `more`: further metadata by key; with LABELS among it the output is "probabilities".
    """
    return write_quantised_onnx(Quantised(graph, {}, weights, {}), classes, temperature, more)


def write_quantised_onnx(
    quantised: Quantised, classes: tuple[str, ...] = (), temperature: float = 1.0, more: Mapping[str, str] | None = None
) -> bytes:
    """Return an ONNX file like `write_onnx` that is float32 outside and eight bits inside."""
    graph, scales, weights = quantised.graph, quantised.scales, to_torch(quantised.graph, quantised.weights)
    initializers: list[Any] = []
    nodes: list[Any] = []
    names: dict[str, str] = {}
    for node in graph.nodes:
        stored = node.name in scales
        raw = LOGITS if node.name == graph.output else f"{node.name}.float" if stored else node.name
        raw = PHOTO if node.name == PHOTO else raw
        owned = []
        for parameter in node.parameters:
            name = f"{node.name}.{parameter.role}"
            owned.append(_parameter(name, weights[name], quantised, nodes, initializers))
        if node.name != PHOTO:
            nodes += WRITERS[node.op](node, (*(names[i] for i in node.inputs), *owned), raw)
        names[node.name] = _store(node.name, raw, scales[node.name], nodes, initializers) if stored else raw
    metadata = to_metadata(graph, classes, temperature) | dict(more or {})
    return _serialise(graph, nodes, [*initializers, *_constants_of(graph)], metadata)


def _serialise(graph: Graph, nodes: list[Any], initializers: list[Any], metadata: dict[str, str]) -> bytes:
    """Return a file with these nodes, from "photo" to "logits", or to "probabilities"."""
    height, width, channels = graph.photo_shape
    output = LOGITS
    if LABELS in metadata:
        output = PROBABILITIES
        nodes = [*nodes, helper.make_node("Sigmoid", [LOGITS], [output], output)]
    made = helper.make_graph(
        nodes, graph.name, [helper.make_tensor_value_info(PHOTO, TensorProto.FLOAT, ["N", channels, height, width])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["N", graph.classes])], initializers,
    )
    model = helper.make_model(
        made, producer_name="LeafClinic", opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    helper.set_model_props(model, metadata)
    return bytes(model.SerializeToString(deterministic=True))


def _constants_of(graph: Graph) -> list[Any]:
    """Return the constant inputs of ops: ReLU6's bounds, the axes of factors, the dropouts' rates."""
    found = []
    if any(node.op == "relu6" for node in graph.nodes):
        found += [_scalar("relu6.low", 0.0), _scalar("relu6.high", 6.0)]
    if any(node.op == "multiply" for node in graph.nodes):
        found += [numpy_helper.from_array(np.array([2, 3], np.int64), "multiply.axes")]
    return found + [_scalar(f"{n.name}.rate", n.attributes["rate"]) for n in graph.nodes if n.op == "dropout"]


def _scalar(name: str, value: Any) -> Any:
    return numpy_helper.from_array(np.array(value, np.float32), name)


def _plain(op_type: str, *constants: str, **fixed: Any) -> Writer:
    """Return the writer of an op as one ONNX node; constants: further inputs, which `_constants_of` makes."""

    def write(node: Node, inputs: tuple[str, ...], output: str) -> list[Any]:
        more = [name.format(node.name) for name in constants]
        return [helper.make_node(op_type, [*inputs, *more], [output], node.name, **fixed)]

    return write


def _pool(op_type: str, *flags: str) -> Writer:
    """Return the writer of a pool; flags: its attributes that are 0 or 1 in the file."""

    def write(node: Node, inputs: tuple[str, ...], output: str) -> list[Any]:
        given = {flag: int(bool(node.attributes[flag])) for flag in flags}
        return [helper.make_node(op_type, inputs, [output], node.name, **given, **_window(node))]

    return write


def _conv(node: Node, inputs: tuple[str, ...], output: str) -> list[Any]:
    groups = node.shape[-1] if node.op == "depthwise_conv2d" else node.attributes["groups"]
    return [helper.make_node("Conv", inputs, [output], node.name, group=groups, **_window(node))]


def _window(node: Node) -> dict[str, Any]:
    keys = {"kernel_shape": "kernel", "strides": "stride", "pads": "padding"}
    return {theirs: node.attributes[ours] for theirs, ours in keys.items()}


def _global_avg_pool(node: Node, inputs: tuple[str, ...], output: str) -> list[Any]:
    pooled = f"{node.name}.pooled"
    return [
        helper.make_node("GlobalAveragePool", inputs, [pooled], node.name),
        helper.make_node("Flatten", [pooled], [output], f"{node.name}.flatten", axis=1),
    ]


def _batch_norm(node: Node, inputs: tuple[str, ...], output: str) -> list[Any]:
    epsilon, momentum = float(node.attributes["epsilon"]), 1 - float(node.attributes["momentum"])  # type: ignore[arg-type]
    return [helper.make_node("BatchNormalization", inputs, [output], node.name, epsilon=epsilon, momentum=momentum)]


def _silu(node: Node, inputs: tuple[str, ...], output: str) -> list[Any]:
    gate = f"{node.name}.gate"
    return [
        helper.make_node("Sigmoid", inputs, [gate], f"{node.name}.sigmoid"),
        helper.make_node("Mul", [*inputs, gate], [output], node.name),
    ]


def _multiply(node: Node, inputs: tuple[str, ...], output: str) -> list[Any]:
    image, factor = inputs
    pixel = f"{node.name}.factor"
    return [
        helper.make_node("Unsqueeze", [factor, "multiply.axes"], [pixel], f"{node.name}.unsqueeze"),
        helper.make_node("Mul", [image, pixel], [output], node.name),
    ]


WRITERS: Final[Mapping[str, Writer]] = {
    "conv2d": _conv,
    "depthwise_conv2d": _conv,
    "max_pool": _pool("MaxPool", "ceil_mode"),
    "avg_pool": _pool("AveragePool", "ceil_mode", "count_include_pad"),
    "global_avg_pool": _global_avg_pool,
    "dense": _plain("Gemm", transB=1),
    "relu": _plain("Relu"),
    "relu6": _plain("Clip", "relu6.low", "relu6.high"),
    "sigmoid": _plain("Sigmoid"),
    "hard_sigmoid": _plain("HardSigmoid", alpha=1 / 6, beta=0.5),
    "hard_swish": _plain("HardSwish"),
    "silu": _silu,
    "softmax": _plain("Softmax", axis=1),
    "concat": _plain("Concat", axis=1),
    "add": _plain("Add"),
    "multiply": _multiply,
    "batch_norm": _batch_norm,
    "dropout": _plain("Dropout", "{}.rate"),
    "flatten": _plain("Flatten", axis=1),
}
"""How each op is written; the loss is not exported."""


def _parameter(name: str, array: Any, quantised: Quantised, nodes: list[Any], initializers: list[Any]) -> str:
    """Return the tensor that a layer reads: the parameter itself, or its dequantised integers."""
    if name not in quantised.steps:
        initializers.append(numpy_helper.from_array(array, name))
        return name
    steps = quantised.steps[name]
    whole, step, zero = f"{name}.whole", f"{name}.step", f"{name}.zero"
    initializers += [
        numpy_helper.from_array(array, whole),
        numpy_helper.from_array(steps, step),
        numpy_helper.from_array(np.zeros(len(steps), array.dtype), zero),
    ]
    nodes.append(helper.make_node("DequantizeLinear", [whole, step, zero], [name], f"{name}.restore", axis=0))
    return name


def _store(name: str, raw: str, scale: Scale, nodes: list[Any], initializers: list[Any]) -> str:
    """Quantise and dequantise a tensor; return the name that its readers use."""
    step, zero, whole, back = (f"{name}.{part}" for part in ("step", "zero", "whole", "restored"))
    initializers += [
        numpy_helper.from_array(np.array(scale.step, np.float32), step),
        numpy_helper.from_array(np.array(scale.zero, np.uint8), zero),
    ]
    nodes.append(helper.make_node("QuantizeLinear", [raw, step, zero], [whole], f"{name}.store"))
    nodes.append(helper.make_node("DequantizeLinear", [whole, step, zero], [back], f"{name}.restore"))
    return back
