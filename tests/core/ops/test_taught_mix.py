"""A gradient with targets is the mix of those with labels, in bf16 too; the bounds that the GPU's test uses tell."""

import numpy as np
import pytest

from core.models import build
from core.ops.builder import with_loss
from core.ops.contract import Mode
from core.ops.photo import transform
from tests.helpers.gpu_network import random_weights
from tests.helpers.rounded import rounded_gradient
from tests.helpers.taught import CLASSES, FAR, NEAR, SIDE, WEIGHTS, distances_from_mix


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "weights"), [("cnn", ()), ("squeezenet1_1", WEIGHTS)])
def test_in_mixed_precisions_rounding_targets_mix_and_wrong_ones_are_seen(name, weights, monkeypatch):
    network = build(name, CLASSES, SIDE)
    exact = {key: array.astype(np.float64) for key, array in random_weights(network).items()}

    def way(taught):
        graph = with_loss(network, 0.0, weights, taught)
        mean, std = (graph.nodes[0].attributes[key] for key in ("mean", "std"))

        def gradient(batch):
            x = transform(batch.photos, batch.augmentation, (SIDE, SIDE), mean, std)
            got = rounded_gradient(graph, exact, x, batch.labels, Mode(True, 3, 0), batch.targets, monkeypatch)
            return got.loss, got.gradients

        return gradient

    right, wrong = distances_from_mix(way(False), way(True), weights)
    assert right < NEAR
    assert wrong > FAR
