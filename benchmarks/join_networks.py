"""Join two networks into one: their feature maps side by side, and a head that takes the mean of their logits.

    python -m benchmarks.join_networks FIRST SECOND --side 320 --photos joined --out joined.safetensors

Both must have a linear head on the average of a feature map, and maps of one size: of networks of stride 32, at
multiples of 32 pixels. The mean is of logits over their temperatures (Hinton, "Products of experts", 1999), so the
joined head is linear too, and everything that needs a feature map and a head works as before. With `--photos` the first
network's share in the mean is chosen for each crop with enough validation photos: that with the smallest log loss. The
second network's first filters take over the first one's input normalization.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.candidates import best_shares, validation_logits
from benchmarks.ship_model import prepared
from core.diagnosis.calibration import crop_of
from core.diagnosis.features import feature_node, head_node
from core.diagnosis.model_file import VIEWS, ModelFile, read_model, with_photo_side, write_model
from core.diagnosis.training_photos import record_photos
from core.graph import PHOTO, Attribute, Graph, Node
from core.ops.builder import make_node
from core.ops.contract import Array
from core.program import fold_batch_norm, fold_weights

PREFIX = "second."
"""Of the names of the second network's layers."""
EQUAL: Mapping[str, float] = {}


def join(
    first: ModelFile, second: ModelFile, side: int, name: str, shares: Mapping[str, float] = EQUAL, views: int = 1
) -> ModelFile:
    """The joined network for photos of `side`. Classes and sources are the first one's; shares: its shares by crop."""
    assert sorted(first.classes) == sorted(second.classes)
    graphs = [with_photo_side(fold_batch_norm(model.graph), side) for model in (first, second)]
    weights = [dict(fold_weights(model.graph, model.weights)) for model in (first, second)]
    weights[1] |= renormalized(graphs[1], weights[1], graphs[0].nodes[0].attributes)
    known: dict[str, Node] = {PHOTO: graphs[0].nodes[0]}
    arrays: dict[str, Array] = {}
    maps = []
    for graph, own, prefix in zip(graphs, weights, ("", PREFIX), strict=True):
        last = feature_node(graph)
        assert last is not None
        names = {PHOTO: PHOTO}
        for node in graph.nodes[1 : graph.nodes.index(graph.node(last)) + 1]:
            names[node.name] = prefix + node.name
            inputs = tuple(names[source] for source in node.inputs)
            known[names[node.name]] = make_node(node.op, names[node.name], inputs, node.attributes, known)
            arrays |= {f"{prefix}{node.name}.{p.role}": own[f"{node.name}.{p.role}"] for p in node.parameters}
        maps.append(names[last])
    known["joined"] = make_node("concat", "joined", tuple(maps), {}, known)
    known["pooled"] = make_node("global_avg_pool", "pooled", ("joined",), {}, known)
    known["head"] = make_node("dense", "head", ("pooled",), {"units": len(first.classes), "bias": True}, known)
    arrays |= mean_head((first, second), graphs, weights, shares)
    graph = Graph(name, tuple(known.values()), "head")
    return replace(first, graph=graph, weights=arrays, steps={}, half=False, views=views, temperature=1.0,
                   class_temperatures=(), sections={}, extra={}, source_side=side,
                   learned=record_photos(np.zeros((0, 32), np.uint8), [first.learned, second.learned]))  # fmt: skip


def mean_head(
    models: tuple[ModelFile, ModelFile], graphs: list[Graph], weights: list[dict[str, Array]],
    shares: Mapping[str, float],
) -> dict[str, Array]:  # fmt: skip
    """Weight and bias of the joined head, its classes in the order of the first network."""
    classes, found = models[0].classes, []
    first = np.array([shares.get(crop_of(name), 0.5) for name in classes])
    for model, graph, own, share in zip(models, graphs, weights, (first, 1 - first), strict=True):
        head, order = head_node(graph).name, [model.classes.index(name) for name in classes]
        weight, scale = own[f"{head}.weight"].reshape(len(order), -1)[order], share / model.temperature
        found.append((weight * scale[:, None], own[f"{head}.bias"][order] * scale))
    return {"head.weight": np.concatenate([weight for weight, _ in found], axis=1).astype(np.float32),
            "head.bias": (found[0][1] + found[1][1]).astype(np.float32)}  # fmt: skip


def renormalized(graph: Graph, weights: Mapping[str, Array], wanted: Mapping[str, Attribute]) -> dict[str, Array]:
    """Weight and bias of the first convolution for photos normalized as `wanted` says.

    Exact but at the border: its zeros then mean the wanted mean colour.
    """
    mean, std, new_mean, new_std = (
        np.array(of[name]) for of in (graph.nodes[0].attributes, wanted) for name in ("mean", "std")
    )
    conv = next(node for node in graph.nodes if PHOTO in node.inputs)
    weight, bias = weights[f"{conv.name}.weight"], weights[f"{conv.name}.bias"]
    moved = bias + (weight * ((new_mean - mean) / std)).sum(axis=(1, 2, 3))
    return {f"{conv.name}.weight": (weight * (new_std / std)).astype(np.float32),
            f"{conv.name}.bias": moved.astype(np.float32)}  # fmt: skip


def choose_shares(models: Sequence[ModelFile], side: int, views: int, root: Path) -> dict[str, float]:
    """The first network's share for each crop with enough validation photos."""
    classes, found = models[0].classes, []
    seen = [validation_logits(prepared(model, side, views, 8), root, "cpu") for model in models]
    for model, (_, _, logits) in zip(models, seen, strict=True):
        found.append(logits[:, [model.classes.index(name) for name in classes]] / model.temperature)
    rows, labels, _ = seen[0]
    return best_shares(*found, labels, rows, classes, np.ones(len(rows), bool))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--side", type=int, required=True, help="pixels of the photos in use")
    parser.add_argument("--views", type=int, choices=VIEWS, default=1)
    parser.add_argument("--photos", type=Path, help="a folder of benchmarks.join_photos, to choose shares by crop")
    parser.add_argument("--name", default="mobilenetv2_joined")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    models = read_model(options.first), read_model(options.second)
    shares = choose_shares(models, options.side, options.views, options.photos) if options.photos else EQUAL
    model = join(*models, options.side, options.name, shares, options.views)
    write_model(options.out, model)
    print(f"{options.out}: {model.parameters:,} parameters; shares of the first network: {dict(shares) or 'half'}")


if __name__ == "__main__":
    main()
