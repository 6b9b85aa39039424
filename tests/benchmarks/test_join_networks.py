"""Two networks joined into one compute the mean of both."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.join_networks import join
from core.diagnosis.features import feature_node
from core.diagnosis.model_file import ModelFile
from core.diagnosis.place_branch import Branch, Gate, branch_nodes, choose_network, join_branch, keep_classes
from core.models import build
from core.models.init import initial_weights
from core.ops.builder import Builder
from tests.helpers.models import predict


def network(seed, classes, mean, temperature):
    b = Builder("tiny", (32, 32, 3), (mean,) * 3, (0.2, 0.3, 0.4))
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


def test_the_branch_of_a_place_copies_the_last_layers_of_the_network_with_fewer_weights():
    models = [ModelFile(graph := build(name, 3, 64), initial_weights(graph, seed), ("a", "b", "c"), 64)
              for seed, name in enumerate(("mobilenetv2_wide", "mobilenetv2"))]  # fmt: skip
    joined = join(*models, 64, "both")
    photos = np.random.default_rng(1).integers(0, 256, (2, 64, 64, 3), dtype=np.uint8)
    graph, weights = keep_classes(joined.graph, joined.weights, np.array([0, 2]))
    found = predict(replace(joined, graph=graph, weights=weights, classes=("a", "c")), photos)["logits"]
    wanted = predict(models[1], photos)["logits"][:, ::2]
    assert np.diff(found) == pytest.approx(np.diff(wanted), abs=1e-4), "its bias is the mean of both"
    branch = Branch(weights, Gate(np.zeros(2560), 1.0), np.array([0, 2]), 0.5)
    both, arrays = join_branch(joined.graph, joined.weights, branch)
    branched = replace(joined, graph=both, weights=arrays)
    logits, before = predict(branched, photos)["logits"], predict(joined, photos)["logits"]
    own = found - found.mean(axis=1, keepdims=True) + before[:, ::2].mean(axis=1, keepdims=True) + 0.5
    assert logits == pytest.approx(np.stack((own[:, 0], before[:, 1], own[:, 1]), axis=1), abs=1e-4)
    copied = [node.name for node in branch_nodes(graph)]
    assert {"second.features.18.0", "pooled", "head"} <= set(copied)
    assert not any(name.startswith("features") or "features.6." in name for name in copied)
    assert choose_network(fire := build("squeezenet1_1", 3, 64))[0] is fire, "both parts follow from one map"
