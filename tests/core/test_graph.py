"""A graph goes to JSON and comes back equal; a broken description is refused with a sentence."""

import json
import random

import pytest

from core.config import MODELS
from core.errors import ModelFileError
from core.graph import from_json, to_json
from core.models import build
from core.ops.builder import check, with_loss


@pytest.mark.parametrize("name", MODELS)
def test_every_network_goes_to_json_and_comes_back_equal(name):
    graph = build(name, 7, image_size=64)
    assert from_json(to_json(graph)) == graph
    assert check(from_json(to_json(graph))) == graph


def test_a_training_graph_with_class_weights_comes_back_equal():
    graph = with_loss(build("mlp", 3, image_size=16), 0.1, (1.0, 0.5, 2.0))
    assert from_json(to_json(graph)) == graph


def test_a_graph_answers_for_its_nodes_parameters_and_users():
    graph = build("squeezenet1_1", 5)
    assert (graph.classes, graph.photo_shape) == (5, (224, 224, 3))
    assert graph.node("features.3").op == "concat"
    assert [u.name for u in graph.users("features.3.squeeze_activation")] == [
        "features.3.expand1x1",
        "features.3.expand3x3",
    ]
    assert graph.parameters()["features.3.squeeze.weight"].shape == (16, 1, 1, 64)
    with pytest.raises(KeyError):
        graph.node("features.99")


def broken(change):
    raw = json.loads(to_json(build("mlp", 3, image_size=16)))
    change(raw)
    return json.dumps(raw)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        "[" * 100_000,
        broken(lambda raw: raw.pop("nodes")),
        broken(lambda raw: raw["nodes"][1].pop("shape")),
        broken(lambda raw: raw["nodes"][1].update(shape="wide")),
        broken(lambda raw: raw["nodes"][1].update(shape=[float("inf")])),
        broken(lambda raw: raw["nodes"][1].update(attributes=[1])),
        broken(lambda raw: raw["nodes"][1].update(attributes={"units": {"a": 1}})),
        broken(lambda raw: raw["nodes"][2].update(parameters=[{"role": "weight"}])),
        broken(lambda raw: raw.update(nodes=3)),
    ],
    ids=range(13),
)
def test_a_broken_description_is_refused_with_a_sentence(text):
    with pytest.raises(ModelFileError, match="network description"):
        from_json(text)


STRANGE = (None, True, -1, 0, 1, 2.5, 1 << 40, float("nan"), float("inf"), "", "photo", "label", [], [1], [1] * 4, {})


def places(value, path=()):
    """Paths to everything inside a JSON value."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield (*path, key)
            yield from places(value[key], (*path, key))


def test_altered_descriptions_are_refused_or_make_sense():
    original, rng, refused = to_json(build("cnn", 3, image_size=16)), random.Random(0), 0
    paths = list(places(json.loads(original)))
    for _ in range(1000):
        raw = json.loads(original)
        path = rng.choice(paths)
        inner = raw
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = rng.choice(STRANGE)
        try:
            graph = check(from_json(json.dumps(raw)))
        except ModelFileError:
            refused += 1
        else:
            assert check(from_json(to_json(graph))) == graph
    assert 500 < refused < 1000
