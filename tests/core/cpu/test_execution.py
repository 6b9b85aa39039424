"""Schedules: every task runs once, in the order of groups, on any number of threads; denormals are flushed in them."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from core.cpu import elementwise as ew
from core.cpu.atomics import X86
from core.cpu.execution import execute_schedule, share_out
from core.cpu.plan import CpuPlan
from core.cpu.records import Address, Record, Space, encode_records
from core.device import Optimizer, PhotoBatch
from core.models.architectures import build
from core.ops.builder import with_loss
from core.ops.photo import identity_augmentation
from tests.helpers.golden import weights_of

ONES, BUSY = np.ones(512, np.float32), np.zeros((1, 512), np.float32)


def _turn_and_add(x, y):
    """A record: rows of y are the rows of x in reverse order, plus one."""
    at = {name: Address(Space.SHARED, a.ctypes.data) for name, a in (("x", x[-1:]), ("y", y), ("ones", ONES))}
    fields = {ew.WIDTH: 1, ew.HEIGHT: len(x), ew.CHANNELS: x.shape[1], ew.OUT: at["y"], ew.A: at["x"], ew.B: at["ones"],
              ew.OUT_ROW: y.strides[0], ew.A_ROW: -x.strides[0]}  # fmt: skip
    return Record(ew.run_add, fields, len(x), "layer", "forward", "fused")


def _there_and_back(rows, width):
    """x and 40 groups of two records that go to y and back; the first record of each keeps one thread busy alone."""
    x, y = np.zeros((2, rows, width), np.float32)
    alone = _turn_and_add(BUSY, BUSY)
    return x, [alone, _turn_and_add(x, y), alone, _turn_and_add(y, x)] * 20


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("tasks", [(1,), (5, 0, 17), (64, 3)])
def test_every_task_of_a_group_belongs_to_one_piece(threads, tasks):
    records = [Record(ew.run_add, {}, count, "layer", "forward", "fused") for count in tasks]
    schedule = share_out(records, [0, 1, len(records)], threads)
    seen = [[] for _ in tasks]
    for index, low, high in schedule.calls:
        seen[index] += range(low, high)
    assert [sorted(s) for s in seen] == [list(range(count)) for count in tasks]
    groups = [schedule.calls[a:b, 0] for a, b in schedule.shares[:, [0, -1]]]
    assert all((group == 0).all() if g == 0 else (group > 0).all() for g, group in enumerate(groups))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_group_begins_when_the_one_before_is_done(threads):
    x, records = _there_and_back(64, 512)
    rows, schedule = encode_records(records, (0, 0), (0, 0)), share_out(records, range(0, 81, 2), threads)
    for turn in range(1, 50):
        execute_schedule(rows, schedule, 0)
        assert (x == 40 * turn).all()
    execute_schedule(rows, schedule, 0, 4, 6)
    assert (x == 40 * turn + 2).all()


def test_schedules_that_run_at_the_same_time_finish():
    def work(x, records):
        rows, schedule = encode_records(records, (0, 0), (0, 0)), share_out(records, range(0, 81, 2), 2)
        for _ in range(50):
            execute_schedule(rows, schedule, 0)

    jobs = [_there_and_back(11, 5) for _ in range(4)]
    threads = [threading.Thread(target=work, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert all((x == 2000).all() for x, _ in jobs)


@pytest.mark.parametrize("threads", [2, 3])
def test_a_thread_has_the_same_part_of_records_that_follow_each_other(threads):
    records = [Record(ew.run_add, {}, 60 * threads + 1, "layer", "forward", "fused") for _ in range(4)]
    schedule = share_out(records, [0, 2, 3, 4], threads)
    for shares in schedule.shares:
        for t in range(threads):
            for _, low, high in schedule.calls[shares[t] : shares[t + 1]]:
                assert 60 * t <= low < high <= 60 * (t + 1) + 1
    counts = [(schedule.calls[a:b, 2] - schedule.calls[a:b, 1]).sum() for a, b in schedule.shares[0, [[0, 1], [1, 2]]]]
    assert counts == [121, 121] or threads > 2  # 60 + 61 and 61 + 60


TINY = np.float32(1e-40)
"""Denormal: the smallest normal float32 is 1.2e-38."""


@pytest.mark.skipif(not X86, reason="only x86 processors have MXCSR; elsewhere denormals are kept")
def test_denormals_are_flushed_in_kernels_and_kept_outside():
    graph = with_loss(build("cnn", 3, 20), 0.0, ())
    plan = CpuPlan(graph, batch=2, training=True, optimizer=Optimizer("adam"), threads=2)
    plan.load(weights_of(graph))
    first = {name: np.full_like(array, TINY) for name, array in plan.state().items() if name != "step"}
    plan.load_state({**first, "step": np.array(3)})
    photos, augmentation = np.zeros((2, 20, 20, 3), np.uint8), identity_augmentation(2, 20, 20)
    batch = PhotoBatch(photos, augmentation, np.full(2, -1, np.int32))
    plan.train_step(batch, 1e-3)  # photos without labels have no gradient: moments only shrink
    start, shape = plan.layout.offsets["conv1.weight"]
    for name in first:
        assert not plan.state()[name][start : start + np.prod(shape)].any(), name
    small = np.full(4, 1e-30, np.float32)
    assert (small * np.float32(1e-10) > 0).all()


TEAM = """
import os
import numpy as np
from numba import config
from core.cpu.plan import CpuPlan
from core.models.architectures import build
before = len(os.listdir("/proc/self/task"))
plan = CpuPlan(build("mlp", 3, 20), batch=4, training=False, threads=2)
plan.load({name: np.zeros(p.shape, np.float32) for name, p in plan.program.graph.parameters().items()})
print(config.NUMBA_NUM_THREADS, len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="Linux alone lists the threads of a process")
def test_a_plan_wakes_no_more_threads_than_its_own():
    environment = {**os.environ, "NUMBA_NUM_THREADS": "7"}
    done = subprocess.run([sys.executable, "-c", TEAM], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["7", "1"]
