"""The last feature map of a network: pooled features, and how familiar a photo is by them.

Familiarity of networks with a feature map is ViM (Wang et al., "ViM: out-of-distribution with virtual-logit matching",
2022): the energy of the logits (Liu et al., 2020) less the scaled distance of the pooled features from the principal
subspace of the training features. Other networks use the energy alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from core.graph import Graph, Node
from core.ops.contract import Array

TRANSPARENT: Final = ("dropout", "flatten", "global_avg_pool")
"""Ops that change nothing about where a feature is, or leave no map."""
HEADS: Final = ("conv2d", "dense")
DIMENSIONS: Final = 128
"""Most dimensions of the principal subspace (benchmarks/results/unknown_crops.json compares sizes and scores)."""
PER_DIMENSION: Final = 10
"""Training photos per dimension: of few photos a large subspace would hold every one exactly."""
SCORES: Final = ("energy", "vim")
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


def pool(features: Array) -> Array:
    """Feature maps ``(N, h, w, channels)`` averaged over the photo: float64 ``(N, channels)``."""
    return np.asarray(np.asarray(features, np.float64).mean(axis=(1, 2)))


@final
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
    if any(array.dtype.kind != "f" or not np.isfinite(array).all() for array in found.values()):
        return None
    if found.keys() != {"center", "basis", "scale"}:
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


def energy(logits: Array) -> Array:
    """Log of the sum of exponentials, float64 ``(N,)``."""
    z = np.asarray(logits, np.float64)
    top = z.max(axis=1)
    return np.asarray(top + np.log(np.exp(z - top[:, None]).sum(axis=1)))


def familiarity(
    name: str, logits: Array, features: Array | None, statistics: PrincipalSubspace | None, temperature: float = 1.0
) -> Array:
    """One of `SCORES` for logits ``(N, classes)`` and pooled features ``(N, F)``: float64 ``(N,)``, higher is known."""
    logits = np.asarray(logits, np.float64) / temperature
    if name == "energy":
        return energy(logits)
    assert features is not None  # a model file with the score "vim" has a feature map and statistics
    assert statistics is not None
    return np.asarray(energy(logits) - statistics.scale * statistics.residual(features))
