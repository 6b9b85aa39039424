"""Several trained networks as one: side by side on the same photo, under one head that averages their logits.

The mean of logits of dense heads on averaged maps is again a dense head on the averaged maps of all: weights side by
side, divided by the count. So class maps, feature statistics, plans and ONNX meet one ordinary network. Source of the
mean: Lakshminarayanan et al., "Simple and scalable predictive uncertainty estimation using deep ensembles", 2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np

from core.errors import ModelFileError
from core.graph import PHOTO, Graph, Node
from core.ops.builder import check, make_node
from core.ops.contract import Array, Arrays

BETWEEN: Final = "+"
"""Between the networks' names in the name of the joined one."""
MAPS: Final = "maps"
POOL: Final = "pool"
HEAD: Final = "head"
"""Nodes of the joined network that belong to no single one."""


@final
@dataclass(frozen=True, slots=True)
class Tail:
    """Where a network's features end: the name of its last map, and the dense head on the map's average."""

    features: str
    head: Node
    nodes: frozenset[str]


def join_graphs(graphs: Sequence[Graph]) -> Graph:
    """One network whose logits are the mean of theirs. Dropout before a head is left out.

    Node ``x`` of the second network is ``2.x``. Raises ModelFileError where the networks see other photos, tell
    different numbers of classes apart or do not end in a dense layer on an averaged map.
    """
    first, tails = graphs[0], [_tail(graph) for graph in graphs]
    for graph in graphs[1:]:
        if (graph.photo_shape, graph.nodes[0].attributes) != (first.photo_shape, first.nodes[0].attributes):
            raise ModelFileError(f"{graph.name} sees other photos than {first.name} (size, mean or deviation): "
                                 "the two cannot be joined.")
        if graph.classes != first.classes:
            raise ModelFileError(f"{graph.name} tells {graph.classes} classes apart and {first.name} {first.classes}: "
                                 "the two cannot be joined.")
    known = {PHOTO: first.nodes[0]}
    for number, (graph, tail) in enumerate(zip(graphs, tails, strict=True), start=1):
        for node in graph.nodes[1:]:
            if node.name not in tail.nodes:
                renamed = replace(node, name=f"{number}.{node.name}", inputs=tuple(_of(number, i) for i in node.inputs))
                known[renamed.name] = renamed
    maps = tuple(_of(number, tail.features) for number, tail in enumerate(tails, start=1))
    attributes = {**tails[0].head.attributes, "bias": True}
    try:
        known[MAPS] = make_node("concat", MAPS, maps, {}, known)
        known[POOL] = make_node("global_avg_pool", POOL, (MAPS,), {}, known)
        known[HEAD] = make_node("dense", HEAD, (POOL,), attributes, known)
    except ValueError as error:
        raise ModelFileError(f"The networks' last maps cannot stand side by side: {error}") from error
    return check(Graph(BETWEEN.join(graph.name for graph in graphs), tuple(known.values()), HEAD))


def join_weights(graphs: Sequence[Graph], weights: Sequence[Arrays]) -> dict[str, Array]:
    """Weights of `join_graphs(graphs)`, each network's as they are but for the head's."""
    joined: dict[str, Array] = {}
    heads: list[Array] = []
    biases: list[Array] = []
    for number, (graph, own) in enumerate(zip(graphs, weights, strict=True), start=1):
        head = _tail(graph).head.name
        joined |= {f"{number}.{name}": array for name, array in own.items() if name.rpartition(".")[0] != head}
        heads.append(np.asarray(own[f"{head}.weight"], np.float64))
        biases.append(np.asarray(own.get(f"{head}.bias", np.zeros(graph.classes)), np.float64))
    joined[f"{HEAD}.weight"] = (np.concatenate(heads, axis=1) / len(heads)).astype(np.float32)
    joined[f"{HEAD}.bias"] = np.mean(biases, axis=0).astype(np.float32)
    return joined


def count_joined(graph: Graph) -> int:
    """How many networks stand side by side in this one; 1 where it was not joined."""
    known = {node.name: node for node in graph.nodes}
    if graph.output != HEAD or MAPS not in known or known[MAPS].op != "concat":
        return 1
    inner = (node.name for node in graph.nodes if node.name not in (PHOTO, MAPS, POOL, HEAD))
    numbers = {name.partition(".")[0] for name in inner}
    count = len(known[MAPS].inputs)
    return count if numbers == {str(number + 1) for number in range(count)} else 1


def first_joined(graph: Graph, weights: Arrays) -> tuple[Graph, dict[str, Array]]:
    """The first of the networks that were joined, its bias the mean of all; of any other network itself."""
    count = count_joined(graph)
    if count == 1:
        return graph, dict(weights)
    known = {PHOTO: graph.nodes[0]}
    for node in graph.nodes:
        if node.name.startswith("1."):
            alone = replace(node, name=node.name[2:], inputs=tuple(i.removeprefix("1.") for i in node.inputs))
            known[alone.name] = alone
    features = graph.node(MAPS).inputs[0].removeprefix("1.")
    known[POOL] = make_node("global_avg_pool", POOL, (features,), {}, known)
    known[HEAD] = make_node("dense", HEAD, (POOL,), graph.node(HEAD).attributes, known)
    own = {name[2:]: array for name, array in weights.items() if name.startswith("1.")}
    width = known[features].shape[-1]
    own[f"{HEAD}.weight"] = np.ascontiguousarray(weights[f"{HEAD}.weight"][:, :width] * np.float32(count))
    own[f"{HEAD}.bias"] = weights[f"{HEAD}.bias"]
    return check(Graph(graph.name.partition(BETWEEN)[0], tuple(known.values()), HEAD)), own


def _of(number: int, name: str) -> str:
    return name if name == PHOTO else f"{number}.{name}"


def _tail(graph: Graph) -> Tail:
    head = graph.node(graph.output)
    nodes, below = [head.name], head
    while below.inputs and (below is head or below.op == "dropout"):
        below = graph.node(below.inputs[0])
        nodes.append(below.name)
    features = graph.node(below.inputs[0]) if below.op == "global_avg_pool" else below
    alone = all(len(graph.users(name)) == 1 for name in nodes[1:])
    if head.op != "dense" or features is below or len(features.shape) != 3 or not alone:
        raise ModelFileError(f"{graph.name} cannot be joined with others: only networks that end in a dense layer on "
                             "an averaged map can, such as MobileNetV2. Only there a mean of logits is one layer.")
    return Tail(features.name, head, frozenset(nodes))
