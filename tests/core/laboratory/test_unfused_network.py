"""A network run kernel by kernel gives the reference's loss and gradients, with every algorithm that runs here."""

import numpy as np
import pytest

from core.errors import KernelUnavailable
from core.laboratory.convolutions import LABORATORY
from core.laboratory.unfused_network import UnfusedNetwork
from core.models.init import initial_weights
from core.ops.builder import Builder, with_loss
from core.ops.contract import Mode
from core.ops.network import loss_and_gradients
from core.ops.registry import Registry
from tests.helpers.compare import assert_close

MODE = Mode(training=True, seed=1, step=2)


def fire_graph():
    """A convolution, two branches that meet in a concat, batch norm, dropout and a dense layer."""
    b = Builder("fire", (7, 6, 3), (0.5,) * 3, (0.25,) * 3)
    x = b.add("conv2d", "first", "photo", filters=4, kernel=(3, 3), stride=(2, 2))
    x = b.add("relu", "relu", x)
    one = b.add("conv2d", "one", x, filters=4, kernel=(1, 1), bias=False)
    three = b.add("conv2d", "three", x, filters=4, kernel=(3, 3), padding=(1, 1, 1, 1), bias=False)
    x = b.add("batch_norm", "norm", b.add("concat", "both", one, three))
    x = b.add("global_avg_pool", "pool", b.add("dropout", "dropout", x, rate=0.3))
    return with_loss(b.graph(b.add("dense", "head", x, units=3)), 0.1, ())


@pytest.mark.parametrize("algorithm", ["reference", "naive", "vectorised_parallel", "im2col"])
def test_each_algorithm_gives_the_true_loss_and_gradients(algorithm):
    graph = fire_graph()
    weights = initial_weights(graph, 0)
    rng = np.random.default_rng(0)
    photos, labels = rng.normal(size=(3, 7, 6, 3)).astype(np.float32), np.array([0, 2, 1], np.int32)
    exact = {name: value.astype(np.float64) for name, value in weights.items()}
    truth = loss_and_gradients(graph, exact, photos.astype(np.float64), labels, MODE)
    network = UnfusedNetwork(graph, weights, 3, LABORATORY, algorithm, MODE)
    network.photos[...], network.labels[...] = photos, labels
    network.step()
    assert abs(network.loss() - truth.loss) < 1e-5
    assert set(network.gradients) == set(truth.gradients)
    for name, gradient in network.gradients.items():
        assert_close(gradient, truth.gradients[name], 1e-4)
    assert {a for layer, _, a in network.chosen if layer == "three"} == {algorithm}


def test_an_algorithm_below_every_kernel_is_refused_with_a_sentence():
    fast_only = Registry(row for row in LABORATORY.kernels if row.algorithm in ("tiled", "fft") and row.op == "conv2d")
    with pytest.raises(KernelUnavailable, match="No kernel up to 'naive' runs conv2d forward"):
        UnfusedNetwork(fire_graph(), initial_weights(fire_graph(), 0), 1, fast_only, "naive")
