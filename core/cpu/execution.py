"""Compiled loops that execute records: image by image on every thread, or group by group on all threads.

Images are assigned to threads by index, never dynamically, because a thread sums the gradients of its images:
results depend on the thread count only. Tasks of a group may run on any thread, because each writes its own memory.
Uses GNU OpenMP, which forks and joins faster than TBB and workqueue. Without it everything runs on one thread.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numba
import numpy as np
from numba import int64, njit, prange, types

from core.cpu.atomics import (
    add_shared,
    flush_denormals,
    give_way,
    limit_team,
    pause,
    read_shared,
    restore_floats,
    set_team,
)
from core.cpu.instruction_set import cached
from core.cpu.memory import FIELDS, LINE, TASKS
from core.cpu.records import Record, RecordTable, Words, call

ROW_BYTES: Final = FIELDS * 8

AWAKE: Final = 2000
"""Pauses, about 30 us, before a waiting thread yields its core."""

SPIN: Final = "20000"
"""Iterations, about 50 us, that a thread spins between parallel regions before it sleeps.

OpenMP's default, milliseconds, would keep the photo loader and other programs from the core."""


@functools.cache
def has_openmp() -> bool:
    """Load Numba's OpenMP layer and return whether that worked."""
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN)
    try:
        importlib.import_module("numba.np.ufunc.omppool")
    except ImportError:
        return False
    numba.config.THREADING_LAYER = "omp"
    return True


def run_images(  # type: ignore[no-untyped-def]  # noqa: ANN201
    table, slot_shift, thread_shift, first, last, images, backwards, by_thread, threads, context  # noqa: ANN001
):  # fmt: skip
    """Run records `first` to `last` for every image; thread t has images ``[N t / T, N (t + 1) / T)``.

    `backwards` 1: a thread takes its images in reverse order. `by_thread` 1: an image uses the memory of its thread
    (slot t); 0: its own memory (slot n).
    """
    pool = limit_team(threads)
    for t in prange(threads):
        mode = flush_denormals()
        row = np.empty(FIELDS, np.int64)
        low, high = images * t // threads, images * (t + 1) // threads
        for i in range(low, high):
            n = low + high - 1 - i if backwards else i
            slot = t if by_thread else n
            for r in range(first, last):
                for f in range(FIELDS):
                    row[f] = table[r, f] + slot * slot_shift[r, f] + t * thread_shift[r, f]
                call(row[0], row.ctypes.data, context, n, 0, row[TASKS])
        restore_floats(mode)
    set_team(pool)


def run_groups(table, calls, shares, counters, first, last, threads, context, image):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Run groups `first` to `last` in order on all threads (`core.cpu.execution`).

    A thread runs its own share, then the rest of the others' shares, and waits until the group is done. It never
    waits for a thread that has not started, so that any number of threads can finish.
    """
    counters[first:last] = 0
    stride, base = counters.strides[0], counters.ctypes.data
    pool = limit_team(threads)
    for t in prange(threads):
        mode = flush_denormals()
        for g in range(first, last):
            own = base + g * stride
            done = 0
            for turn in range(threads):
                v = (t + turn) % threads
                p = shares[g, v] + add_shared(own + v * LINE, 1)
                while p < shares[g, v + 1]:
                    row = table.ctypes.data + calls[p, 0] * ROW_BYTES
                    call(table[calls[p, 0], 0], row, context, image, calls[p, 1], calls[p, 2])
                    done += 1
                    p = shares[g, v] + add_shared(own + v * LINE, 1)
            add_shared(own + threads * LINE, done)
            _wait_for(own + threads * LINE, shares[g, threads] - shares[g, 0])
        restore_floats(mode)
    set_team(pool)


def run_sequence(table, calls, first, last, context, image):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Run calls `first` to `last` in order on this thread.

    This is `run_groups` without OpenMP, which takes a second longer to compile.
    """
    mode = flush_denormals()
    for p in range(first, last):
        row = table.ctypes.data + calls[p, 0] * ROW_BYTES
        call(table[calls[p, 0], 0], row, context, image, calls[p, 1], calls[p, 2])
    restore_floats(mode)


@njit(inline="always")
def _wait_for(counter, total):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    turns = 0
    while read_shared(counter) < total:
        if turns < AWAKE:
            pause()
        else:
            give_way()
        turns += 1


_TABLE, _COUNTERS = types.Array(int64, 2, "C"), types.Array(int64, 3, "C")
_ARGUMENTS: Final = {
    run_images: (_TABLE, _TABLE, _TABLE, *[int64] * 7), run_groups: (_TABLE, _TABLE, _TABLE, _COUNTERS, *[int64] * 5),
    run_sequence: (_TABLE, _TABLE, *[int64] * 4),
}  # fmt: skip


@functools.cache
def runner(function: Callable[..., None]) -> Any:
    """Return a loop of this module compiled."""
    parallel = function is not run_sequence and has_openmp()
    signature = types.void(*_ARGUMENTS[function])
    return cached(numba.njit, signature, nogil=True, parallel=parallel, error_model="numpy")(function)


HALVINGS: Final = 3
"""A share of a record is split into chunks of 1/2, 1/4, 1/8 and 1/8. The last chunks are small, so that
threads finish together, and the counter is read only four times a record."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Chunks of tasks and the threads that own them.

    calls: one row (record, first task, last task) a chunk. shares (groups, threads + 1): each thread's first chunk.
    counters (groups, threads + 1, a cache line each): chunks taken of each share, and chunks done.
    """

    calls: Words
    shares: Words
    counters: Words


def execute_images(
    table: RecordTable, context: int, first: int, last: int, images: int, threads: int, backwards: bool = False,
    by_thread: bool = False,
) -> None:  # fmt: skip
    """Run records `first` to `last` for every image (`run_images`)."""
    runner(run_images)(
        table.words, table.slot_shift, table.thread_shift, first, last, images, int(backwards), int(by_thread), threads,
        context,
    )  # fmt: skip


def execute_schedule(
    table: RecordTable, schedule: Schedule, context: int, first: int = 0, last: int = -1, image: int = 0
) -> None:
    """Run groups `first` to `last` of a schedule of these records on its threads; by default all groups."""
    groups, threads = len(schedule.shares), schedule.shares.shape[1] - 1
    s, last = schedule, groups if last < 0 else last
    if threads == 1:
        runner(run_sequence)(table.words, s.calls, s.shares[first, 0], s.shares[last - 1, 1], context, image)
    else:
        runner(run_groups)(table.words, s.calls, s.shares, s.counters, first, last, threads, context, image)


def share_out(records: Sequence[Record], bounds: Sequence[int], threads: int) -> Schedule:
    """Assign the tasks of each group to threads.

    Groups are records ``[bounds[g], bounds[g + 1])``; thread t has tasks ``[T t / N, T (t + 1) / N)`` of each. A thread
    therefore mostly reads values that are in its own caches. Every second record's shares are rounded up
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
    counters = np.zeros((len(shares), threads + 1, LINE // 8), np.int64)
    return Schedule(np.array(calls, np.int64).reshape(-1, 3), shares, counters)


def _halve(low: int, high: int) -> Iterator[tuple[int, int]]:
    for _ in range(HALVINGS):
        middle = low + (high - low + 1) // 2
        if low < middle < high:
            yield low, middle
            low = middle
    if low < high:
        yield low, high
