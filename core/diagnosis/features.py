"""What is kept of a network's feature maps: means of the last one, and standard deviations of bottlenecks.

A bottleneck is a map through which all of a network passes: the output of a 1 x 1 convolution with fewer filters than
input channels, such as the last one of MobileNetV2's modules or the first one of a fire module, or of an addition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from core.graph import Graph, Node
from core.ops.contract import Array
from core.program import fold_batch_norm

TRANSPARENT: Final = ("dropout", "flatten", "global_avg_pool")
"""Ops that change nothing about where a feature is, or leave no map."""
HEADS: Final = ("conv2d", "dense")
DIMENSIONS: Final = 128
"""Most dimensions of the principal subspace (benchmarks/results/unknown_crops.json compares sizes and scores)."""
ACTIVATIONS: Final = ("relu", "relu6")
STRIDE: Final = 8
"""Bottlenecks are used where they are at most 1/8 as wide as the photo (docs/adr/0036)."""
PER_DIMENSION: Final = 10
"""Training photos per dimension: of few photos a large subspace would hold every one exactly."""
FEATURES: Final = "features."
"""Prefix of the statistics' names in a model file."""


def head_node(graph: Graph) -> Node:
    """The layer whose outputs are the classes: the last convolution or dense layer."""
    for node in reversed(graph.nodes):
        if node.op in HEADS:
            return node
    raise ValueError(f"The network {graph.name} has no classifier layer.")


def feature_node(graph: Graph) -> str | None:
    """Name of the last node with a map ``(height, width, channels)`` that the head reads; None if there is none."""
    head = head_node(graph)
    read = set(head.inputs)
    for node in reversed(graph.nodes[1 : graph.nodes.index(head)]):
        if node.name in read:
            if len(node.shape) == 3 and node.op not in TRANSPARENT:
                return node.name
            read.update(node.inputs)
    return None


def bottleneck_nodes(graph: Graph) -> tuple[str, ...]:
    """Names of the bottlenecks before the feature map, the last of each width, in a graph with folded batch norm.

    The last of all is excluded: it says little that the feature map does not."""
    last, chosen = feature_node(graph), list[str]()
    following: dict[str, set[int]] = {last: set()} if last else {}  # widths of the next bottlenecks
    for node in reversed(graph.nodes[1:]):
        if node.name not in following:
            continue
        widths, narrow = following[node.name], _is_bottleneck(graph, node)
        if narrow and widths and node.shape[2] not in widths and node.shape[0] * STRIDE <= graph.photo_shape[0]:
            chosen.append(node.name)
        for source in node.inputs:
            following.setdefault(source, set()).update({node.shape[2]} if narrow else widths)
    return tuple(reversed(chosen))


def _is_bottleneck(graph: Graph, node: Node) -> bool:
    if len(node.shape) != 3:
        return False
    if node.op in ACTIVATIONS:
        return graph.node(node.inputs[0]).op == "conv2d" and _is_bottleneck(graph, graph.node(node.inputs[0]))
    narrow = node.op == "conv2d" and node.attributes["kernel"] == (1, 1)
    return node.op == "add" or (narrow and node.shape[2] < graph.node(node.inputs[0]).shape[2])


@dataclass(frozen=True, slots=True, eq=False)
class NetworkOutputs:
    """Outputs of a network for photos: logits ``(N, classes)``; where it has such maps, pooled features ``(N, F)`` and
    spreads ``(N, S)``, the standard deviations of bottlenecks over the photo."""

    logits: Array
    features: Array | None = None
    spreads: Array | None = None

    @property
    def arrays(self) -> dict[str, Array]:
        """Those that there are, by name."""
        found = {"logits": self.logits, "features": self.features, "spreads": self.spreads}
        return {name: array for name, array in found.items() if array is not None}

    def take(self, rows: Array) -> NetworkOutputs:
        return NetworkOutputs(**{name: array[rows] for name, array in self.arrays.items()})


@dataclass(frozen=True, slots=True)
class FeatureNodes:
    """Nodes of a network whose maps are summarized: the feature map, None if there is none, and bottlenecks."""

    last: str | None
    bottlenecks: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return (self.last, *self.bottlenecks) if self.last else ()

    def summarize(self, outputs: Mapping[str, Array]) -> NetworkOutputs:
        """Summaries of the maps among these outputs, which are arrays by name of a node, or "logits"."""
        last = None if self.last is None else outputs.get(self.last)
        features = None if last is None else np.asarray(last.mean(axis=(1, 2), dtype=np.float64))
        maps = [outputs[name] for name in self.bottlenecks if name in outputs]
        spreads = np.concatenate([one.std(axis=(1, 2)) for one in maps], axis=1) if maps else None
        return NetworkOutputs(outputs["logits"], features, spreads)


def find_nodes(graph: Graph) -> FeatureNodes:
    return FeatureNodes(feature_node(graph), bottleneck_nodes(fold_batch_norm(graph)))


@dataclass(frozen=True, slots=True, eq=False)
class PrincipalSubspace:
    """Subspace of training features: center ``(F,)``, orthonormal basis ``(F, D)``, scale in logits per distance."""

    center: Array
    basis: Array
    scale: float

    def to_arrays(self) -> dict[str, Array]:
        basis = self.basis.astype(np.float16)
        return {"features.center": self.center.astype(np.float32), "features.basis": basis,
                "features.scale": np.array([self.scale], np.float32)}  # fmt: skip

    def residual(self, features: Array) -> Array:
        """Distance of pooled features ``(N, F)`` from the subspace, float64 ``(N,)``."""
        x = np.asarray(features, np.float64) - self.center
        basis = np.asarray(self.basis, np.float64)
        return np.asarray(np.linalg.norm(x - x @ basis @ basis.T, axis=1))


def read_statistics(arrays: Mapping[str, Array]) -> PrincipalSubspace | None:
    """The statistics of a model file, or None if it has none or they do not fit together."""
    found = {name.removeprefix(FEATURES): array for name, array in arrays.items() if name.startswith(FEATURES)}
    if found.keys() != {"center", "basis", "scale"} or any(array.dtype.kind != "f" for array in found.values()):
        return None
    center, basis, scale = (found[name] for name in ("center", "basis", "scale"))
    fits = center.ndim == 1 and basis.ndim == 2 and basis.shape[0] == len(center) and scale.shape == (1,)
    return PrincipalSubspace(center, basis, float(scale[0])) if fits else None


def fit_subspace(logits: Array, features: Array, dimensions: int = DIMENSIONS) -> PrincipalSubspace:
    """The subspace of training photos: logits over the temperature ``(N, classes)``, pooled features ``(N, F)``."""
    x = np.asarray(features, np.float64)
    center = x.mean(axis=0)
    kept = max(min(dimensions, len(x) // PER_DIMENSION, x.shape[1] - 1), 1)
    basis = np.linalg.svd(x - center, full_matrices=False)[2][:kept].T
    space = PrincipalSubspace(center, basis.astype(np.float16).astype(np.float64), 0.0)  # as it will be stored
    residual = float(space.residual(x).mean())
    scale = float(logits.max(axis=1).mean()) / residual if residual > 0 else 0.0
    return PrincipalSubspace(center, space.basis, max(scale, 0.0))
