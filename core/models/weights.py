"""Weights in PyTorch's layout: OHWI filters as OIHW, and flattened features channels first, under the same names."""

from __future__ import annotations

import numpy as np

from core.graph import Graph, Node
from core.ops.contract import Array, Arrays
from core.ops.flatten import channels_first, flattened_image


def to_torch(graph: Graph, weights: Arrays) -> dict[str, Array]:
    """Weights as PyTorch's layers of the same names hold them."""
    owners = {f"{node.name}.{p.role}": node for node in graph.nodes for p in node.parameters}
    return {name: _to_torch(graph, node, weights[name]) for name, node in owners.items()}


def _to_torch(graph: Graph, node: Node, array: Array) -> Array:
    if array.ndim == 4:
        return np.ascontiguousarray(array.transpose(0, 3, 1, 2))
    image = flattened_image(graph, node)
    if image is None or (node.op == "dense" and array.ndim == 1):
        return array.copy()
    return channels_first(array, image)
