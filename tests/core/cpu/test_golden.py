"""Whole networks on the CPU plan against what PyTorch computed."""

import pytest

from core.cpu.plan import CpuPlan
from core.program import fold_batch_norm, fold_weights
from tests.helpers import golden as pytorch
from tests.helpers.compare import assert_close


@pytest.mark.parametrize("name", pytorch.LOGITS)
def test_logits_of_1000_classes_agree_with_pytorch(name):
    golden = pytorch.golden_logits(name)
    plan = CpuPlan(fold_batch_norm(golden.graph), batch=2, training=False)
    plan.load(fold_weights(golden.graph, golden.weights))
    assert_close(plan.predict(golden.batch())["logits"], golden.logits, 1e-4)


@pytest.mark.parametrize("name", pytorch.TRAINING)
def test_loss_gradients_and_running_statistics_agree_with_pytorch(name):
    golden = pytorch.golden_training(name)
    plan = CpuPlan(golden.training_graph, batch=4, training=True)
    plan.load(golden.weights)
    result = plan.gradient(golden.batch())
    assert abs(result.loss - golden.loss) < 1e-4 * golden.loss
    golden.assert_gradients(plan.gradients())
    for key, wanted in golden.updated.items():
        pytorch.assert_matches(plan.weights()[key], wanted, 1e-4, name=key)
