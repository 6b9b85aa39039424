"""Hopper's own kernels beside the common ones, whole networks on a GPU of compute capability 9.0.

Both round to bf16 and both are held against float32: Hopper's may be no further from it than the common ones are, but
for chance. The networks are sensitive (noise of 1e-6 before every rounding moves the gradient of SqueezeNet 1.0's first
filters by 0.2, of 1.1's by 0.015), so chance is allowed a factor of two for a single parameter.
"""

from dataclasses import replace

import numpy as np
import pytest

from core.models.architectures import build
from tests.helpers.gpu_network import batch_for, gradients_and_logits, open_hopper, random_weights, relative

pytestmark = pytest.mark.gpu


def run(network, batch, weights, capability, precision, monkeypatch):
    """(loss, gradients, logits) with the kernels of a compute capability."""
    device = open_hopper()
    monkeypatch.setattr(device, "hardware", replace(device.hardware, capability=capability))
    return gradients_and_logits(network, batch, weights, precision)


@pytest.mark.parametrize("name", ["squeezenet1_0", "squeezenet1_1"])
@pytest.mark.parametrize(("side", "count"), [(224, 33), (96, 220), (75, 3)])
def test_hoppers_kernels_compute_what_the_common_ones_do(name, side, count, monkeypatch):
    network = build(name, 5, side, dropout=0.0)
    weights, batch = random_weights(network), batch_for(network, count)
    ways = ((9, 0), "mixed"), ((9, 0), "mixed"), ((8, 0), "mixed"), ((8, 0), "float32")
    first, again, common, exact = (run(network, batch, weights, *way, monkeypatch) for way in ways)
    assert first[0] == again[0]
    assert all(np.array_equal(first[1][n], again[1][n]) for n in first[1])
    assert first[0] == pytest.approx(exact[0], rel=2e-2)
    assert relative(first[2], exact[2]) < 2 * relative(common[2], exact[2]) + 1e-3
    hopper, others = (np.array([relative(way[1][n], exact[1][n]) for n in exact[1]]) for way in (first, common))
    assert np.median(hopper) < 1.25 * np.median(others)
    assert (hopper < 2 * others + 1e-2).all()
