"""Whole networks on the GPU by every algorithm: each step against its reference, and training as by the others."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from core.device import Optimizer
from core.gpu.select import LEVELS
from core.models.architectures import build
from core.ops.builder import with_loss
from core.program import fold_batch_norm, fold_weights
from tests.helpers.gpu_network import batch_for, random_weights, relative

pytestmark = pytest.mark.gpu

NETWORKS = {
    "squeezenet1_0": (64, 5), "squeezenet1_1": (64, 5), "squeezenet1_1_bn": (64, 5), "mobilenetv2": (64, 5),
    "cnn": (28, 10), "mlp": (28, 10),
}  # fmt: skip


def make(name, algorithm, training=True, batch=6, **more):
    from core.gpu.plan import CudaPlan

    side, classes = NETWORKS[name]
    base = build(name, classes, side, dropout=0.5)
    graph = with_loss(base, 0.1, ()) if training else fold_batch_norm(base)
    return base, CudaPlan(
        graph, batch=batch, training=training, algorithm=algorithm, optimizer=Optimizer("sgd"), seed=3, **more
    )


@pytest.mark.parametrize("algorithm", LEVELS)
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_every_step_agrees_with_its_reference(name, algorithm):
    base, plan = make(name, algorithm, verify=True)
    plan.load(random_weights(base))
    results = [plan.gradient(batch_for(base, 5)), plan.gradient(batch_for(base, 6), accumulate=True)]
    plan.close()
    assert all(np.isfinite(result.loss) for result in results)


@cache
def trained(name, algorithm):
    """Losses of three steps of five images, one in two parts, and how far the weights have moved."""
    base, plan = make(name, algorithm)
    weights, batches = random_weights(base), [batch_for(base, 5, seed=s) for s in range(3)]
    plan.load(weights)
    losses = [plan.train_step(batch, 0.01).loss for batch in batches]
    losses += [plan.gradient(batches[0], share=0.5).loss, plan.gradient(batches[1], True, 0.5).loss]
    plan.update(0.01)
    moved = np.concatenate([(array - weights[n]).ravel() for n, array in plan.weights().items()])
    plan.close()
    return losses, moved


@pytest.mark.parametrize("algorithm", LEVELS[:-1])
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_training_agrees_with_that_of_the_fastest_kernels(name, algorithm):
    (losses, moved), (wanted, there) = trained(name, algorithm), trained(name, "auto")
    assert losses == pytest.approx(wanted, rel=2e-3)
    assert relative(moved, there) < 2e-2


@pytest.mark.parametrize("algorithm", LEVELS[:-1])
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_predictions_agree_with_those_of_the_fastest_kernels(name, algorithm):
    logits = []
    for level in (algorithm, "auto"):
        base, plan = make(name, level, training=False)
        plan.load(fold_weights(base, random_weights(base)))
        logits.append(plan.predict(batch_for(base, 5))["logits"])
        plan.close()
    assert relative(*logits) < 1e-4
