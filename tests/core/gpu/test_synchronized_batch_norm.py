"""Batch norm synchronized over ranks: launches of several emulated GPUs in turn, and NCCL's mean between them."""

import numpy as np
import pytest

from core.gpu.control import offset
from core.gpu.ops.norm.batch_norm import RANK_SUMS
from core.ops.builder import Builder, with_loss
from core.ops.contract import Call, Mode
from core.ops.op_table import OPS
from tests.helpers.compare import relative_error
from tests.helpers.emulated_network import PHOTOS, REAL, Lowered, exact

CHANNELS, COUNTED = 12, (1, 1, 0)
"""The last of three ranks computes photos that do not count."""


def run(ranks, direction):
    for launches in zip(*(rank.frame.launches for rank in ranks), strict=True):
        if launches[0].layer != "norm" or not launches[0].direction.startswith(direction):
            continue
        for rank, launch in zip(ranks, launches, strict=True):
            rank.machine.run(launch)
        if launches[0].kernel == "rank_sums":
            values = dict(zip(RANK_SUMS.parameters, launches[0].values, strict=True))
            sums = [rank.memory.get(values["sums"], 2 * values["row"], np.float32) for rank in ranks]
            for rank in ranks:
                rank.memory.put(values["sums"], np.mean(sums, axis=0, dtype=np.float32))


@pytest.mark.parametrize("precision", ["float32", "mixed"])
def test_ranks_compute_the_batch_norm_of_all_their_photos(precision):
    b = Builder("small", (4, 5, 3), (0.5,) * 3, (0.5,) * 3)
    x = b.add("batch_norm", "norm", b.add("conv2d", "stem", "photo", filters=CHANNELS, bias=False))
    graph = with_loss(b.graph(b.add("dense", "classes", b.add("global_avg_pool", "pool", x), units=4)), 0.0, ())
    ranks = [Lowered(graph, precision, stores_all=True, ranks=3) for _ in COUNTED]
    draw, step, element = np.random.default_rng(3), ranks[0].steps["norm"], ranks[0].frame.element
    x, dy = (exact(draw.normal(mean, 2, (3, PHOTOS, *step.output.shape)), element) for mean in (0.5, 0))
    dy[2] = 0
    weights = {name: draw.uniform(0.5, 1.5, p.shape).astype(np.float32) for name, p in graph.parameters().items()}
    for rank, counted, own_x, own_dy in zip(ranks, COUNTED, x, dy, strict=True):
        control = rank.frame.block("control")
        rank.memory.put(control + offset("rank_photos"), np.array([REAL * 2 / 3, counted], np.float32))
        rank.put_weights(weights)
        rank.put(step.inputs[0], own_x)
        rank.put(step.output, own_dy, gradient=True)
    run(ranks, "forward")
    run(ranks, "backward")

    whole, gradient = (np.concatenate(array[:2, :REAL]).astype(np.float64) for array in (x, dy))
    owned = {p.role: weights[f"norm.{p.role}"].astype(np.float64) for p in step.parameters}
    result = OPS["batch_norm"].forward(call := Call(step.attributes, [whole], owned, Mode(training=True)))
    back = OPS["batch_norm"].backward(call, result, gradient)
    limit = 1e-5 if element == 4 else 1e-2
    found = [np.concatenate([rank.get(*which) for rank in ranks[:2]])
             for which in ((step.output,), (step.inputs[0], True))]  # fmt: skip
    assert relative_error(found[0], result.output) < limit
    assert relative_error(found[1], back.inputs[0]) < limit
    assert not ranks[2].get(step.inputs[0], True).any()
    for rank in ranks:
        for role, wanted in result.updated.items():
            assert relative_error(rank.running(f"norm.{role}"), wanted) < 1e-5
    for role, wanted in back.parameters.items():
        mean = np.mean([rank.gradient(f"norm.{role}") for rank in ranks], axis=0)
        assert relative_error(3 * mean, wanted) < limit
