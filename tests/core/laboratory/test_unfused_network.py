"""A network run kernel by kernel gives the reference's loss and gradients, with every algorithm that runs here."""

import numpy as np
import pytest

from core.laboratory.unfused_network import TRAINING, UnfusedNetwork
from core.models.init import initial_weights
from core.ops.builder import Builder, with_loss
from core.ops.network import loss_and_gradients
from core.ops.registry import Registry
from tests.helpers.compare import assert_close


def chain():
    """Convolutions with and without a bias, batch norm, a pool and a dense layer."""
    b = Builder("chain", (8, 6, 3), (0.5,) * 3, (0.25,) * 3)
    x = b.add("relu", "relu", b.add("conv2d", "first", "photo", filters=4, kernel=(3, 3), padding=(1, 1, 1, 1)))
    x = b.add("conv2d", "second", x, filters=5, kernel=(3, 3), stride=(2, 2), bias=False)
    x = b.add("max_pool", "pool", b.add("batch_norm", "norm", x), kernel=(2, 2), stride=(1, 1))
    return with_loss(b.graph(b.add("dense", "head", b.add("flatten", "flat", x), units=3)), 0.1, ())


@pytest.mark.parametrize("algorithm", ["reference", "naive", "vectorised_parallel", "im2col"])
def test_each_algorithm_gives_the_true_loss_and_gradients(algorithm, monkeypatch):
    chosen, choose = [], Registry.choose
    monkeypatch.setattr(Registry, "choose", lambda *asked: chosen.append(choose(*asked)) or chosen[-1])
    graph = chain()
    weights = initial_weights(graph, 0)
    rng = np.random.default_rng(0)
    photos, labels = rng.normal(size=(3, 8, 6, 3)).astype(np.float32), np.array([0, 2, 1], np.int32)
    exact = {name: value.astype(np.float64) for name, value in weights.items()}
    truth = loss_and_gradients(graph, exact, photos.astype(np.float64), labels, TRAINING)
    network = UnfusedNetwork(graph, weights, 3, algorithm)
    network.photos[...], network.labels[...] = photos, labels
    network.step()
    assert abs(network.loss() - truth.loss) < 1e-5
    assert set(network.gradients) == set(truth.gradients)
    for name, gradient in network.gradients.items():
        assert_close(gradient, truth.gradients[name], 1e-4)
    assert {kernel.algorithm for kernel in chosen if kernel.op == "conv2d"} == {algorithm}
