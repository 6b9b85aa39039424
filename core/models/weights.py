"""Weights to and from PyTorch's layout: OHWI filters to OIHW, and flattened features to channels first.

Names are the same on both sides, so that a state dict saved as ``.safetensors`` loads as it is.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from core.errors import ModelFileError
from core.graph import Graph, Node, Shape
from core.ops.contract import Array, Arrays, volume
from core.ops.flatten import channels_first, channels_last, flattened_image


def to_torch(graph: Graph, weights: Arrays) -> dict[str, Array]:
    """Weights as PyTorch's layers of the same names hold them."""
    return {name: _to_torch(graph, node, weights[name]) for name, node in _owners(graph).items()}


def from_torch(graph: Graph, state: Arrays) -> dict[str, Array]:
    """The engine's weights from a state dict. Raises ModelFileError naming what is missing, extra or misshapen."""
    owners, parameters = _owners(graph), graph.parameters()
    given = {name: array for name, array in state.items() if not name.endswith("num_batches_tracked")}
    wrong = [f"{name} is missing" for name in owners if name not in given]
    wrong += [f"{name} is not part of {graph.name}" for name in given if name not in owners]
    weights = {}
    for name in owners.keys() & given.keys():
        if volume(given[name].shape) != parameters[name].size or given[name].ndim != len(parameters[name].shape):
            wrong.append(f"{name} has the shape {given[name].shape}")
        else:
            weights[name] = _from_torch(graph, owners[name], given[name], parameters[name].shape)
            if weights[name].shape != parameters[name].shape:
                wrong.append(f"{name} has the shape {given[name].shape}")
    if wrong:
        more = f" and {len(wrong) - 8} more" if len(wrong) > 8 else ""
        raise ModelFileError(f"These weights do not fit {graph.name}: {'; '.join(wrong[:8])}{more}.")
    return {name: weights[name] for name in owners}


def load_torch(graph: Graph, path: Path) -> dict[str, Array]:
    """Weights for `graph` from a ``.safetensors`` file in PyTorch's layout."""
    try:
        return from_torch(graph, load_file(path))
    except (OSError, SafetensorError, ValueError) as error:
        raise ModelFileError(f"The weights in {path.name} cannot be read ({error}).") from error


def _owners(graph: Graph) -> dict[str, Node]:
    return {f"{node.name}.{p.role}": node for node in graph.nodes for p in node.parameters}


def _to_torch(graph: Graph, node: Node, array: Array) -> Array:
    if array.ndim == 4:
        return np.ascontiguousarray(array.transpose(0, 3, 1, 2))
    image = flattened_image(graph, node)
    if image is None or (node.op == "dense" and array.ndim == 1):
        return array.copy()
    return channels_first(array, image)


def _from_torch(graph: Graph, node: Node, array: Array, shape: Shape) -> Array:
    array = array.astype(np.float32)
    if array.ndim == 4:
        return np.ascontiguousarray(array.transpose(0, 2, 3, 1))
    image = flattened_image(graph, node)
    if image is None or (node.op == "dense" and array.ndim == 1) or array.shape != shape:
        return array
    return channels_last(array, image)
