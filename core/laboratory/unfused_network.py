"""A network run kernel by kernel on the CPU, without fusion or arena, to compare algorithms.

Every op runs the highest algorithm up to the requested one that does not refuse the case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np

from core.graph import LABEL, PHOTO, Graph, Node
from core.laboratory.convolutions import LABORATORY
from core.ops.contract import Array, Mode
from core.ops.registry import KernelCase

TRAINING: Final = Mode(training=True)


class UnfusedNetwork:
    """Forward and backward of a training graph (`core.ops.builder.with_loss`) without branches.

    parameters and gradients: arrays by full parameter name.
    """

    def __init__(self, graph: Graph, weights: Mapping[str, Array], batch: int, algorithm: str) -> None:
        self._graph, self._batch, self._algorithm = graph, batch, algorithm
        self.parameters = {name: np.array(array, np.float32) for name, array in weights.items()}
        self.gradients: dict[str, Array] = {}
        self.photos, self.labels = np.empty((batch, *graph.photo_shape), np.float32), np.zeros(batch, np.int32)
        self._values: dict[str, Array] = {PHOTO: self.photos}
        self._arrays: dict[str, dict[str, Any]] = {}
        self._calls: list[Callable[[], object]] = []
        for node in graph.nodes[1:]:
            self._add_forward(node)
        self._add_backward()

    def step(self) -> None:
        """Run one forward and backward pass; gradients of the mean loss are in `gradients`."""
        for call in self._calls:
            call()

    def loss(self) -> float:
        return float(self._values[self._graph.nodes[-1].name].sum())

    def _add_forward(self, node: Node) -> None:
        x = self._values[node.inputs[0]]
        if node.op == "flatten":
            self._values[node.name] = x.reshape(self._batch, -1)
            return
        out = self._values[node.name] = np.empty((self._batch, *node.shape), np.float32)
        owned = {p.role: self.parameters[f"{node.name}.{p.role}"] for p in node.parameters}
        self._arrays[node.name] = {"x": x, "out": out, "mode": TRAINING, **owned}
        if LABEL in node.inputs:
            self._arrays[node.name]["labels"] = self.labels
        self._add_call(node, "forward")

    def _add_backward(self) -> None:
        dy = np.ones_like(self._values[self._graph.nodes[-1].name])
        for node in reversed(self._graph.nodes[1:]):
            x = self._values[node.inputs[0]]
            if node.op == "flatten":
                dy = dy.reshape(x.shape)
                continue
            arrays, trained = self._arrays[node.name], [p for p in node.parameters if p.trained]
            arrays["dy"] = dy
            for p in trained:
                arrays[f"d{p.role}"] = self.gradients[f"{node.name}.{p.role}"] = np.empty(p.shape, np.float32)
            if trained:
                self._add_call(node, "backward_weight")
            if node.inputs[0] != PHOTO:
                dy = arrays["dx"] = np.empty_like(x)
                self._add_call(node, "backward_input")

    def _add_call(self, node: Node, direction: str) -> None:
        inputs = (self._graph.node(node.inputs[0]).shape,)
        case = KernelCase(node.op, node.attributes, inputs, node.shape, self._batch)
        kernel = LABORATORY.choose(case, direction, self._algorithm)
        self._calls.append(partial(kernel.run, case, self._arrays[node.name]))
