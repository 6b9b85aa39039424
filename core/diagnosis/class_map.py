"""Class activation maps: which parts of a photo raise the logit of a class.

A map is the last feature map, its channels weighted by their effect on the logit. The weights are exact where the head
is linear on averaged features (Zhou et al., "Learning deep features for discriminative localization", 2016); others are
mean gradients (Grad-CAM, Selvaraju et al., 2017). The features are of an enlarged photo: its map is finer, and agrees
better with lesions drawn by hand than the map of the network's own image size, or of several shifted photos
(benchmarks/class_maps.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import cv2
import numpy as np

from core.device import PhotoBatch
from core.diagnosis.features import feature_node, head_node
from core.diagnosis.model_file import ModelFile, with_photo_side
from core.errors import InputError
from core.graph import Graph
from core.ops.builder import make_node
from core.ops.contract import Array
from core.ops.network import logit_gradient
from core.plan import compile_plan
from core.program import fold_batch_norm, fold_weights

CELLS: Final = 18
"""Fewest cells of a side of a map."""
MOST_TIMES: Final = 4
"""Largest enlargement of a photo. Networks for images of less than 144 pixels may have fewer cells: in larger photos,
leaves would be too unlike those of the training."""


class ClassMapper:
    """The layers of a model up to its feature map, loaded for enlarged photos. Close it to free the memory.

    side: of the photos, in pixels; cells: of the map. Raises InputError where the network has no feature map.
    """

    def __init__(self, model: ModelFile, *, device: str = "cpu", threads: int = 0) -> None:
        self._model, self._turn = model, threading.Lock()
        graph, self._node = enlarge_network(model.graph)
        self.side, self.cells = graph.photo_shape[0], graph.node(self._node).shape[0]
        weights = fold_weights(model.graph, model.weights)
        graph = fold_batch_norm(graph)
        self._plan = compile_plan(graph, device=device, batch=1, threads=threads, outputs=(self._node,))
        self._plan.load({name: weights[name] for name in graph.parameters()})

    def map_class(self, photo: Array, features: Callable[[], Array], index: int) -> Array:
        """The map of class `index`, float32 ``(side, side)``, at least 0, of a photo uint8 ``(side, side, 3)``.

        features: computes the feature map of the same photo at the model's own image size, see `channel_weights`.
        """
        with self._turn:  # as in `Predictor`
            large = self._plan.predict(PhotoBatch.plain(photo[None], self.side))[self._node][0]
        weights = channel_weights(self._model.graph, self._model.weights, features, index)
        evidence = np.maximum(large @ weights, 0)
        return np.asarray(cv2.resize(evidence, (self.side, self.side), interpolation=cv2.INTER_LINEAR))

    def close(self) -> None:
        self._plan.close()


def enlarge_network(graph: Graph) -> tuple[Graph, str]:
    """The layers up to the feature map, for photos so many times larger that it has `CELLS` cells a side; its name.

    The output is the pooled feature map: plans have one vector per photo as output. Raises InputError without a map.
    """
    name = feature_node(graph)
    if name is None:
        raise InputError("This network has no feature map, so it has no class maps.")
    layers = replace(graph, nodes=graph.nodes[: graph.nodes.index(graph.node(name)) + 1])
    for times in range(1, MOST_TIMES + 1):
        larger = with_photo_side(layers, times * graph.photo_shape[0])
        if larger.node(name).shape[0] >= CELLS:
            break
    known = {node.name: node for node in larger.nodes}
    known["pooled"] = make_node("global_avg_pool", "pooled", (name,), {}, known)
    return Graph(graph.name, tuple(known.values()), "pooled"), name


def channel_weights(graph: Graph, weights: Mapping[str, Array], features: Callable[[], Array], index: int) -> Array:
    """Effect of each channel of the feature map on logit `index`, ``(channels,)``.

    features: returns the feature map ``(height, width, channels)``; called only if the head is not linear. `graph` and
    `weights` may be folded or not; the head has no batch norm.
    """
    weight = np.asarray(weights[f"{head_node(graph).name}.weight"], np.float32)
    node = graph.node(feature_node(graph) or "")
    if weight.shape[1:] in ((1, 1, node.shape[-1]), node.shape[-1:]):
        return np.asarray(weight[index].reshape(-1))
    after = replace(graph, nodes=graph.nodes[graph.nodes.index(node) :])
    gradient = logit_gradient(after, weights, np.asarray(features(), np.float32)[None], index)
    return np.asarray(gradient[0].mean(axis=(0, 1)))
