"""Flatten ``(H, W, C)`` to ``(H * W * C,)``, channels last, and the conversion of weights from and to channels first.

Plans implement the op as a new shape.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from core.graph import Graph, Node, Shape
from core.ops.activation import ACTIVATIONS
from core.ops.attributes import only_input
from core.ops.contract import Array, Arrays, Cost, Gradients, Op, Result, volume

_KEEPS_ORDER: Final = (*ACTIVATIONS, "dropout", "batch_norm")


def flattened_image(graph: Graph, node: Node) -> Shape | None:
    """Return the (height, width, channels) of which a node's input is the flattening, or None."""
    before = graph.node(node.inputs[0])
    while before.op in _KEEPS_ORDER:
        before = graph.node(before.inputs[0])
    if before.op != "flatten":
        return None
    image = graph.node(before.inputs[0]).shape
    return image if len(image) == 3 else None


def channels_first(array: Array, image: Shape) -> Array:
    """Reorder the last axis, a flattened image, from channels last to the channels first of PyTorch and ONNX."""
    moved = np.moveaxis(array.reshape(*array.shape[:-1], *image), -1, -3)
    return np.ascontiguousarray(moved.reshape(array.shape))


def channels_first_of(graph: Graph, node: Node, array: Array) -> Array:
    """Return a parameter in the layout of PyTorch and ONNX: filters OIHW, flattened features channels first."""
    if array.ndim == 4:
        return np.ascontiguousarray(array.transpose(0, 3, 1, 2))
    image = flattened_image(graph, node)
    return array if image is None or (node.op == "dense" and array.ndim == 1) else channels_first(array, image)


def to_torch(graph: Graph, weights: Arrays) -> dict[str, Array]:
    """Return copies of the weights in the layout of PyTorch's layers of the same names."""
    owners = {f"{node.name}.{p.role}": node for node in graph.nodes for p in node.parameters}
    return {name: channels_first_of(graph, node, weights[name].copy()) for name, node in owners.items()}


def channels_last(array: Array, image: Shape) -> Array:
    """Undo `channels_first`."""
    height, width, channels = image
    moved = np.moveaxis(array.reshape(*array.shape[:-1], channels, height, width), -3, -1)
    return np.ascontiguousarray(moved.reshape(array.shape))


FLATTEN: Final = Op(
    name="flatten", defaults={}, shape=lambda attributes, inputs: (volume(only_input(inputs)),),
    cost=lambda attributes, inputs, output: Cost(0, 0),
    forward=lambda call: Result(call.inputs[0].reshape(len(call.inputs[0]), -1)),
    backward=lambda call, result, dy: Gradients((dy.reshape(call.inputs[0].shape),)),
)
