"""The last feature map of a network: what class maps and distances to the known are made of."""

from __future__ import annotations

from typing import Final

import numpy as np

from core.graph import Graph, Node
from core.ops.contract import Array

TRANSPARENT: Final = ("dropout", "flatten", "global_avg_pool")
"""Ops that change nothing about where a feature is, or leave no map."""
HEADS: Final = ("conv2d", "dense")


def head_node(graph: Graph) -> Node:
    """The layer whose outputs are the classes: the last convolution or dense layer."""
    for node in reversed(graph.nodes):
        if node.op in HEADS:
            return node
    raise ValueError(f"The network {graph.name} has no classifier layer.")


def feature_node(graph: Graph) -> str | None:
    """Name of the last node before the head with a map ``(height, width, channels)``; None if there is none."""
    before = graph.nodes[1 : graph.nodes.index(head_node(graph))]
    maps = [node.name for node in before if len(node.shape) == 3 and node.op not in TRANSPARENT]
    return maps[-1] if maps else None


def pool(features: Array) -> Array:
    """Feature maps ``(N, h, w, channels)`` averaged over the photo: float64 ``(N, channels)``."""
    return np.asarray(np.asarray(features, np.float64).mean(axis=(1, 2)))
