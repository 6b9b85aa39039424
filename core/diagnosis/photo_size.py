"""The same network and weights on photos of another size: possible where it averages over the whole photo.

Training crops zoom in, so leaves look larger in training than in use; a larger photo in use takes that back.
Source: Touvron et al., "Fixing the train-test resolution discrepancy", 2019.
"""

from __future__ import annotations

from dataclasses import replace

from core.errors import ModelFileError
from core.graph import PHOTO, Graph, Node
from core.ops.builder import make_node


def with_photo_side(graph: Graph, side: int) -> Graph:
    """The graph for photos of this side. Raises ModelFileError where a layer's weights depend on the size."""
    photo = graph.nodes[0]
    known: dict[str, Node] = {PHOTO: replace(photo, shape=(side, side, photo.shape[2]))}
    for node in graph.nodes[1:]:
        try:
            made = make_node(node.op, node.name, node.inputs, node.attributes, known)
        except ValueError as error:
            raise ModelFileError(f"Photos of {side} pixels are too small for {graph.name}: {error}") from error
        if [p.shape for p in made.parameters] != [p.shape for p in node.parameters]:
            raise ModelFileError(f"{graph.name} works on photos of {photo.shape[0]} pixels only (layer {node.name!r}).")
        known[node.name] = replace(made, parameters=node.parameters)
    return Graph(graph.name, tuple(known.values()), graph.output)
