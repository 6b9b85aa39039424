"""The last feature map of a network: what class maps and distances to the known are made of."""

from __future__ import annotations

from typing import Final

import numpy as np

from core.graph import Graph, Node
from core.ops.contract import Array

TRANSPARENT: Final = ("dropout", "flatten", "global_avg_pool")
"""Ops between the last features and the layer that tells classes apart."""
HEADS: Final = ("conv2d", "dense")


def head_node(graph: Graph) -> Node:
    """The layer whose outputs are the classes: the last convolution or dense layer."""
    for node in reversed(graph.nodes):
        if node.op in HEADS:
            return node
    raise ValueError(f"The network {graph.name} has no layer that tells classes apart.")


def feature_node(graph: Graph) -> str | None:
    """Name of the node with the last feature map ``(height, width, channels)``; None if the head reads no map."""
    name = head_node(graph).inputs[0]
    while graph.node(name).op in TRANSPARENT:
        name = graph.node(name).inputs[0]
    shape = graph.node(name).shape
    return name if len(shape) == 3 and graph.node(name).op != "photo" else None


def pool(features: Array) -> Array:
    """Feature maps ``(N, h, w, channels)`` averaged over the photo: float64 ``(N, channels)``."""
    return np.asarray(np.asarray(features, np.float64).mean(axis=(1, 2)))
