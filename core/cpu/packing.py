"""Kernels that pack filters into the panels of the register tile, and sum the gradients of threads into one."""

from __future__ import annotations

import numpy as np

from core.cpu.memory import floats, words

# Pack. A panel is (T1, T2, K, WIDE) floats; tasks are (group, block). Strides of the source in bytes.
SOURCE, PANEL, WIDE, VALID, BLOCKS, PART = range(1, 7)
"""VALID: columns of a group in all blocks; PART: bytes of one panel."""
T1, T2, DEPTH, S_N, S_T1, S_T2, S_K, S_GROUP = range(7, 15)

# Sum. The private gradient is (ROWS, N) floats, the filter (N, ROWS); tasks are blocks of 16 columns.
PRIVATE, PRIVATE_STRIDE, THREADS, FILTER, SUM_ROWS, SUM_N, ADD_TO = range(1, 8)
BLOCK: int = 16
"""Columns of one task: a cache line of the private gradient."""


def run_pack(record: int, context: int, image: int, low: int, high: int) -> None:
    """Columns past VALID are zero."""
    w = words(record)
    wide, depth = w[WIDE], w[DEPTH]
    for task in range(low, high):
        block, group = task % w[BLOCKS], task // w[BLOCKS]
        panel = floats(w[PANEL] + task * w[PART], w[PART] // 4)
        valid = min(wide, w[VALID] - block * wide)
        base = w[SOURCE] + group * w[S_GROUP] + block * wide * w[S_N]
        for t1 in range(w[T1]):
            for t2 in range(w[T2]):
                start = (t1 * w[T2] + t2) * depth * wide
                for n in range(wide):
                    at = base + n * w[S_N] + t1 * w[S_T1] + t2 * w[S_T2]
                    if n < valid:
                        for k in range(depth):
                            panel[start + k * wide + n] = floats(at + k * w[S_K], 1)[0]
                    else:
                        for k in range(depth):
                            panel[start + k * wide + n] = 0


def run_sum(record: int, context: int, image: int, low: int, high: int) -> None:
    """filter[n, r] = sum over threads of private[thread][r, n], thread 0 first; the private sums become zero."""
    w = words(record)
    rows, columns, threads = w[SUM_ROWS], w[SUM_N], w[THREADS]
    square = np.empty((BLOCK, BLOCK), np.float32)
    for task in range(low, high):
        first = task * BLOCK
        wide = min(columns - first, BLOCK)
        for r0 in range(0, rows, BLOCK):  # in squares that are read by rows and written by columns
            high_rows = min(rows - r0, BLOCK)
            for r in range(high_rows):
                line = w[PRIVATE] + ((r0 + r) * columns + first) * 4
                for t in range(threads):
                    part = floats(line + t * w[PRIVATE_STRIDE], wide)
                    for n in range(wide):
                        square[n, r] = part[n] if t == 0 else square[n, r] + part[n]
                    part[:] = 0
            for n in range(wide):
                out = floats(w[FILTER] + ((first + n) * rows + r0) * 4, high_rows)
                if w[ADD_TO]:
                    for r in range(high_rows):
                        out[r] += square[n, r]
                else:
                    for r in range(high_rows):
                        out[r] = square[n, r]
