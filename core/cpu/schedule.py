"""Which thread does which tasks of a group of records: shares by number, in pieces that idle threads take over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, final

import numpy as np

from core.cpu.execution import LINE_BYTES, group_runner, sequence_runner
from core.cpu.records import Record, RecordTable, Words

HALVINGS: Final = 3
"""A thread's share of a record is cut into 1/2, 1/4, 1/8 and 1/8: the last pieces are small, so that threads end
together, and the counter is read four times a record only."""


Call: TypeAlias = tuple[int, int, int]
"""(record, first task, last task)."""


@final
@dataclass(frozen=True, slots=True)
class Schedule:
    """Pieces as calls (record, first task, last task); shares (groups, threads + 1): each thread's first piece.

    `counters` (groups, threads + 1, a cache line): pieces taken of each share, and pieces done.
    """

    calls: Words
    shares: Words
    counters: Words


def execute_schedule(
    rows: RecordTable, schedule: Schedule, context: int, first: int = 0, last: int = -1, photo: int = 0
) -> None:
    """Run the groups `first` to `last` (all without numbers) of a schedule of these rows on its threads."""
    groups, threads = len(schedule.shares), schedule.shares.shape[1] - 1
    s, last = schedule, groups if last < 0 else last
    if threads == 1:
        sequence_runner()(rows.table, s.calls, s.shares[first, 0], s.shares[last - 1, 1], context, photo)
        return
    group_runner()(rows.table, s.calls, s.shares, s.counters, first, last, threads, context, photo)


def share_out(records: Sequence[Record], bounds: Sequence[int], threads: int) -> Schedule:
    """Groups are records ``[bounds[g], bounds[g + 1])``; thread t has tasks ``[T t / N, T (t + 1) / N)`` of each.

    So a thread mostly reads what it wrote itself, in its own caches: where the next layer's halves were swapped, two
    threads took 3.0 instead of 2.5 ms for a photo (MobileNetV2, Xeon). Every second record's shares are rounded up
    instead of down, so that what does not divide evenly evens out in a group.
    """
    calls: list[Call] = []
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
    return Schedule(as_calls(calls), shares, counters)


def as_calls(calls: Sequence[Call]) -> Words:
    """Calls as the walkers read them."""
    return np.array(calls, np.int64).reshape(-1, 3)


def _halve(low: int, high: int) -> Iterator[tuple[int, int]]:
    for _ in range(HALVINGS):
        middle = low + (high - low + 1) // 2
        if low < middle < high:
            yield low, middle
            low = middle
    if low < high:
        yield low, high
