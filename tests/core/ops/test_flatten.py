"""Weights in PyTorch's layout."""

import numpy as np
import pytest

from core.models import MODELS, build, initial_weights
from core.ops.flatten import to_torch


@pytest.mark.parametrize("name", [name for name in MODELS if name != "alexnet"])  # 61 million weights
def test_every_weight_has_its_name_and_its_values(name):
    graph = build(name, 10, image_size=64)
    weights = initial_weights(graph, 1)
    state = to_torch(graph, weights)
    assert state.keys() == weights.keys()
    assert all(np.array_equal(np.sort(state[k], axis=None), np.sort(weights[k], axis=None)) for k in weights)
    assert all(array.flags.c_contiguous for array in state.values())


def test_filters_become_oihw_and_flattened_features_channels_first():
    graph = build("cnn", 10, image_size=28, channels=1)
    weights = initial_weights(graph, 1)
    state = to_torch(graph, weights)
    assert state["conv2.weight"].shape == (8, 8, 5, 5)
    assert np.array_equal(state["conv2.weight"][3, 1], weights["conv2.weight"][3, :, :, 1])
    ours, theirs = weights["dense1.weight"].reshape(128, 14, 14, 8), state["dense1.weight"].reshape(128, 8, 14, 14)
    assert np.array_equal(ours[5, 2, 7, 3], theirs[5, 3, 2, 7])
    assert np.array_equal(state["dense2.weight"], weights["dense2.weight"])
