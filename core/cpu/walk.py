"""Walks records: photo by photo on every thread, or group by group of steps with their tasks shared out.

Photos and tasks are dealt out by number, never by who is free, so that results depend on the
thread count only. GNU OpenMP is asked for: it forks and joins in 1.4 us (TBB 7, workqueue 31), and
workqueue must not be entered from two threads. Without it everything runs on one thread.
"""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any, Final

import numba
import numpy as np
from numba import int64, prange, types

from core.cpu.entry import call
from core.cpu.level import cached
from core.cpu.memory import FIELDS
from core.cpu.tiled import TASKS

ROW_BYTES: Final = FIELDS * 8

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


def walk_photos(table, slot_shift, thread_shift, first, last, photos, by_thread, threads, context):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Every photo walks records `first` to `last`; thread t has photos ``[N t / T, N (t + 1) / T)``.

    `by_thread` 1: memory of its thread (slot t); 0: memory of its own (slot n).
    """
    for t in prange(threads):
        row = np.empty(FIELDS, np.int64)
        for n in range(photos * t // threads, photos * (t + 1) // threads):
            slot = t if by_thread else n
            for i in range(first, last):
                for f in range(FIELDS):
                    row[f] = table[i, f] + slot * slot_shift[i, f] + t * thread_shift[i, f]
                call(row[0], row.ctypes.data, context, n, 0, row[TASKS])


def walk_split(table, bounds, threads, context, photo):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Records in groups ``[bounds[g], bounds[g + 1])``, whose tasks are shared out; threads meet after each group.

    Every second record is dealt in reverse, so that what does not divide evenly evens out in a group.
    """
    for g in range(len(bounds) - 1):
        for t in prange(threads):
            for i in range(bounds[g], bounds[g + 1]):
                tasks = table[i, TASKS]
                part = threads - 1 - t if i % 2 else t
                low, high = tasks * part // threads, tasks * (part + 1) // threads
                if low < high:
                    call(table[i, 0], table.ctypes.data + i * ROW_BYTES, context, photo, low, high)


_TABLE = types.Array(int64, 2, "C")
_BOUNDS = types.Array(int64, 1, "C")


@functools.cache
def photo_walker() -> Any:
    """`walk_photos`, compiled."""
    signature = types.void(_TABLE, _TABLE, _TABLE, *[int64] * 6)
    return cached(numba.njit, signature, nogil=True, parallel=has_openmp(), error_model="numpy")(walk_photos)


@functools.cache
def split_walker() -> Any:
    """`walk_split`, compiled."""
    signature = types.void(_TABLE, _BOUNDS, *[int64] * 3)
    return cached(numba.njit, signature, nogil=True, parallel=has_openmp(), error_model="numpy")(walk_split)
