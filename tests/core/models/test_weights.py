"""Weights to PyTorch's layout and back, also from a file, and what does not fit is named."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import save_file

from core.errors import ModelFileError
from core.models import MODELS, build, initial_weights
from core.models.weights import from_torch, load_torch, to_torch


@pytest.mark.parametrize("name", MODELS)
def test_to_pytorch_and_back_gives_the_same_bits(name):
    graph = build(name, 10, image_size=64)
    weights = initial_weights(graph, 1)
    state = to_torch(graph, weights)
    back = from_torch(graph, state)
    assert back.keys() == weights.keys()
    assert all(np.array_equal(back[k], weights[k]) and back[k].flags.c_contiguous for k in weights)


def test_filters_become_oihw_and_flattened_features_channels_first():
    graph = build("cnn", 10, image_size=28, channels=1)
    weights = initial_weights(graph, 1)
    state = to_torch(graph, weights)
    assert state["conv2.weight"].shape == (8, 8, 5, 5)
    assert np.array_equal(state["conv2.weight"][3, 1], weights["conv2.weight"][3, :, :, 1])
    ours, theirs = weights["dense1.weight"].reshape(128, 14, 14, 8), state["dense1.weight"].reshape(128, 8, 14, 14)
    assert np.array_equal(ours[5, 2, 7, 3], theirs[5, 3, 2, 7])
    assert np.array_equal(state["dense2.weight"], weights["dense2.weight"])


def test_a_state_dict_in_a_file_loads_and_counters_of_batches_are_ignored(tmp_path):
    graph = build("squeezenet1_1_bn", 5, image_size=64)
    weights = initial_weights(graph, 2)
    state = {**to_torch(graph, weights), "features.0_bn.num_batches_tracked": np.array(3)}
    save_file(state, tmp_path / "weights.safetensors")
    loaded = load_torch(graph, tmp_path / "weights.safetensors")
    assert all(np.array_equal(loaded[k], weights[k]) for k in weights)


def test_what_does_not_fit_is_named():
    graph = build("squeezenet1_1", 5, image_size=64)
    state = to_torch(graph, initial_weights(graph, 0))
    del state["features.0.bias"]
    state["head.weight"] = np.zeros(3)
    state["features.3.squeeze.weight"] = np.zeros((64, 16, 1, 1))
    with pytest.raises(ModelFileError) as error:
        from_torch(graph, state)
    assert "features.0.bias is missing" in str(error.value)
    assert "head.weight is not part of squeezenet1_1" in str(error.value)
    assert "features.3.squeeze.weight has the shape (64, 16, 1, 1)" in str(error.value)


@pytest.mark.parametrize("content", [b"", b"not a model", b"\xff" * 64, (1 << 62).to_bytes(8, "little") + b"{}"])
def test_a_file_that_is_no_safetensors_is_refused_with_a_sentence(content, tmp_path):
    (tmp_path / "weights.safetensors").write_bytes(content)
    with pytest.raises(ModelFileError, match="weights.safetensors cannot be read"):
        load_torch(build("mlp", 3, image_size=16), tmp_path / "weights.safetensors")
