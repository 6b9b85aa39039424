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
