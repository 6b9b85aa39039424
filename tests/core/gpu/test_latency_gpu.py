"""One image and two on a GPU of compute capability 9.0: small-batch kernels, and programmatic dependent launches."""

from dataclasses import replace

import numpy as np
import pytest

from core.models.architectures import build
from core.program import fold_batch_norm
from tests.helpers.gpu_network import batch_for, open_hopper, random_weights, relative

pytestmark = pytest.mark.gpu

NETWORKS = ["squeezenet1_0", "squeezenet1_1", "mobilenetv2"]


@pytest.fixture(autouse=True)
def hopper():
    open_hopper()


def photos_of(graph, count, seed=1):
    batch = batch_for(graph, 2, seed, side=230)
    images = {name: getattr(batch, name)[:count] for name in ("photos", "augmentation", "labels")}
    return replace(batch, **images)


def plan_of(name, side, count, precision="mixed"):
    from core.gpu.plan import CudaPlan

    graph = fold_batch_norm(build(name, 37, side, dropout=0.0))
    plan = CudaPlan(graph, batch=count, training=False, precision=precision)
    plan.load(random_weights(graph))
    return plan, graph


def logits(name, side, count, precision="mixed"):
    plan, graph = plan_of(name, side, count, precision)
    found = plan.predict(photos_of(graph, count))["logits"]
    plan.close()
    return found


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(("side", "count"), [(224, 1), (224, 2), (96, 1), (75, 2)])
def test_one_and_two_images_are_no_further_from_float32_than_by_the_common_kernels(name, side, count, monkeypatch):
    ours, exact = logits(name, side, count), logits(name, side, count, "float32")
    monkeypatch.setattr("core.gpu.latency.candidates.MAX_IMAGES", 0)
    monkeypatch.setattr("core.gpu.lowering.PDL_IMAGES", 0)
    assert relative(ours, exact) < 2 * relative(logits(name, side, count), exact) + 1e-3


@pytest.mark.parametrize("name", NETWORKS)
def test_dependent_launches_give_the_bits_of_ordinary_ones(name, monkeypatch):
    from core.gpu import lowering

    early, graph = plan_of(name, 224, 1)
    assert any(launch.dependent for launch in early._lists["predict"])
    monkeypatch.setattr(lowering, "PDL_IMAGES", 0)
    late, _ = plan_of(name, 224, 1)
    assert not any(launch.dependent for launch in late._lists["predict"])
    for seed in range(8):
        batch = photos_of(graph, 1, seed)
        wanted = late.predict(batch)["logits"]
        for _ in range(25):
            assert np.array_equal(early.predict(batch)["logits"], wanted)
    early.close()
    late.close()


def test_values_that_are_asked_for_are_written_and_change_nothing():
    """What is kept is not left out by a kernel that does two steps."""
    from core.gpu.plan import CudaPlan

    graph = fold_batch_norm(build("mobilenetv2", 37, 224, dropout=0.0))
    outputs = [node.name for node in graph.nodes if node.op == "add"]
    plan = CudaPlan(graph, batch=1, training=False, precision="mixed", outputs=outputs)
    plan.load(random_weights(graph))
    batch = photos_of(graph, 1)
    found = plan.predict(batch)
    assert set(found) == {"logits", *outputs}
    assert all(np.isfinite(found[name]).all() for name in outputs)
    assert relative(logits("mobilenetv2", 224, 1), found["logits"]) < 5e-2
    plan.close()
