"""First weights: the right spread, the same for the same seed, each parameter on its own."""

from dataclasses import replace

import numpy as np
import pytest

from core.models import build, initial_weights
from core.models.init import INITS


def test_a_parameters_values_depend_on_the_seed_and_not_on_other_parameters():
    ten, other, twenty = (initial_weights(build("squeezenet1_1", n, image_size=64), seed)
                          for n, seed in ((10, 5), (10, 6), (20, 5)))  # fmt: skip
    assert {k for k in ten if not np.array_equal(ten[k], twenty[k])} == {"classifier.1.weight", "classifier.1.bias"}
    assert {k for k in ten if np.array_equal(ten[k], other[k])} == {k for k in ten if k.endswith(".bias")}
    assert {a.dtype for a in ten.values()} == {np.dtype(np.float32)}
    assert not np.array_equal(ten["features.3.expand3x3.weight"], ten["features.4.expand3x3.weight"])


def test_networks_start_as_torchvisions_do():
    weights = initial_weights(build("squeezenet1_0", 1000), 0)
    first = weights["features.0.weight"]
    bound = (6 / (3 * 49)) ** 0.5
    assert bound * 0.999 < np.abs(first).max() <= bound
    assert abs(first.std() / (bound / 3**0.5) - 1) < 0.02
    assert abs(weights["classifier.1.weight"].std() / 0.01 - 1) < 0.01
    assert not any(weights[k].any() for k in weights if k.endswith(".bias"))
    weights = initial_weights(build("mobilenetv2", 1000), 0)
    assert abs(weights["features.18.0.weight"].std() / (2 / 1280) ** 0.5 - 1) < 0.01
    assert abs(weights["features.14.conv.1.0.weight"].std() / (2 / (576 * 9)) ** 0.5 - 1) < 0.03
    for role, value in (("weight", 1), ("running_var", 1), ("running_mean", 0)):
        assert (weights[f"features.1.conv.2.{role}"] == value).all()


def test_every_way_to_start_gives_finite_numbers_of_the_shape_and_an_unknown_one_is_named():
    parameter = build("cnn", 10, image_size=28).parameters()["conv2.weight"]
    for name, init in INITS.items():
        drawn = init(np.random.default_rng(0), parameter)
        assert drawn.shape == parameter.shape, name
        assert np.isfinite(drawn).all(), name
    graph = build("mlp", 3, image_size=16)
    strange = replace(graph.nodes[2], parameters=tuple(replace(p, init="magic") for p in graph.nodes[2].parameters))
    with pytest.raises(ValueError, match="no initialisation 'magic' for dense1.weight"):
        initial_weights(replace(graph, nodes=(*graph.nodes[:2], strange)), 0)
