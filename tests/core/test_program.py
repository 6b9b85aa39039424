"""Lowering: fused activations, slices instead of concats, folded batch norms, the flat layout of parameters."""

import numpy as np
import pytest

from core.models import MODELS, build, initial_weights
from core.ops.builder import Builder, with_loss
from core.program import Value, fold_batch_norm, fold_weights, lay_out_parameters, lower
from tests.helpers.models import changed
from tests.helpers.reference_plan import decay_mask


def test_squeezenet_lowers_to_one_step_a_convolution_and_pool_which_write_slices_of_a_concat():
    program = lower(build("squeezenet1_1", 10), training=False)
    assert [s.op for s in program.steps].count("conv2d") == 26
    assert [s.op for s in program.steps].count("max_pool") == 3
    assert {s.op for s in program.steps} == {"conv2d", "max_pool", "global_avg_pool"}
    assert all(s.activation == "relu" for s in program.steps if s.op == "conv2d")
    program = lower(build("squeezenet1_1", 10, image_size=64), training=False)
    assert program.values["features.3.expand1x1_activation"] == Value("features.3", (15, 15, 64), 0)
    assert program.values["features.3.expand3x3_activation"] == Value("features.3", (15, 15, 64), 64)
    assert program.buffers["features.3"] == (15, 15, 128)
    assert "features.3.expand1x1_activation" not in program.buffers


def test_dropout_is_a_step_in_training_only_and_an_output_that_is_asked_for_stays_readable():
    graph = build("squeezenet1_1", 10, image_size=64)
    assert "dropout" not in {s.op for s in lower(graph, training=False).steps}
    training = lower(with_loss(graph, 0.0, ()), training=True)
    assert [s.op for s in training.steps][-4:] == ["dropout", "conv2d", "global_avg_pool", "softmax_cross_entropy"]
    assert training.output == Value("classifier.3", (10,))
    program = lower(graph, training=False, outputs=("classifier.1",))
    assert program.values["classifier.1"].shape == (3, 3, 10)
    assert [s.op for s in program.steps][-2:] == ["relu", "global_avg_pool"]


def test_an_activation_does_not_join_where_another_node_reads_the_sum():
    b = Builder("fork", (8, 8, 3), (0.5,) * 3, (0.25,) * 3)
    x = b.add("conv2d", "conv", "photo", filters=4)
    y = b.add("relu", "relu", x)
    program = lower(b.graph(b.add("add", "add", x, y)), training=False)
    assert [(s.op, s.activation) for s in program.steps] == [("conv2d", ""), ("relu", ""), ("add", "")]


def test_only_training_with_batch_norms_that_learn_mixes_photos():
    graph = build("squeezenet1_1_bn", 4, image_size=64)
    frozen = changed(graph, "batch_norm", frozen=True)
    assert lower(with_loss(graph, 0.0, ()), training=True).uses_batch_statistics()
    assert not lower(with_loss(frozen, 0.0, ()), training=True).uses_batch_statistics()
    assert not lower(graph, training=False).uses_batch_statistics()


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_laid_out_aligned_apart_and_trained_ones_first(name):
    graph = build(name, 10, image_size=64)
    layout = lay_out_parameters(graph)
    parameters = graph.parameters()
    taken, decayed = np.zeros(layout.size, int), decay_mask(layout)
    for key, (first, shape) in layout.offsets.items():
        assert first % 16 == 0  # a cache line
        assert shape == parameters[key].shape
        assert (first < layout.trained) == parameters[key].trained
        assert decayed[first : first + 1].any() == (parameters[key].trained and parameters[key].decay)
        taken[first : first + parameters[key].size] += 1
    assert taken.max() == 1
    assert layout.offsets.keys() == parameters.keys()
    assert decayed.sum() == sum(p.size for p in parameters.values() if p.trained and p.decay)


def test_folding_leaves_a_batch_norm_alone_whose_convolution_is_read_twice():
    b = Builder("fork", (8, 8, 3), (0.5,) * 3, (0.25,) * 3)
    x = b.add("conv2d", "conv", "photo", filters=4)
    y = b.add("batch_norm", "norm", x)
    graph = b.graph(b.add("add", "add", x, y))
    assert fold_batch_norm(graph) == graph
    weights = initial_weights(graph, 0)
    assert fold_weights(graph, weights).keys() == weights.keys()
