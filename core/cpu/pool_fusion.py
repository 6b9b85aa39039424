"""Fusion of a max pool with its producers: a few rows of each, interleaved, so that the pool reads from the cache.

Without it the first convolution of SqueezeNet 1.1 writes its output to memory, and the pool reads it back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

from core.cpu import pooling, tiled
from core.cpu.elementwise import MAPS
from core.cpu.records import Record
from core.cpu.schedule import Call

BLOCK_BYTES: Final = 256 << 10
"""Bytes of the pool's input that are computed at a time: a quarter of the L2 cache, beside filters and results."""

@final
@dataclass(frozen=True, slots=True)
class FusedPool:
    """A pool and its producers: records `first` to `pool` write the rows that the record `pool` reads."""

    first: int
    pool: int


def find_fused_pool(records: Sequence[Record], first: int, pool: int) -> FusedPool | None:
    """Find the records from `first` on that come right before `pool` and compute its input row by row."""
    height = records[pool].fields[pooling.HEIGHT]
    start = pool
    while start > first and _rows(records[start - 1]) == height:
        start -= 1
    return FusedPool(start, pool) if start < pool else None


def _rows(record: Record) -> int:
    """Return the image rows that the record's tasks run over, fastest index; 0 if they do not."""
    if record.kernel in MAPS.values():
        return record.tasks
    rows = record.fields.get(tiled.ROWS, 0) if record.kernel is tiled.run_tiled else 0
    assert isinstance(rows, int)
    return rows


def interleave_rows(records: Sequence[Record], fused: FusedPool) -> Iterator[Call]:
    """Yield the calls of a pool and its producers, interleaved in blocks of `BLOCK_BYTES`."""
    pool = records[fused.pool]
    stride, kernel, top, height, row_bytes = (_number(pool, field) for field in (
        pooling.STRIDE_Y, pooling.KERNEL_Y, pooling.TOP, pooling.HEIGHT, pooling.X_ROW))  # fmt: skip
    at_once = max(1, BLOCK_BYTES // (row_bytes * stride))
    done = 0
    for first in range(0, pool.tasks, at_once):
        last = min(first + at_once, pool.tasks)
        needed = height if last == pool.tasks else min((last - 1) * stride - top + kernel, height)
        for i in range(fused.first, fused.pool) if needed > done else ():
            if records[i].fields.get(tiled.BY_ROW):
                planes = records[i].tasks // height
                yield i, planes * done, planes * needed
                continue
            for plane in range(0, records[i].tasks, height):
                yield i, plane + done, plane + needed
        done = max(done, needed)
        yield fused.pool, first, last


def _number(record: Record, field: int) -> int:
    value = record.fields[field]
    assert isinstance(value, int)
    return value


def find_units(records: Sequence[Record], fused_pools: Sequence[FusedPool]) -> Iterator[tuple[int, list[Call]]]:
    """Yield (first record, calls) of all records in order; a fused pool and its producers are one item."""
    inside = {fused.first: fused for fused in fused_pools}
    index = 0
    while index < len(records):
        if index in inside:
            yield index, list(interleave_rows(records, inside[index]))
            index = inside[index].pool + 1
        else:
            yield index, [(index, 0, records[index].tasks)]
            index += 1
