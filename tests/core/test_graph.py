"""A graph goes to JSON and comes back equal; a broken description is refused with a sentence."""

import json
import random

import pytest

from core.config import MODELS
from core.errors import ModelFileError
from core.graph import from_dict, to_dict
from core.models import build
from core.ops.builder import check, with_loss
from tests.helpers.damage import alter, refusals


@pytest.mark.parametrize("name", MODELS)
def test_every_network_goes_to_json_and_comes_back_equal_also_with_a_loss(name):
    graph = build(name, 3, image_size=64)
    assert check(from_dict(to_dict(graph))) == graph
    for each in (graph, with_loss(graph, 0.1, (1.0, 0.5, 2.0))):
        assert from_dict(to_dict(each)) == each


def broken(change):
    raw = to_dict(build("mlp", 3, image_size=16))
    change(raw)
    return raw


@pytest.mark.parametrize("raw", ["", [], None, {}, *map(broken, (
    lambda raw: raw.pop("nodes"), lambda raw: raw["nodes"][1].pop("shape"), lambda raw: raw.update(nodes=3),
    lambda raw: raw["nodes"][1].update(shape="wide"), lambda raw: raw["nodes"][1].update(shape=[float("inf")]),
    lambda raw: raw["nodes"][1].update(attributes=[1]),
    lambda raw: raw["nodes"][1].update(attributes={"units": {"a": 1}}),
    lambda raw: raw["nodes"][2].update(parameters=[{"role": "weight"}]),
))], ids=range(12))  # fmt: skip
def test_a_broken_description_is_refused_with_a_sentence(raw):
    with pytest.raises(ModelFileError, match="network description"):
        from_dict(raw)


def test_altered_descriptions_are_refused_or_make_sense():
    original, rng = json.loads(json.dumps(to_dict(build("cnn", 3, image_size=16)))), random.Random(0)

    def read():
        graph = check(from_dict(alter(original, rng, most=100)))
        assert check(from_dict(to_dict(graph))) == graph

    assert len(refusals(ModelFileError, [read] * 1000)) > 500
