"""Small model files of networks that have learned nothing, and what a model answers."""

from contextlib import closing

from core.diagnosis.model_file import ModelFile, write_model
from core.diagnosis.prediction import Predictor
from core.models import build, initial_weights


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
