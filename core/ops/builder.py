"""Builds a graph node by node with the ops' shape rules, and checks a graph from a file."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from core.errors import ModelFileError
from core.graph import LABEL, PHOTO, Attribute, Attributes, Graph, Node, Shape
from core.ops.contract import volume
from core.ops.op_table import OPS
from core.ops.photo import photo_shape

MAX_ELEMENTS: Final = 1 << 31
"""Most elements of an array of a network, so that a crafted header cannot exhaust the memory."""
MAX_NODES: Final = 4096
"""Most nodes of a network; MobileNetV2 has 153."""


class Builder:
    """Collects nodes; `add` returns the new node's name, so that models read as tables."""

    def __init__(self, name: str, photo_shape: Shape, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        self.name = name
        self._nodes: dict[str, Node] = {PHOTO: photo_node(photo_shape, {"mean": mean, "std": std})}

    def add(self, op: str, name: str, *inputs: str, **attributes: Attribute) -> str:
        """Append one node. Raises ValueError with a sentence where op, attributes or shapes do not fit."""
        self._nodes[name] = make_node(op, name, inputs, attributes, self._nodes)
        return name

    def shape(self, name: str) -> Shape:
        return self._nodes[name].shape

    def graph(self, output: str) -> Graph:
        return Graph(self.name, tuple(self._nodes.values()), output)


def photo_node(shape: Shape, attributes: Attributes) -> Node:
    """Return the first node of a graph. Raises ValueError where mean, deviation and shape do not fit."""
    if set(attributes) != {"mean", "std"}:
        raise ValueError("A photo has the attributes mean and std, and no others.")
    return Node(PHOTO, "photo", (), photo_shape(attributes, shape), MappingProxyType(dict(attributes)))


def make_node(op: str, name: str, inputs: tuple[str, ...], attributes: Attributes, known: dict[str, Node]) -> Node:
    """Return a node with its shape and parameters. Raises ValueError with a sentence where something does not fit."""
    if name in known or name == LABEL:
        raise ValueError(f"There are two nodes named {name!r}.")
    if op not in OPS:
        raise ValueError(f"There is no op {op!r}.")
    rule = OPS[op]
    unknown = set(attributes) - set(rule.defaults)
    if unknown:
        raise ValueError(f"{op} {name!r} has no attribute {sorted(unknown)}.")
    missing = [i for i in inputs if i not in known and i != LABEL]
    if missing:
        raise ValueError(f"{op} {name!r} uses {missing}, which are not defined before it.")
    filled = MappingProxyType({**rule.defaults, **attributes})
    shapes = [known[i].shape if i in known else () for i in inputs]
    try:
        shape = rule.shape(filled, shapes)
        parameters = rule.parameters(filled, shapes)
    except ValueError as error:
        raise ValueError(f"{op} {name!r}: {error}") from error
    for candidate in (shape, *(p.shape for p in parameters)):
        if min(candidate) < 1:
            raise ValueError(f"{op} {name!r} would have the shape {candidate}.")
        if volume(candidate) > MAX_ELEMENTS:
            raise ValueError(f"{op} {name!r} would need {volume(candidate)} elements; that is too many.")
    return Node(name, op, inputs, shape, filled, parameters)


def check(graph: Graph) -> Graph:
    """Return the graph with complete attributes. Raises ModelFileError where a node does not follow its op's rules."""
    if not graph.nodes or graph.nodes[0].op != "photo" or graph.nodes[0].name != PHOTO:
        raise ModelFileError("The network in this file does not start with a photo.")
    if len(graph.nodes) > MAX_NODES:
        raise ModelFileError(f"The network in this file has {len(graph.nodes)} nodes; at most {MAX_NODES} are read.")
    known: dict[str, Node] = {}
    try:
        known[PHOTO] = photo_node(graph.nodes[0].shape, graph.nodes[0].attributes)
        for node in graph.nodes[1:]:
            made = make_node(node.op, node.name, node.inputs, node.attributes, known)
            if (made.shape, made.parameters) != (node.shape, node.parameters):
                raise ValueError(f"{node.op} {node.name!r} states a shape that does not follow from its inputs.")
            known[node.name] = made
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise ModelFileError(f"The network in this file is not valid: {error}") from error
    if graph.output not in known:
        raise ModelFileError(f"The network in this file has no node {graph.output!r}.")
    return Graph(graph.name, tuple(known.values()), graph.output)


def with_loss(
    graph: Graph, label_smoothing: float, class_weights: tuple[float, ...], targets: bool = False, multi: bool = False
) -> Graph:
    """Return the graph with its loss, named "loss", at its end, for training; `targets`: batches have targets.

    The loss is a softmax cross entropy; with `multi` (several labels per photo) it is a sigmoid cross entropy, whose
    targets have the smoothing already.
    """
    known = {node.name: node for node in graph.nodes}
    attributes: dict[str, Attribute] = {"label_smoothing": label_smoothing, "class_weights": class_weights}
    if targets:
        attributes |= {"label_smoothing": 0.0, "targets": True}
    op, attributes = ("sigmoid_cross_entropy", {}) if multi else ("softmax_cross_entropy", attributes)
    loss = make_node(op, "loss", (graph.output, LABEL), attributes, known)
    return Graph(graph.name, (*graph.nodes, loss), graph.output)
