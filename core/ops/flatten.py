"""Flatten ``(H, W, C)`` to ``(H * W * C,)``, channels last, and the conversion of weights from and to channels first.

Plans implement the op as a new shape.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from core.errors import ModelFileError
from core.graph import Graph, Shape
from core.ops.attributes import only_input
from core.ops.contract import Array, Arrays, Cost, Gradients, Op, Result, volume


def orders_of_features(graph: Graph) -> dict[str, Array]:
    """Return for each node the positions, along its last axis, of the features that PyTorch and ONNX have there.

    Raises ModelFileError for a node that combines vectors of different orders.
    """
    orders: dict[str, Array] = {}
    for node in graph.nodes:
        before = [orders[name] for name in node.inputs if name in orders]
        image = graph.node(node.inputs[0]).shape if node.op == "flatten" else ()
        if len(image) == 3:
            orders[node.name] = np.arange(volume(image)).reshape(image).transpose(2, 0, 1).ravel()
        elif len(node.shape) != 1 or node.op in ("dense", "global_avg_pool"):
            orders[node.name] = np.arange(node.shape[-1])
        elif node.op == "concat":
            starts = np.cumsum([0, *(len(order) for order in before[:-1])])
            orders[node.name] = np.concatenate([start + order for start, order in zip(starts, before, strict=True)])
        elif all(np.array_equal(order, before[0]) for order in before):
            orders[node.name] = before[0]
        else:
            raise ModelFileError(f"{node.name} combines features in different orders and cannot be exported.")
    return orders


def to_torch(graph: Graph, weights: Arrays) -> dict[str, Array]:
    """Return copies of the weights in the layout of PyTorch and ONNX: filters OIHW, features in their order there.

    A vector has an element for each feature of the output, a matrix a column for each of the input.
    """
    orders, found = orders_of_features(graph), {}
    owners = {f"{node.name}.{p.role}": node for node in graph.nodes for p in node.parameters}
    for name, node in owners.items():
        array = weights[name]
        if array.ndim == 4:
            found[name] = array.transpose(0, 3, 1, 2).copy()
        else:
            found[name] = np.take(array, orders[node.name if array.ndim == 1 else node.inputs[0]], -1)
    return found


def channels_last(array: Array, image: Shape) -> Array:
    """Reorder the last axis, a flattened image, from channels first to channels last."""
    height, width, channels = image
    moved = np.moveaxis(array.reshape(*array.shape[:-1], channels, height, width), -3, -1)
    return np.ascontiguousarray(moved.reshape(array.shape))


FLATTEN: Final = Op(
    name="flatten", defaults={}, shape=lambda attributes, inputs: (volume(only_input(inputs)),),
    cost=lambda attributes, inputs, output: Cost(0, 0),
    forward=lambda call: Result(call.inputs[0].reshape(len(call.inputs[0]), -1)),
    backward=lambda call, result, dy: Gradients((dy.reshape(call.inputs[0].shape),)),
)
