"""The all-reduces of a step on several GPUs, on a pretended driver."""

from dataclasses import replace

import numpy as np
import pytest

from core.communicator import SingleProcess
from core.device import Optimizer
from core.errors import KernelUnavailable
from core.gpu.graph_capture import RANK_SUMS
from core.gpu.plan import CudaPlan
from core.models.architectures import build
from core.ops.builder import with_loss
from tests.helpers.gpu_network import batch_for


class TwoRanks(SingleProcess):
    """Notes what it is asked to average, and how many launches were queued before."""

    def __init__(self, driver):
        super().__init__(size=2)
        self.driver, self.calls = driver, []

    def average_gradients(self, blocks, stream=None):
        self.calls.append((self.driver.launches, list(blocks)))


@pytest.mark.usefixtures("driver")
def test_synchronized_batch_norm_excludes_an_algorithm_by_name():
    graph = with_loss(build("squeezenet1_1_bn", 5, 64), 0.0, ())
    with pytest.raises(KernelUnavailable, match="Synchronized batch norm excludes"):
        CudaPlan(graph, batch=2, training=True, sync_batch_norm=True, algorithm="naive")


@pytest.mark.parametrize("kind", ["step", "accumulate"])
def test_synchronized_sums_are_averaged_right_after_they_are_computed(driver, kind):
    graph = with_loss(build("squeezenet1_1_bn", 5, 64), 0.0, ())
    ranks = TwoRanks(driver)
    plan = CudaPlan(graph, batch=6, training=True, communicator=ranks, sync_batch_norm=True)
    before, batch = driver.launches, replace(batch_for(graph, 6), parts=1, step_labels=np.zeros(10, np.int32))
    plan.train_step(batch, 0.1) if kind == "step" else plan.gradient(batch, accumulate=True)
    launches, settings = plan._lists[kind], plan._settings
    sums = [number for number, launch in enumerate(launches) if launch.kernel == RANK_SUMS]
    assert len(sums) == 2 * sum(step.op == "batch_norm" for step in plan.program.steps)
    found = [(queued - before - 1, blocks[0][0]) for queued, blocks in ranks.calls[: len(sums)]]
    assert found == [(number, launches[number].values[1]) for number in sums]
    assert len(ranks.calls) == len(sums) + (kind == "step")
    assert (settings.rank_photos, settings.counted) == (5, 1)


@pytest.mark.parametrize("name", ["squeezenet1_0", "squeezenet1_1_bn", "mobilenetv2"])
def test_every_float_is_averaged_once_and_not_written_afterwards(driver, name):
    graph = with_loss(build(name, 5, 64), 0.0, ())
    ranks = TwoRanks(driver)
    plan = CudaPlan(graph, batch=6, training=True, optimizer=Optimizer("adamw"), communicator=ranks)
    before = driver.launches
    plan.train_step(batch_for(graph, 6), 0.1)
    gradient, scores = plan._blocks["gradient"].address, plan._blocks["totals"].address
    launches, trained = plan._lists["step"], plan.layout.trained
    assert driver.launches == before + len(launches)
    (count, early), (queued, [(start, first), result]) = ranks.calls
    assert (start, result) == (gradient, (scores, 2))
    assert [launch.kernel for launch in launches[queued - before - 1 :][:3]] == ["result", "norm", "result"]
    assert early == [(gradient + 4 * first, trained - first)]
    assert 0.8 * trained < trained - first < trained
    for launch in launches[count - before : queued - before]:  # what overlaps writes the rest of the gradient only
        assert not any(gradient + 4 * first <= value < gradient + 4 * trained for value in launch.values), launch
