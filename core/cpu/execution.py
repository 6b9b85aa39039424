"""Compiled loops that execute records: image by image on every thread, or group by group on all threads.

Images are assigned to threads by index, never dynamically, because a thread sums the gradients of its images:
results depend on the thread count only. Tasks of a group may run on any thread, because each writes its own memory.
Uses GNU OpenMP, which forks and joins faster than TBB and workqueue. Without it everything runs on one thread.
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
from core.cpu.memory import FIELDS, TASKS

ROW_BYTES: Final = FIELDS * 8

LINE_BYTES: Final = 64
"""Bytes from one counter to the next: a cache line."""

AWAKE: Final = 2000
"""Pauses, about 30 us, after which a waiting thread yields its core."""

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


def run_groups(table, calls, shares, counters, first, last, threads, context, image):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Run groups `first` to `last` in order on all threads (`core.cpu.schedule`).

    A thread runs its own share, then what is left of the others', and waits until the group is done. It never
    waits for a thread that has not started, so that any number of threads can finish.
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
                    call(table[calls[p, 0], 0], row, context, image, calls[p, 1], calls[p, 2])
                    done += 1
                    p = shares[g, v] + add_shared(own + v * LINE_BYTES, 1)
            add_shared(own + threads * LINE_BYTES, done)
            _wait_for(own + threads * LINE_BYTES, shares[g, threads] - shares[g, 0])
        restore_floats(mode)


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


_TABLE = types.Array(int64, 2, "C")


@functools.cache
def image_runner() -> Any:
    """Return the compiled `run_images`."""
    signature = types.void(_TABLE, _TABLE, _TABLE, *[int64] * 7)
    return cached(numba.njit, signature, nogil=True, parallel=has_openmp(), error_model="numpy")(run_images)


@functools.cache
def group_runner() -> Any:
    """Return the compiled `run_groups`."""
    signature = types.void(_TABLE, _TABLE, _TABLE, types.Array(int64, 3, "C"), *[int64] * 5)
    return cached(numba.njit, signature, nogil=True, parallel=has_openmp(), error_model="numpy")(run_groups)


@functools.cache
def sequence_runner() -> Any:
    """Return the compiled `run_sequence`."""
    signature = types.void(_TABLE, _TABLE, *[int64] * 4)
    return cached(numba.njit, signature, nogil=True, error_model="numpy")(run_sequence)
