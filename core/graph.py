"""A network as data: named nodes with attributes, inputs, parameters and shapes.

Shapes are per photo, channels last: ``(height, width, channels)`` or ``(features,)``. A graph converts to JSON and
back; shapes in a file are checked (`core.ops.builder.check`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from core.errors import ModelFileError

Shape: TypeAlias = tuple[int, ...]
Attribute: TypeAlias = int | float | bool | str | tuple[int, ...] | tuple[float, ...]
Attributes: TypeAlias = Mapping[str, Attribute]

PHOTO: Final = "photo"
"""Name of the input node: the normalised photo, float32 ``(height, width, 3)``."""

LABEL: Final = "label"
"""Name of the true classes in the inputs of a loss node."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One array of a node. Filters are OHWI, dense weights ``(out, in)``.

    trained: false for running statistics. decay: whether weight decay applies. init: key of `core.models.init.INITS`,
    which uses `fan_in`.
    """

    role: str
    shape: Shape
    init: str = "zeros"
    fan_in: int = 1
    trained: bool = True
    decay: bool = True

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Node:
    """One operation. A parameter's full name is ``f"{node.name}.{parameter.role}"``."""

    name: str
    op: str
    inputs: tuple[str, ...]
    shape: Shape
    attributes: Attributes = field(default_factory=lambda: MappingProxyType({}))
    parameters: tuple[Parameter, ...] = ()


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in topological order. The first is the photo."""

    name: str
    nodes: tuple[Node, ...]
    output: str

    @property
    def classes(self) -> int:
        return self.node(self.output).shape[-1]

    @property
    def photo_shape(self) -> Shape:
        return self.nodes[0].shape

    def node(self, name: str) -> Node:
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    def parameters(self) -> dict[str, Parameter]:
        return {f"{n.name}.{p.role}": p for n in self.nodes for p in n.parameters}

    def users(self, name: str) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if name in node.inputs)

    def without(self, names: Collection[str]) -> Graph:
        """Return the graph without these nodes, whose readers then read their first input."""
        renamed, nodes = dict[str, str](), list[Node]()
        for node in self.nodes:
            inputs = tuple(renamed.get(i, i) for i in node.inputs)
            if node.name in names:
                renamed[node.name] = inputs[0]
            else:
                nodes.append(replace(node, inputs=inputs))
        return Graph(self.name, tuple(nodes), renamed.get(self.output, self.output))


def to_dict(graph: Graph) -> dict[str, Any]:
    """Return the graph as an object for JSON, from which `from_dict` makes an equal graph."""
    nodes = [
        {"name": n.name, "op": n.op, "inputs": n.inputs, "shape": n.shape, "attributes": dict(n.attributes),
         "parameters": [asdict(p) for p in n.parameters]}
        for n in graph.nodes
    ]  # fmt: skip
    return {"name": graph.name, "output": graph.output, "nodes": nodes}


def from_dict(raw: Mapping[str, Any]) -> Graph:
    """Read a graph. Raises ModelFileError where a field is missing or of the wrong kind."""
    try:
        return Graph(str(raw["name"]), tuple(_read_node(n) for n in raw["nodes"]), str(raw["output"]))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ModelFileError(f"The network description in this file cannot be read ({error}).") from error


def _read_node(raw: Mapping[str, Any]) -> Node:
    attributes = MappingProxyType({k: _read_attribute(v) for k, v in raw["attributes"].items()})
    parameters = tuple(
        Parameter(str(p["role"]), tuple(map(int, p["shape"])), str(p["init"]), int(p["fan_in"]), bool(p["trained"]),
                  bool(p["decay"]))
        for p in raw["parameters"]
    )  # fmt: skip
    inputs = tuple(str(i) for i in raw["inputs"])
    return Node(str(raw["name"]), str(raw["op"]), inputs, tuple(map(int, raw["shape"])), attributes, parameters)


def _read_attribute(value: Any) -> Attribute:
    if isinstance(value, list | tuple):
        return tuple(value)
    if isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"attribute {value!r}")
