"""Whole networks on the CPU plan against what PyTorch computed."""

import numpy as np
import pytest

from core.cpu.plan import CpuPlan
from core.program import fold_batch_norm, fold_weights
from tests.helpers.compare import assert_close
from tests.helpers.golden import (
    LOGITS,
    OPTIMIZERS,
    TEN_LOSSES,
    TRAINING,
    assert_matches,
    golden_logits,
    golden_training,
)


@pytest.mark.parametrize("name", LOGITS)
def test_logits_of_1000_classes_agree_with_pytorch(name):
    golden = golden_logits(name)
    plan = CpuPlan(fold_batch_norm(golden.graph), batch=2, training=False)
    plan.load(fold_weights(golden.graph, golden.weights))
    assert_close(plan.predict(golden.batch())["logits"], golden.logits, 1e-4)


@pytest.mark.parametrize("name", TRAINING)
def test_loss_gradients_and_running_statistics_agree_with_pytorch(name):
    golden = golden_training(name)
    plan = CpuPlan(golden.training_graph, batch=4, training=True)
    plan.load(golden.weights)
    result = plan.gradient(golden.batch())
    assert abs(result.loss - golden.loss) < 1e-4 * golden.loss
    golden.assert_gradients(plan.gradients())
    for key, wanted in golden.updated.items():
        assert_matches(plan.weights()[key], wanted, 1e-4, name=key)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", TEN_LOSSES)
def test_ten_losses_agree_with_pytorch(name, optimizer):
    golden = golden_training(name)
    settings, rate = OPTIMIZERS[optimizer]
    plan = CpuPlan(golden.training_graph, batch=4, training=True, optimizer=settings)
    plan.load(golden.weights)
    losses = [plan.train_step(golden.batch(), rate).loss for _ in range(10)]
    assert np.abs(np.array(losses) / golden.losses[optimizer] - 1).max() < 1e-4
