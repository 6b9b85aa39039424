"""Class activation maps, and Grad-CAM for networks whose head is not a linear layer on averaged features.

Sources: Zhou et al., "Learning deep features for discriminative localization", 2016 (a linear head on averaged
features: the map is exact); Selvaraju et al., "Grad-CAM", 2017.
"""

from __future__ import annotations

from collections.abc import Mapping

import cv2
import numpy as np

from core.diagnosis.features import feature_node, head_node
from core.graph import Graph
from core.ops.contract import Array, Mode, Result
from core.ops.op_table import OPS


def class_map(graph: Graph, weights: Mapping[str, Array], features: Array, index: int) -> Array:
    """Evidence for class `index`, at least 0, ``(height, width)``, from a feature map ``(height, width, channels)``.

    `graph` and `weights` may be folded or not; the head has no batch norm. All zero if there is no evidence.
    """
    head = head_node(graph)
    weight = np.asarray(weights[f"{head.name}.weight"], np.float32)
    if weight.ndim == 4 and weight.shape[1:3] == (1, 1):
        return np.asarray(np.maximum(features @ weight[index, 0, 0], 0))
    if weight.ndim == 2 and weight.shape[1] == features.shape[-1]:
        return np.asarray(np.maximum(features @ weight[index], 0))
    gradient = _head_gradient(graph, weights, features, index)
    return np.asarray(np.maximum(features @ gradient.mean(axis=(0, 1)), 0))


def enlarge(evidence: Array, side: int) -> Array:
    """Resize the map to the photo's size and scale it to 0..1, float32 ``(side, side)``; zeros stay zero."""
    big = cv2.resize(np.asarray(evidence, np.float32), (side, side), interpolation=cv2.INTER_LINEAR)
    top = float(big.max())
    return np.asarray(big / top if top > 0 else big)


def share_outside_leaf(evidence: Array, leaf: Array) -> float:
    """Share 0..1 of the map's sum outside the leaf mask ``(side, side)``; 0 if the map or the leaf is empty.

    The mask is averaged over each cell of the map, so that cells on the leaf's edge count in part.
    """
    total = float(evidence.sum())
    if total <= 0 or not leaf.any():
        return 0.0
    cells = cv2.resize(leaf.astype(np.float32), evidence.shape[::-1], interpolation=cv2.INTER_AREA)
    return float((evidence * (1 - cells)).sum() / total)


def _head_gradient(graph: Graph, weights: Mapping[str, Array], features: Array, index: int) -> Array:
    """Gradient of a logit with respect to the feature map, by the reference ops after it."""
    first = feature_node(graph)
    if first is None:
        raise ValueError(f"The network {graph.name} has no feature map, which class maps need.")
    position = next(i for i, n in enumerate(graph.nodes) if n.name == first)
    tail = [n for n in graph.nodes[position + 1 :] if n.op != "softmax_cross_entropy"]
    values: dict[str, Result] = {first: Result(np.asarray(features, np.float32)[None])}
    mode = Mode()
    for node in tail:
        owned = {p.role: weights[f"{node.name}.{p.role}"] for p in node.parameters}
        inputs = [values[i].output for i in node.inputs]
        values[node.name] = OPS[node.op].forward(node.attributes, inputs, owned, mode)
    wanted = np.zeros_like(values[graph.output].output)
    wanted[0, index] = 1
    gradients: dict[str, Array] = {graph.output: wanted}
    for node in reversed(tail):
        owned = {p.role: weights[f"{node.name}.{p.role}"] for p in node.parameters}
        inputs = [values[i].output for i in node.inputs]
        got = OPS[node.op].backward(node.attributes, inputs, owned, values[node.name], gradients[node.name], mode)
        for name, part in zip(node.inputs, got.inputs, strict=True):
            if part is not None:
                gradients[name] = gradients[name] + part if name in gradients else part
    return np.asarray(gradients[first][0])


