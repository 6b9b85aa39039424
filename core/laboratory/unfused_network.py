"""A network run kernel by kernel on the CPU, without fusion or arena, to compare algorithms.

Every op runs the highest algorithm up to the requested one that does not refuse the case (`UnfusedNetwork.chosen`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, final

import numpy as np

from core.errors import KernelUnavailable
from core.graph import LABEL, PHOTO, Graph, Node
from core.ops.contract import Array, Mode
from core.ops.registry import ALGORITHM_ORDER, Kernel, KernelCase, Registry

VIEWS: Final = ("flatten",)
"""Ops that only reshape."""


@final
@dataclass(frozen=True, slots=True)
class KernelCall:
    """One kernel with its arrays; `run()` queues it."""

    layer: str
    kernel: Kernel
    case: KernelCase
    arrays: dict[str, Any]

    def run(self) -> None:
        self.kernel.run(self.case, self.arrays)


@final
class UnfusedNetwork:
    """Forward and backward of a training graph (`core.ops.builder.with_loss`) with the kernels of one registry.

    forward, backward: kernel calls in order. parameters and gradients: arrays by full parameter name.
    """

    def __init__(
        self, graph: Graph, weights: Mapping[str, Array], batch: int, table: Registry, algorithm: str,
        mode: Mode | None = None,
    ) -> None:
        self.graph, self.batch, self.table, self.algorithm = graph, batch, table, algorithm
        self.mode = mode or Mode(training=True)
        self.parameters = {name: np.array(array, np.float32) for name, array in weights.items()}
        self.gradients: dict[str, Any] = {}
        self.photos = np.empty((batch, *graph.photo_shape), np.float32)
        self.labels = np.zeros(batch, np.int32)
        self.values: dict[str, Any] = {PHOTO: self.photos}
        self.forward: list[KernelCall] = []
        self.backward: list[KernelCall] = []
        self._arrays: dict[str, dict[str, Any]] = {}
        for node in graph.nodes[1:]:
            self._add_forward(node)
        self._add_backward()

    @property
    def chosen(self) -> list[tuple[str, str, str]]:
        """(layer, direction, algorithm) of every kernel call."""
        return [(x.layer, x.kernel.direction, x.kernel.algorithm) for x in (*self.forward, *self.backward)]

    def step(self) -> None:
        """Run one forward and backward pass; gradients of the mean loss are in `gradients`."""
        for call in (*self.forward, *self.backward):
            call.run()

    def loss(self) -> float:
        return float(self.values[self.graph.nodes[-1].name].sum())

    def _add_forward(self, node: Node) -> None:
        shape = (self.batch, *node.shape)
        inputs = [self.values[i] for i in node.inputs if i != LABEL]
        if node.op in VIEWS:
            self.values[node.name] = inputs[0].reshape(shape)
            return
        out = self.values[node.name] = np.empty(shape, np.float32)
        arrays = {_numbered("x", i): value for i, value in enumerate(inputs)} | {"out": out, "mode": self.mode}
        arrays |= {p.role: self.parameters[f"{node.name}.{p.role}"] for p in node.parameters}
        if LABEL in node.inputs:
            arrays["labels"] = self.labels
        self._arrays[node.name] = arrays
        self.forward.append(self._call(node, "forward"))

    def _add_backward(self) -> None:
        last = self.graph.nodes[-1]
        arriving: dict[str, list[Any]] = {last.name: [np.ones((self.batch, *last.shape), np.float32)]}
        for node in reversed(self.graph.nodes[1:]):
            if node.name not in arriving:
                continue
            dy = self._sum(node, arriving.pop(node.name))
            wanted = [i for i in node.inputs if i not in (PHOTO, LABEL)]
            if node.op in VIEWS:
                shape = (self.batch, *self.graph.node(node.inputs[0]).shape)
                arriving.setdefault(node.inputs[0], []).append(dy.reshape(shape))
                continue
            arrays = self._arrays[node.name]
            arrays["dy"] = dy
            self._add_weight_gradients(node, arrays)
            if not wanted:
                continue
            for i, name in enumerate(n for n in node.inputs if n != LABEL):
                dx = arrays[_numbered("dx", i)] = np.empty((self.batch, *self.graph.node(name).shape), np.float32)
                arriving.setdefault(name, []).append(dx)
            self.backward.append(self._call(node, "backward_input"))

    def _add_weight_gradients(self, node: Node, arrays: dict[str, Any]) -> None:
        trained = [p for p in node.parameters if p.trained]
        for p in trained:
            made = np.empty(p.shape, np.float32)
            arrays[f"d{p.role}"] = self.gradients[f"{node.name}.{p.role}"] = made
        if trained:
            self.backward.append(self._call(node, "backward_weight"))

    def _sum(self, node: Node, parts: list[Any]) -> Any:
        total = parts[0]
        for part in parts[1:]:
            case = KernelCase("add", MappingProxyType({}), (node.shape, node.shape), node.shape, self.batch)
            out = np.empty((self.batch, *node.shape), np.float32)
            arrays = {"x": total, "x2": part, "out": out}
            self.backward.append(KernelCall(node.name, self._row(case, "forward"), case, arrays))
            total = out
        return total

    def _call(self, node: Node, direction: str) -> KernelCall:
        inputs = tuple(self.graph.node(i).shape for i in node.inputs if i != LABEL)
        case = KernelCase(node.op, node.attributes, inputs, node.shape, self.batch)
        return KernelCall(node.name, self._row(case, direction), case, self._arrays[node.name])

    def _row(self, case: KernelCase, direction: str) -> Kernel:
        allowed = ALGORITHM_ORDER[: ALGORITHM_ORDER.index(self.algorithm) + 1]
        for kernel in reversed(self.table.of(case.op, direction)):
            if kernel.algorithm in allowed and kernel.refuses(case) is None:
                return kernel
        raise KernelUnavailable(f"No kernel up to {self.algorithm} takes {case.op} {direction} of {case.inputs}.")


def _numbered(name: str, k: int) -> str:
    return name if k == 0 else f"{name}{k + 1}"
