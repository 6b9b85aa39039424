"""Walks records: photo by photo on every thread, or group by group of steps with their tasks shared out.

Photos are dealt out by number, never by who is free, because a thread sums its photos' gradients: results
depend on the thread count only. Tasks of a group may go to whoever is free: each writes a place of its own.
GNU OpenMP is asked for: it forks and joins in 1.4 us (TBB 7, workqueue 31), and workqueue must not be
entered from two threads. Without it everything runs on one thread.
"""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any, Final

import numba
import numpy as np
from numba import int64, njit, prange, types

from core.cpu.atomics import add_shared, flush_denormals, give_way, pause, read_shared, restore_floats
from core.cpu.entry import call
from core.cpu.instruction_set import cached
from core.cpu.memory import FIELDS

ROW_BYTES: Final = FIELDS * 8

LINE_BYTES: Final = 64
"""Counters lie a cache line apart."""

AWAKE: Final = 2000
"""Pauses, about 30 us, after which a waiting thread offers its core to whoever else wants it."""

SPIN: Final = "20000"
"""Turns a thread waits awake for the next step, about 50 us, before it sleeps: longer keeps the photo
loader and other programs from the core (an unset count waits for milliseconds)."""


@functools.cache
def has_openmp() -> bool:
    """True where Numba's OpenMP layer can be loaded; it is then the one in use."""
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN)
    try:
        importlib.import_module("numba.np.ufunc.omppool")
    except ImportError:
        return False
    numba.config.THREADING_LAYER = "omp"
    return True


def run_images(  # type: ignore[no-untyped-def]  # noqa: ANN201
    table, slot_shift, thread_shift, calls, first, last, photos, backwards, by_thread, threads, context  # noqa: ANN001
):  # fmt: skip
    """Every photo walks calls `first` to `last`; thread t has photos ``[N t / T, N (t + 1) / T)``.

    `backwards` 1: a thread takes its photos last to first. `by_thread` 1: memory of its thread (slot t); 0: memory
    of its own (slot n).
    """
    for t in prange(threads):
        mode = flush_denormals()
        row = np.empty(FIELDS, np.int64)
        low, high = photos * t // threads, photos * (t + 1) // threads
        for i in range(low, high):
            n = low + high - 1 - i if backwards else i
            slot = t if by_thread else n
            for k in range(first, last):
                r = calls[k, 0]
                for f in range(FIELDS):
                    row[f] = table[r, f] + slot * slot_shift[r, f] + t * thread_shift[r, f]
                call(row[0], row.ctypes.data, context, n, calls[k, 1], calls[k, 2])
        restore_floats(mode)


def run_groups(table, calls, shares, counters, first, last, threads, context, photo):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Groups `first` to `last` one after the other; the pieces of a group are shared out (`core.cpu.schedule`).

    A thread does its own share, then what is left of the others', and waits until the group is done. It never
    waits for a thread that has not begun: any number of threads, one too, comes to the end.
    """
    counters[first:last] = 0
    stride, base = counters.strides[0], counters.ctypes.data
    for t in prange(threads):
        mode = flush_denormals()
        for g in range(first, last):
            own = base + g * stride
            done = 0
            for turn in range(threads):
                v = (t + turn) % threads
                p = shares[g, v] + add_shared(own + v * LINE_BYTES, 1)
                while p < shares[g, v + 1]:
                    row = table.ctypes.data + calls[p, 0] * ROW_BYTES
                    call(table[calls[p, 0], 0], row, context, photo, calls[p, 1], calls[p, 2])
                    done += 1
                    p = shares[g, v] + add_shared(own + v * LINE_BYTES, 1)
            add_shared(own + threads * LINE_BYTES, done)
            _wait_for(own + threads * LINE_BYTES, shares[g, threads] - shares[g, 0])
        restore_floats(mode)


def run_sequence(table, calls, first, last, context, photo):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Calls `first` to `last` one after the other on this thread: `run_groups` without OpenMP, which takes a second
    longer to compile."""
    mode = flush_denormals()
    for p in range(first, last):
        row = table.ctypes.data + calls[p, 0] * ROW_BYTES
        call(table[calls[p, 0], 0], row, context, photo, calls[p, 1], calls[p, 2])
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


_TABLE = types.Array(int64, 2, "C")


@functools.cache
def image_runner() -> Any:
    """`run_images`, compiled."""
    signature = types.void(_TABLE, _TABLE, _TABLE, _TABLE, *[int64] * 7)
    return cached(numba.njit, signature, nogil=True, parallel=has_openmp(), error_model="numpy")(run_images)


@functools.cache
def group_runner() -> Any:
    """`run_groups`, compiled."""
    signature = types.void(_TABLE, _TABLE, _TABLE, types.Array(int64, 3, "C"), *[int64] * 5)
    return cached(numba.njit, signature, nogil=True, parallel=has_openmp(), error_model="numpy")(run_groups)


@functools.cache
def sequence_runner() -> Any:
    """`run_sequence`, compiled."""
    signature = types.void(_TABLE, _TABLE, *[int64] * 4)
    return cached(numba.njit, signature, nogil=True, error_model="numpy")(run_sequence)
