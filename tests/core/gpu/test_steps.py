"""Steps on a GPU: streamed or resident, whole or in parts, timed or not; and the memory they take."""

import numpy as np
import pytest

from core.device import Optimizer, PhotoBatch
from core.models.architectures import build
from core.ops.builder import with_loss
from core.training.step import take_step
from tests.core.gpu.test_plan import reference
from tests.helpers.gpu_network import batch_for, make_plan, random_weights, relative

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("size", [6, 4])
def test_streamed_steps_have_the_bits_of_resident_ones(size):
    """Announced, unannounced, wrongly announced, in parts, and of growing photos."""
    _, graph, resident = make_plan("squeezenet1_1_bn", "mixed", batch=size)
    *_, streamed = make_plan("squeezenet1_1_bn", "mixed", batch=size)
    weights = random_weights(graph)
    small, large = (batch_for(graph, 24, seed=side, side=side) for side in (70, 90))
    losses = {}
    for plan in (resident, streamed):
        plan.load(weights)
        found = []
        for source in (small, large):
            assert plan.keep_photos(source.photos, stream=plan is streamed) == (plan is resident)
            rows = [np.arange(i, i + 6) for i in (0, 6, 12, 18, 3)]
            steps = [
                PhotoBatch(None, source.augmentation[r], source.labels[r], r) if plan is resident
                else PhotoBatch(source.photos[r], source.augmentation[r], source.labels[r]) for r in rows
            ]  # fmt: skip
            nexts = [steps[1], steps[2], None, steps[0], None]
            found += [take_step(plan, step, 0.01, after) for step, after in zip(steps, nexts, strict=True)]
        losses[plan] = found
    ends = [plan.weights() for plan in (resident, streamed)]
    for plan in (resident, streamed):
        plan.close()
    assert losses[resident] == losses[streamed]
    assert all(np.array_equal(ends[0][name], ends[1][name]) for name in weights)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_step_in_uneven_parts_is_the_step_of_the_whole_batch(weighted):
    from core.gpu.plan import CudaPlan

    weights = (0.2, 3.0, 1.0, 0.5, 2.0) if weighted else ()
    graph = with_loss(build("squeezenet1_1", 5, 64, dropout=0.4), 0.1, weights)
    given, batch, rate = random_weights(graph), batch_for(graph, 7), 0.01
    batch.labels[2] = -1
    found = []
    for size in (7, 3):
        plan = CudaPlan(graph, batch=size, training=True, optimizer=Optimizer("sgd"), seed=3)
        plan.load(given)
        found.append((take_step(plan, batch, rate), plan.weights()))
        plan.close()
    (one, whole), (three, parts) = found
    wanted = reference(graph, given, batch)
    assert one.loss == pytest.approx(wanted.loss, rel=1e-4)
    assert three.loss == pytest.approx(one.loss, rel=1e-5)
    assert three.gradient_norm == pytest.approx(one.gradient_norm, rel=1e-4)
    moved = [np.concatenate([(w[n] - given[n]).ravel() for n in given]) for w in (parts, whole)]
    assert relative(*moved) < 1e-3


def test_timing_the_kernels_changes_nothing():
    _, graph, plan = make_plan("squeezenet1_1_bn", "mixed")
    plan.load(random_weights(graph))
    batch = batch_for(graph, 6)
    plan.train_step(batch, 0.01)
    weights, state = plan.weights(), plan.state()
    times = plan.time_kernels(batch)
    after, later = plan.weights(), plan.state()
    plan.close()
    assert all(t.milliseconds > 0 for t in times)
    assert all(np.array_equal(weights[name], after[name]) for name in weights)
    assert all(np.array_equal(state[name], later[name]) for name in state)


def test_a_run_takes_the_memory_its_plan_said():
    """Graphs captured, photos on the device; the driver's own figure, to 5 % and what a CUDA context keeps."""
    from core.gpu.driver.device import open_device

    before = open_device().memory()[0]
    _, graph, plan = make_plan("squeezenet1_1", "mixed", batch=4096)
    plan.load(random_weights(graph))
    batch = batch_for(graph, 4096)
    assert plan.keep_photos(batch.photos)
    for _ in range(3):
        plan.train_step(PhotoBatch(None, batch.augmentation, batch.labels, np.arange(4096)), 1e-3)
    taken, said = before - open_device().memory()[0], plan.memory.total
    plan.close()
    assert said > 1 << 30
    assert said <= taken <= 1.05 * said
