"""Two networks joined into one compute the mean of both."""

import numpy as np
import pytest

from benchmarks.join_networks import join
from core.diagnosis.features import feature_node
from core.diagnosis.model_file import ModelFile
from core.diagnosis.place_branch import branch_nodes
from core.models import build
from core.models.init import initial_weights
from core.models.options import Options, start
from tests.helpers.models import predict


def network(seed, classes, mean, temperature):
    b = start("tiny", Options(len(classes), 32, mean=(mean,) * 3, std=(0.2, 0.3, 0.4)))
    x = b.add("relu", "relu", b.add("conv2d", "conv", "photo", filters=8 + seed, kernel=(3, 3), stride=(2, 2)))
    graph = b.graph(b.add("dense", "head", b.add("global_avg_pool", "average", x), units=len(classes)))
    return ModelFile(graph, initial_weights(graph, seed), classes, 32, temperature=temperature)


def test_joined_logits_are_the_mean_of_both_over_their_temperatures():
    photos = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    first, second = network(0, ("a", "b", "c"), 0.4, 0.5), network(1, ("c", "a", "b"), 0.6, 2.0)
    joined = join(first, second, 32, "both")
    wanted = predict(first, photos)["logits"] / 0.5 + predict(second, photos)["logits"][:, [1, 2, 0]] / 2.0
    assert joined.graph.node(feature_node(joined.graph) or "").shape[-1] == 8 + 9
    assert predict(joined, photos)["logits"] == pytest.approx(wanted / 2, abs=1e-5)


def test_the_branch_of_a_place_copies_the_last_layers_of_both():
    model = ModelFile(graph := build("mobilenetv2", 3, 64), initial_weights(graph, 0), ("a", "b", "c"), 64)
    copied = [node.name for node in branch_nodes(join(model, model, 64, "both").graph)]
    assert {"features.18.0", "second.features.18.0", "joined", "head"} <= set(copied)
    assert not any("features.6." in name for name in copied), "its map is wider than 1/16 of the photo"
