"""Transfer learning: starts from the network of a model file or an ONNX file, with a head for the new classes.

Batch norms are folded into their convolutions, or frozen if they cannot be, so that few photos do not replace the
statistics of many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from core.config import MODELS, RunConfig, problems
from core.diagnosis.features import head_node
from core.diagnosis.model_file import read_model, with_photo_side
from core.diagnosis.model_identity import find_model, model_name, read_identity
from core.diagnosis.place_branch import BY_CLASS
from core.diagnosis.training_photos import TrainingPhotos, describe_overlap, measure_overlap
from core.errors import ConfigError, ModelFileError, Problem
from core.graph import PHOTO, Attribute, Graph, Node
from core.models import build, initial_weights
from core.models.options import IMAGENET_MEAN, IMAGENET_STD
from core.onnx import read_onnx
from core.ops.builder import make_node
from core.ops.contract import Array, Arrays
from core.program import fold_batch_norm, fold_weights
from core.training.presets import PRESETS

ONNX: Final = ".onnx"
IMAGE_SIZE: Final = 224
"""Side of photos in pixels where neither the settings nor a pretrained model have one."""

INPUT_NORMALIZATIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "auto": {},
    "imagenet": {"mean": IMAGENET_MEAN, "std": IMAGENET_STD},
    "tensorflow": {"mean": (0.5,) * 3, "std": (0.5,) * 3},
    "caffe": {"mean": (123 / 255, 117 / 255, 104 / 255), "std": (1 / 255,) * 3, "bgr": True},
}  # fmt: skip
"""Input normalization of an ONNX file, by the program that trained it: mean and standard deviation, -1..1, or BGR in
0..255 minus a mean. "auto" takes that of the file, or ImageNet's."""

LAST_LAYERS: Final = 6
"""Layers with weights that "last" trains besides the head: SqueezeNet's last two fire modules, or MobileNetV2's last
convolution, last block and most of the one before."""
COMPUTING: Final = ("conv2d", "depthwise_conv2d", "dense")
WIDTH: Final = {"conv2d": "filters", "dense": "units"}
"""Attribute with the number of classes of a head."""
HEAD_INIT: Final = "normal_0.01"
"""Small initial weights: pretrained features can be large, and a ReLU after the head must not start dead."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A pretrained network, without trainable batch norm; `classes` is empty and `learned` None if unknown."""

    path: Path
    graph: Graph
    weights: Arrays
    classes: tuple[str, ...]
    hash: str
    notes: tuple[str, ...] = ()
    learned: TrainingPhotos | None = None


@dataclass(frozen=True, slots=True)
class Network:
    """The network at the start of training, and sentences about its origin."""

    graph: Graph
    weights: dict[str, Array]
    notes: tuple[str, ...] = ()


def read_start(config: RunConfig) -> tuple[RunConfig, Origin | None]:
    """Complete the settings and read the pretrained network `config.start`; None if training starts from scratch.

    The network is that of the file; so is the photo size, unless the settings have one or the preset's is smaller.
    Raises ModelFileError if the file cannot be used, also with this size, ConfigError if the settings do not suit it.
    """
    if not config.start:
        return replace(config, image_size=config.image_size or IMAGE_SIZE), None
    origin = _read_origin(config)
    model = origin.graph.name if origin.graph.name in MODELS else config.model
    config = replace(config, start=str(origin.path), model=model, image_size=origin.graph.photo_shape[0])
    if found := problems(config):
        raise ConfigError(found)
    return config, origin


def _read_origin(config: RunConfig) -> Origin:
    path = find_model(Path(config.start).absolute())
    notes: tuple[str, ...] = ()
    learned = None
    if path.suffix.lower() == ONNX:
        side, normalization = config.image_size or IMAGE_SIZE, INPUT_NORMALIZATIONS[config.start_colours]
        found = read_onnx(path, image_size=side, fold=True, **normalization)
        graph, weights, classes = found.graph, found.weights, found.classes
        if not found.preprocessed:
            notes = (f"{path.name} does not state its input normalization. ImageNet's mean and standard deviation are "
                     f"used. If this is wrong, set --input-normalization "
                     f"{' or '.join(list(INPUT_NORMALIZATIONS)[2:])}.",)
    else:
        if config.start_colours != "auto":
            raise ConfigError([Problem("start_colours", "is only for ONNX files; a model file contains its input "
                                                        "normalization.")])
        model = read_model(path)
        graph, weights, classes = fold_batch_norm(model.graph), fold_weights(model.graph, model.weights), model.classes
        learned = model.learned
    height, width, channels = graph.photo_shape
    if height != width or channels != 3:
        raise ModelFileError(f"{path} takes photos of shape {graph.photo_shape}; training needs square colour photos.")
    most = PRESETS[config.preset].side if config.preset in PRESETS else height
    graph = with_photo_side(graph, config.image_size or min(height, most))
    return Origin(path, graph, weights, classes, read_identity(path).hash, notes, learned)


