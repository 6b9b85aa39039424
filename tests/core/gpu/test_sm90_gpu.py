"""Hopper's own kernels beside the common ones, whole networks on a GPU of compute capability 9.0; one image and two.

Both round to bf16 and both are held against float32: Hopper's may be no further from it than the common ones are, but
for chance. The networks are sensitive (noise of 1e-6 before every rounding moves the gradient of SqueezeNet 1.0's first
filters by 0.2, of 1.1's by 0.015), so chance is allowed a factor of two for a single parameter.
"""

from dataclasses import replace

import numpy as np
import pytest

from core.models.architectures import build
from core.program import fold_batch_norm
from tests.helpers.gpu_network import batch_for, gradients_and_logits, open_hopper, random_weights, relative

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def hopper():
    return open_hopper()


@pytest.mark.parametrize("name", ["squeezenet1_0", "squeezenet1_1"])
@pytest.mark.parametrize(("side", "count"), [(224, 33), (96, 220), (75, 3)])
def test_hoppers_kernels_compute_what_the_common_ones_do(name, side, count, hopper, monkeypatch):
    network = build(name, 5, side, dropout=0.0)
    weights, batch = random_weights(network), batch_for(network, count)
    ways = ((9, 0), "mixed"), ((9, 0), "mixed"), ((8, 0), "mixed"), ((8, 0), "float32")
    found = []
    for capability, precision in ways:
        monkeypatch.setattr(hopper, "hardware", replace(hopper.hardware, capability=capability))
        found.append(gradients_and_logits(network, batch, weights, precision))
    first, again, common, exact = found
    assert first[0] == again[0]
    assert all(np.array_equal(first[1][n], again[1][n]) for n in first[1])
    assert first[0] == pytest.approx(exact[0], rel=2e-2)
    assert relative(first[2], exact[2]) < 2 * relative(common[2], exact[2]) + 1e-3
    own, others = (np.array([relative(way[1][n], exact[1][n]) for n in exact[1]]) for way in (first, common))
    assert np.median(own) < 1.25 * np.median(others)
    assert (own < 2 * others + 1e-2).all()


NETWORKS = ["squeezenet1_0", "squeezenet1_1", "mobilenetv2"]


def plan_of(name, side, count, precision="mixed"):
    from core.gpu.plan import CudaPlan

    graph = fold_batch_norm(build(name, 37, side, dropout=0.0))
    plan = CudaPlan(graph, batch=count, training=False, precision=precision)
    plan.load(random_weights(graph))
    return plan, graph


def logits(name, side, count, precision="mixed"):
    plan, graph = plan_of(name, side, count, precision)
    return plan.predict(batch_for(graph, count, side=230))["logits"]


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
        batch = batch_for(graph, 1, seed, side=230)
        wanted = late.predict(batch)["logits"]
        for _ in range(25):
            assert np.array_equal(early.predict(batch)["logits"], wanted)


def test_values_that_are_asked_for_are_written_and_change_nothing():
    """What is kept is not left out by a kernel that does two steps."""
    from core.gpu.plan import CudaPlan

    graph = fold_batch_norm(build("mobilenetv2", 37, 224, dropout=0.0))
    outputs = [node.name for node in graph.nodes if node.op == "add"]
    plan = CudaPlan(graph, batch=1, training=False, precision="mixed", outputs=outputs)
    plan.load(random_weights(graph))
    batch = batch_for(graph, 1, side=230)
    found = plan.predict(batch)
    assert set(found) == {"logits", *outputs}
    assert all(np.isfinite(found[name]).all() for name in outputs)
    assert relative(logits("mobilenetv2", 224, 1), found["logits"]) < 5e-2
