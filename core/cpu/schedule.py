"""Static schedule of the tasks of record groups over threads, in chunks that idle threads steal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from core.cpu.execution import LINE_BYTES, group_runner, sequence_runner
from core.cpu.records import Record, RecordTable, Words

HALVINGS: Final = 3
"""A share of a record is split into chunks of 1/2, 1/4, 1/8 and 1/8. The last chunks are small, so that
threads finish together, and the counter is read only four times a record."""


@final
@dataclass(frozen=True, slots=True)
class Schedule:
    """Chunks of tasks and the threads that own them.

    calls: one row (record, first task, last task) a chunk. shares (groups, threads + 1): each thread's first chunk.
    counters (groups, threads + 1, a cache line): chunks taken of each share, and chunks done.
    """

    calls: Words
    shares: Words
    counters: Words


def execute_schedule(
    rows: RecordTable, schedule: Schedule, context: int, first: int = 0, last: int = -1, image: int = 0
) -> None:
    """Run groups `first` to `last` of a schedule of these records on its threads; by default all groups."""
    groups, threads = len(schedule.shares), schedule.shares.shape[1] - 1
    s, last = schedule, groups if last < 0 else last
    if threads == 1:
        sequence_runner()(rows.table, s.calls, s.shares[first, 0], s.shares[last - 1, 1], context, image)
        return
    group_runner()(rows.table, s.calls, s.shares, s.counters, first, last, threads, context, image)


def share_out(records: Sequence[Record], bounds: Sequence[int], threads: int) -> Schedule:
    """Assign the tasks of each group to threads.

    Groups are records ``[bounds[g], bounds[g + 1])``; thread t has tasks ``[T t / N, T (t + 1) / N)`` of each. A thread
    therefore mostly reads from its own caches what it wrote itself. Every second record's shares are rounded up
    instead of down, so that remainders even out within a group.
    """
    calls: list[tuple[int, int, int]] = []
    shares = np.zeros((len(bounds) - 1, threads + 1), np.int64)
    for g, (first, last) in enumerate(zip(bounds, bounds[1:], strict=False)):
        for t in range(threads):
            shares[g, t] = len(calls)
            for i in range(first, last):
                tasks, up = records[i].tasks, (threads - 1) * ((i - first) % 2)
                halves = _halve((tasks * t + up) // threads, (tasks * (t + 1) + up) // threads)
                calls += [(i, low, high) for low, high in halves]
        shares[g, threads] = len(calls)
    counters = np.zeros((len(shares), threads + 1, LINE_BYTES // 8), np.int64)
    return Schedule(np.array(calls, np.int64).reshape(-1, 3), shares, counters)


def _halve(low: int, high: int) -> Iterator[tuple[int, int]]:
    for _ in range(HALVINGS):
        middle = low + (high - low + 1) // 2
        if low < middle < high:
            yield low, middle
            low = middle
    if low < high:
        yield low, high