def first_network(config: RunConfig, origin: Origin | None, classes: Sequence[str]) -> Network:
    """The network for these classes and its initial weights.

    Classes that the file knows (matched by name) keep their weights in the head; other classes get new ones.
    """
    same = origin is not None and sorted(origin.classes) == sorted(classes)
    graph = (build(config.model, len(classes), config.image_size, config.dropout) if origin is None
             else _adapt(origin, len(classes), config.dropout, new_head=not same))
    graph = _without_last_relu(graph) if config.labels == "multi" else graph
    weights, head = initial_weights(graph, config.seed), head_parameters(graph)
    if origin is None:
        return Network(graph, weights)
    weights |= {name: array for name, array in origin.weights.items() if name not in head}
    known = [name for name in classes if name in origin.classes]
    to, of = [classes.index(name) for name in known], [origin.classes.index(name) for name in known]
    for name in head:
        weights[name][to] = origin.weights[name][of]
    kept = f", {len(known)} of which keep their weights" if known else ""
    classifier = "classifier kept" if same else f"new classifier for {len(classes)} classes{kept}"
    which = {"all": "all layers are trained", "last": "only the last layers are trained",
             "head": "only the classifier is trained"}  # fmt: skip
    note = (f"Starting from {model_name(origin.path)}: {graph.name}, photos of {config.image_size} pixels, "
            f"{classifier}; {which[config.train_layers]}.")
    return Network(graph, weights, (*origin.notes, note))


def _without_last_relu(graph: Graph) -> Graph:
    """The graph without SqueezeNet's ReLU after its classifier: a sigmoid needs negative logits."""
    after = graph.nodes[graph.nodes.index(head_node(graph)) + 1 :]
    return graph.without([node.name for node in after if node.op == "relu"])


def describe_origin(origin: Origin | None, evaluated: Sequence[tuple[str, Array]]) -> tuple[str, ...]:
    """Sentences about evaluated photos that the pretrained weights were trained on; none without class names."""
    if origin is None or not (origin.classes or origin.learned):
        return ()
    return describe_overlap(model_name(origin.path), origin.learned, measure_overlap(origin.learned, evaluated))


def frozen_parameters(config: RunConfig, graph: Graph) -> tuple[str, ...]:
    if config.train_layers == "all":
        return ()
    learning = head_parameters(graph) if config.train_layers == "head" else _last_parameters(graph)
    return tuple(name for name in graph.parameters() if name not in learning)


def head_parameters(graph: Graph) -> set[str]:
    heads = (head_node(graph).name, *BY_CLASS)
    return {f"{node.name}.{p.role}" for node in graph.nodes if node.name in heads for p in node.parameters}


def _last_parameters(graph: Graph) -> set[str]:
    """Parameters from the first of the last computing layers on, batch norms between them included."""
    computing = [i for i, node in enumerate(graph.nodes) if node.op in COMPUTING]
    first = computing[-1 - LAST_LAYERS :][0]
    return {f"{node.name}.{p.role}" for node in graph.nodes[first:] for p in node.parameters}


def _adapt(origin: Origin, classes: int, dropout: float, new_head: bool) -> Graph:
    """The file's graph with frozen batch norms, the given dropout and, with `new_head`, the given number of classes."""
    head = head_node(origin.graph)

    def changes(node: Node) -> dict[str, Attribute]:
        if node.name == head.name and new_head:
            return {WIDTH[node.op]: classes, "init": HEAD_INIT}
        return {"batch_norm": {"frozen": True}, "dropout": {"rate": dropout}}.get(node.op, {})  # type: ignore[return-value]

    known: dict[str, Node] = {PHOTO: origin.graph.nodes[0]}
    try:
        for node in origin.graph.nodes[1:]:
            attributes = {**node.attributes, **changes(node)}
            known[node.name] = make_node(node.op, node.name, node.inputs, attributes, known)
    except ValueError as error:
        raise ModelFileError(f"The classifier of {origin.path} cannot be replaced by one for {classes} classes: "
                             f"{error}") from error
    graph = Graph(origin.graph.name, tuple(known.values()), origin.graph.output)
    if known[graph.output].shape != (classes,):
        raise ModelFileError(f"The classifier of {origin.path} cannot be replaced by one for {classes} classes: its "
                             f"last layer {head.name!r} does not determine the number of classes.")
    return graph
