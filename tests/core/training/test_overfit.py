"""A network that cannot learn eight photos of noise by heart does not learn at all."""

import numpy as np

from core.data.augment import evaluation_rows
from core.device import Optimizer, PhotoBatch
from core.models import build, initial_weights
from core.ops.builder import with_loss
from core.plan import compile_plan
from core.training.step import take_step


def test_eight_photos_of_noise_are_learned_by_heart():
    rng = np.random.default_rng(0)
    photos = rng.integers(0, 256, (8, 48, 48, 3), dtype=np.uint8)
    labels = np.array([0, 1, 2, 3, 0, 1, 2, 3], np.int32)
    graph = build("squeezenet1_1_bn", 4, 48, dropout=0.0)
    plan = compile_plan(
        with_loss(graph, 0.0, ()), device="cpu", batch=8, training=True, threads=2, optimizer=Optimizer("adamw")
    )
    plan.load(initial_weights(graph, 0))
    batch = PhotoBatch(photos, evaluation_rows(8, 48, 48), labels)
    first = take_step(plan, batch, 1e-3)
    for _ in range(60):
        last = take_step(plan, batch, 1e-3)
        if last.loss < 0.05:
            break
    plan.close()
    assert first.loss > 1
    assert last.loss < 0.05
    assert last.correct == 8
