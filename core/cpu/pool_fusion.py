"""A pool and what feeds it, a few rows of each by turns, so that what is pooled is still in the cache.

Layer after layer the first convolution of SqueezeNet 1.1 writes 3 MB a photo, and the pool fetches them again.
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
"""Of what is pooled; a quarter of the second cache, beside filters and results."""

@final
@dataclass(frozen=True, slots=True)
class FusedPool:
    """Records `first` to `pool` write rows that the record `pool`, a pooling, reads."""

    first: int
    pool: int


def find_fused_pool(records: Sequence[Record], first: int, pool: int) -> FusedPool | None:
    """The records right before `pool`, none before `first`, that compute row by row what it reads."""
    height = records[pool].fields[pooling.HEIGHT]
    start = pool
    while start > first and _rows(records[start - 1]) == height:
        start -= 1
    return FusedPool(start, pool) if start < pool else None


def _rows(record: Record) -> int:
    """RecordTable of the image that the record's tasks run over, fastest; 0 if they do not."""
    if record.kernel in MAPS.values():
        return record.tasks
    rows = record.fields.get(tiled.ROWS, 0) if record.kernel is tiled.run_tiled and not record.once else 0
    assert isinstance(rows, int)
    return rows


def interleave_rows(records: Sequence[Record], fused: FusedPool) -> Iterator[Call]:
    """Calls for all rows of the pool and what it reads, `BLOCK_BYTES` at a time."""
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
    """Records in order, those of a fused as one: (first record, calls)."""
    inside = {fused.first: fused for fused in fused_pools}
    index = 0
    while index < len(records):
        if index in inside:
            yield index, list(interleave_rows(records, inside[index]))
            index = inside[index].pool + 1
        else:
            yield index, [(index, 0, records[index].tasks)]
            index += 1
