"""MobileNetV2 on a GPU: its fused passes give the same bits every time, and learn as float32 does."""

import numpy as np
import pytest

from core.device import Optimizer
from core.models.architectures import build
from core.ops.builder import with_loss
from tests.helpers.gpu_network import batch_for, random_weights

pytestmark = pytest.mark.gpu


def train(precision, steps=3):
    from core.gpu.plan import CudaPlan

    graph = with_loss(build("mobilenetv2", 5, 64, dropout=0.0), 0.0, ())
    plan = CudaPlan(graph, batch=12, training=True, precision=precision, optimizer=Optimizer("sgd"), seed=3)
    plan.load(random_weights(graph))
    batch = batch_for(graph, 12)
    losses = [plan.train_step(batch, 0.01).loss for _ in range(steps)]
    weights = plan.weights()
    plan.close()
    return losses, weights


@pytest.mark.parametrize("precision", ["mixed", "float32"])
def test_the_same_seed_gives_the_same_bits(precision):
    one, two = train(precision), train(precision)
    assert one[0] == two[0]
    assert one[0][0] != one[0][-1]
    assert all(np.array_equal(one[1][name], two[1][name]) for name in one[1])


def test_the_first_loss_of_mixed_is_that_of_float32():
    assert train("mixed", 1)[0] == pytest.approx(train("float32", 1)[0], rel=2e-2)
