"""Filters into the panels the register tile reads, and gradients of threads back into one filter."""

from __future__ import annotations

from core.cpu.memory import floats, words

# Pack. A panel is (T1, T2, K, WIDE) floats; tasks are (group, block). Strides of the source in bytes.
SOURCE, PANEL, WIDE, VALID, BLOCKS, PART = range(1, 7)
"""VALID columns of a group in all blocks together; PART bytes of one panel."""
T1, T2, DEPTH, S_N, S_T1, S_T2, S_K, S_GROUP = range(7, 15)

# Sum. The private gradient is (ROWS, N) floats, the filter (N, ROWS); tasks are blocks of 16 columns.
PRIVATE, PRIVATE_STRIDE, THREADS, FILTER, SUM_ROWS, SUM_N, ADD_TO = range(1, 8)
BLOCK: int = 16
"""Columns of one task: a cache line of the private gradient."""


def run_pack(record, context, photo, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
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


def run_sum(record, context, photo, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """filter[n, r] = sum over threads of private[thread][r, n], thread 0 first; the private sums become zero."""
    w = words(record)
    rows, columns = w[SUM_ROWS], w[SUM_N]
    out = floats(w[FILTER], rows * columns)
    for task in range(low, high):
        first, last = task * BLOCK, min(columns, (task + 1) * BLOCK)
        for r in range(rows):
            for n in range(first, last):
                total = out[n * rows + r] if w[ADD_TO] else floats(w[PRIVATE], 1)[0] * 0
                for t in range(w[THREADS]):
                    part = floats(w[PRIVATE] + t * w[PRIVATE_STRIDE] + (r * columns + n) * 4, 1)
                    total += part[0]
                    part[0] = 0
                out[n * rows + r] = total
