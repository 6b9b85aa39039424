"""Small model files of networks that have learned nothing, and what a model answers."""

from contextlib import closing
from dataclasses import replace

from core.diagnosis.model_file import ModelFile, write_model
from core.diagnosis.prediction import Predictor
from core.graph import Graph
from core.models import build, initial_weights
from core.ops.builder import make_node


def changed(graph, op, **attributes):
    """The graph with these attributes of every node of an op."""
    photo, *others = graph.nodes
    more = attributes if op == "photo" else {}
    known = {photo.name: replace(photo, attributes={**photo.attributes, **more})}
    for node in others:
        more = attributes if node.op == op else {}
        known[node.name] = make_node(node.op, node.name, node.inputs, {**node.attributes, **more}, known)
    return Graph(graph.name, tuple(known.values()), graph.output)


def small_model(classes=("a", "b", "c"), side=16, network="cnn", seed=0, **fields):
    graph = build(network, len(classes), side)
    return ModelFile(graph, initial_weights(graph, seed), tuple(classes), side, **fields)


def write_small_model(path, *which, **fields):
    write_model(path, small_model(*which, **fields))
    return path


def predict(model, photos, **how):
    """Its outputs by name; `how`: arguments of `Predictor`."""
    with closing(Predictor(model, **how)) as predictor:
        return predictor.predict(photos)
