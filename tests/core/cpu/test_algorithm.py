"""A plan asked for an algorithm by name computes whole networks by it, or refuses naming the step."""

import numpy as np
import pytest

from core.cpu.kernel_entries import ALGORITHMS, PRODUCTS
from core.cpu.plan import CpuPlan
from core.device import PhotoBatch
from core.errors import KernelUnavailable
from core.models import build
from core.ops.builder import with_loss
from core.ops.photo import identity_augmentation
from core.program import fold_batch_norm, fold_weights
from tests.helpers.compare import assert_close
from tests.helpers.golden import photos_of, weights_of

NETWORKS = {"squeezenet1_0": 48, "squeezenet1_1": 48, "squeezenet1_0_bn": 48, "squeezenet1_1_bn": 48, "mobilenetv2": 32,
            "mobilenetv3_small": 32, "cnn": 20, "mlp": 20}  # fmt: skip
"""Network to its photos' size."""
DEPTHWISE = [name for name in NETWORKS if name.startswith("mobilenet")]
ASKED = [(name, algorithm) for algorithm in ("naive", "im2col") for name in NETWORKS]


def batch_of(size, count=2):
    labels = np.array([0, 3], np.int32)[:count]
    return PhotoBatch(photos_of(2, size)[:count], identity_augmentation(count, size, size), labels)


@pytest.mark.parametrize(("name", "algorithm"), ASKED)
def test_gradients_and_logits_of_a_network_agree_with_the_fast_kernels(name, algorithm):
    size = NETWORKS[name]
    graph = build(name, 5, size, dropout=0.0)
    weights, results, logits = weights_of(graph), {}, []
    for wanted in (algorithm, "auto"):
        plan = CpuPlan(with_loss(graph, 0.1, ()), batch=2, training=True, algorithm=wanted, threads=2)
        plan.load(weights)
        results[wanted] = plan.gradient(batch_of(size)), plan.gradients()
        below = {"naive"} if name in DEPTHWISE else set()  # a depthwise convolution has no im2col
        chosen = {step.node for step in plan.program.steps if step.op in PRODUCTS}  # steps that have a choice
        used = {kernel for layer, _, kernel in plan.kernels() if layer in chosen} - {"border", "fused"}
        assert (used == {algorithm} | below) == (wanted == algorithm)
        plan = CpuPlan(fold_batch_norm(graph), batch=1, training=False, algorithm=wanted, threads=2)
        plan.load(fold_weights(graph, weights))
        logits.append(plan.predict(batch_of(size, 1))["logits"])
    assert_close(logits[0], logits[1], 1e-4)
    (ours, gradients), (fast, wanted_gradients) = results[algorithm], results["auto"]
    assert abs(ours.loss - fast.loss) < 1e-4 * fast.loss
    floor = 1e-3 * max(float(np.abs(g).max()) for g in wanted_gradients.values())
    for key, wanted_gradient in wanted_gradients.items():
        error = np.abs(gradients[key] - wanted_gradient).max() / max(np.abs(wanted_gradient).max(), floor)
        assert error < 1e-2, (key, error)


@pytest.mark.parametrize("algorithm", ["shared", "tensor_core", "winograd", "fused", "reference"])
def test_a_name_that_the_cpu_does_not_have_is_refused_with_those_it_has(algorithm):
    with pytest.raises(KernelUnavailable, match=f"no algorithm '{algorithm}'.*{', '.join(ALGORITHMS)}"):
        CpuPlan(build("mlp", 5, 20), batch=1, training=False, algorithm=algorithm)
