"""A pool and what feeds it by turns: every row once, before it is needed, and the same bits as layer by layer."""

import numpy as np
import pytest

from core.cpu import pool_fusion, pooling, tiled
from core.cpu.plan import CpuPlan
from core.device import PhotoBatch
from core.models.architectures import build
from core.ops.builder import with_loss
from core.ops.photo import identity_augmentation
from tests.helpers.golden import weights_of

SIZE = 50


def _batch():
    rng = np.random.default_rng(0)
    photos = rng.integers(0, 256, (3, SIZE, SIZE, 3), dtype=np.uint8)
    return PhotoBatch(photos, identity_augmentation(3, (SIZE, SIZE), (SIZE, SIZE)), np.array([0, 2, 1], np.int32))


def _plan(name, training, size, monkeypatch):
    monkeypatch.setattr(pool_fusion, "BLOCK_BYTES", size)
    graph = build(name, 3, SIZE)
    plan = CpuPlan(with_loss(graph, 0.1, ()) if training else graph, batch=3, training=training, threads=2)
    plan.load(weights_of(graph))
    return plan


@pytest.mark.parametrize("name", ["squeezenet1_0", "squeezenet1_1", "squeezenet1_1_bn", "cnn"])
def test_strips_of_any_height_give_the_same_bits(name, monkeypatch):
    whole, rows = _plan(name, True, 1 << 30, monkeypatch), _plan(name, True, 1, monkeypatch)
    assert len(rows._calls) > len(whole._calls)
    assert whole.gradient(_batch()) == rows.gradient(_batch())
    for key, gradient in whole.gradients().items():
        assert np.array_equal(gradient, rows.gradients()[key]), key
    predicted = [_plan(name, False, size, monkeypatch).predict(_batch())["logits"] for size in (1 << 30, 1, 5000)]
    assert np.array_equal(predicted[0], predicted[1])
    assert np.array_equal(predicted[0], predicted[2])


def _rows_done(record, done, height):
    """(planes, rows) of a record's tasks."""
    return done.reshape(height, -1).T if record.fields.get(tiled.BY_ROW) else done.reshape(-1, height)


@pytest.mark.parametrize("size", [1, 4000, 1 << 30])
def test_every_row_is_computed_once_and_before_the_pool_reads_it(size, monkeypatch):
    plan = _plan("squeezenet1_0", False, size, monkeypatch)
    assert plan._record_list.fused_pools
    for fused in plan._record_list.fused_pools:
        pool = plan.records[fused.pool]
        feeders = fused.first, fused.pool
        height, stride, kernel = (pool.fields[f] for f in (pooling.HEIGHT, pooling.STRIDE_Y, pooling.KERNEL_Y))
        done = {i: np.zeros(plan.records[i].tasks, int) for i in range(fused.first, fused.pool + 1)}
        for index, low, high in pool_fusion.interleave_rows(plan.records, fused):
            if index == fused.pool:
                needed = min((high - 1) * stride + kernel, height)
                ready = [_rows_done(plan.records[i], done[i], height)[:, :needed].all() for i in range(*feeders)]
                assert all(ready)
            done[index][low:high] += 1
        assert all((count == 1).all() for count in done.values())


def test_every_max_pool_behind_convolutions_has_a_strip_and_an_average_has_none(monkeypatch):
    plan = _plan("squeezenet1_0", False, 1, monkeypatch)
    pools = {plan.records[fused.pool].layer for fused in plan._record_list.fused_pools}
    assert pools == {s.node for s in plan.program.steps if s.op == "max_pool"}
