"""Weights in PyTorch's layout: OHWI filters as OIHW, and flattened features channels first, under the same names."""

from __future__ import annotations

from core.graph import Graph
from core.ops.contract import Array, Arrays
from core.ops.flatten import channels_first_of


def to_torch(graph: Graph, weights: Arrays) -> dict[str, Array]:
    """Copies of the weights as PyTorch's layers of the same names hold them."""
    owners = {f"{node.name}.{p.role}": node for node in graph.nodes for p in node.parameters}
    return {name: channels_first_of(graph, node, weights[name].copy()) for name, node in owners.items()}
