"""A network run kernel by kernel on the CPU, without fusion or arena, to compare algorithms.

Every op runs the highest algorithm up to the requested one that does not refuse the case (`UnfusedNetwork.chosen`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, final

import numpy as np

from core.graph import LABEL, PHOTO, Graph, Node
from core.ops.contract import Array, Mode
from core.ops.registry import KernelCase, Registry, numbered

TRAINING: Final = Mode(training=True)


@final
class UnfusedNetwork:
    """Forward and backward of a training graph (`core.ops.builder.with_loss`) with the kernels of one registry.

    forward, backward: kernel calls in order; chosen: (layer, direction, algorithm) of each. parameters and gradients:
    arrays by full parameter name.
    """

    def __init__(
        self, graph: Graph, weights: Mapping[str, Array], batch: int, table: Registry, algorithm: str,
        mode: Mode = TRAINING,
    ) -> None:  # fmt: skip
        self.graph, self.batch, self._table, self._algorithm, self._mode = graph, batch, table, algorithm, mode
        self.parameters = {name: np.array(array, np.float32) for name, array in weights.items()}
        self.gradients: dict[str, Array] = {}
        self.photos, self.labels = np.empty((batch, *graph.photo_shape), np.float32), np.zeros(batch, np.int32)
        self.values: dict[str, Array] = {PHOTO: self.photos}
        self.chosen: list[tuple[str, str, str]] = []
        self._arrays: dict[str, dict[str, Any]] = {}
        self.forward = [call for node in graph.nodes[1:] for call in self._add_forward(node)]
        self.backward: list[Callable[[], object]] = []
        self._add_backward()

    def step(self) -> None:
        """Run one forward and backward pass; gradients of the mean loss are in `gradients`."""
        for call in (*self.forward, *self.backward):
            call()

    def loss(self) -> float:
        return float(self.values[self.graph.nodes[-1].name].sum())

    def _add_forward(self, node: Node) -> list[Callable[[], object]]:
        inputs = [self.values[i] for i in node.inputs if i != LABEL]
        if node.op == "flatten":
            self.values[node.name] = inputs[0].reshape(self.batch, -1)
            return []
        out = self.values[node.name] = self._array(node)
        arrays = {numbered("x", i): value for i, value in enumerate(inputs)} | {"out": out, "mode": self._mode}
        arrays |= {p.role: self.parameters[f"{node.name}.{p.role}"] for p in node.parameters}
        arrays |= {"labels": self.labels} if LABEL in node.inputs else {}
        self._arrays[node.name] = arrays
        return [self._call(node, "forward")]

    def _add_backward(self) -> None:
        last = self.graph.nodes[-1]
        arriving = {last.name: np.ones_like(self.values[last.name])}
        for node in reversed(self.graph.nodes[1:]):
            dy, names = arriving.pop(node.name), [name for name in node.inputs if name != LABEL]
            if node.op == "flatten":
                self._add_up(arriving, names[0], dy.reshape(self.values[names[0]].shape))
                continue
            arrays, trained = self._arrays[node.name], [p for p in node.parameters if p.trained]
            arrays["dy"] = dy
            for p in trained:
                arrays[f"d{p.role}"] = self.gradients[f"{node.name}.{p.role}"] = np.empty(p.shape, np.float32)
            if trained:
                self.backward.append(self._call(node, "backward_weight"))
            if names != [PHOTO]:
                parts = [self._array(self.graph.node(name)) for name in names]
                arrays |= {numbered("dx", i): part for i, part in enumerate(parts)}
                self.backward.append(self._call(node, "backward_input"))
                for name, part in zip(names, parts, strict=True):
                    self._add_up(arriving, name, part)

    def _add_up(self, arriving: dict[str, Array], name: str, part: Array) -> None:
        """Let the gradient of a value be this array, or be added to those of its other readers."""
        total = arriving.setdefault(name, part)
        if total is not part:
            self.backward.append(partial(np.add, total, part, total))

    def _array(self, node: Node) -> Array:
        return np.empty((self.batch, *node.shape), np.float32)

    def _call(self, node: Node, direction: str) -> Callable[[], object]:
        inputs = tuple(self.graph.node(i).shape for i in node.inputs if i != LABEL)
        case = KernelCase(node.op, node.attributes, inputs, node.shape, self.batch)
        kernel = self._table.choose(case, direction, self._algorithm)
        self.chosen.append((node.name, direction, kernel.algorithm))
        return partial(kernel.run, case, self._arrays[node.name])
