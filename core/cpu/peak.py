"""What this processor can do at best, measured: the register tile in a loop, and copies through memory.

All threads at once, as kernels run: two of them may be one core, and memory is everybody's.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np

from core.cpu.entry import entry
from core.cpu.instruction_set import current_isa
from core.cpu.memory import FIELDS, aligned, words
from core.cpu.microkernel import KL, KW, LDC, SAK, SAM, SBK
from core.cpu.tile_code import tile_table
from core.cpu.tiled import TILES, tile

VECTORS: Final = 2
ROWS: Final = max(current_isa().tile_heights[VECTORS])
"""The fastest tile of each isa, or as fast as any (`docs/cpu-engine.md`)."""
WIDTH: Final = VECTORS * current_isa().vector_width
DEPTH: Final = 192
"""Factors of a sum; both factors of the product are in the L1 cache (35 KB with AVX-512, 17 with AVX2)."""
FLOPS: Final = 2 * ROWS * WIDTH * DEPTH
CALLS: Final = 10**9 // FLOPS
"""Tiles of a round: so many that the start of a thread is nothing beside it."""
ROUNDS: Final = 5
"""The fastest counts, because other programs only ever slow one down."""
COPIED_BYTES: Final = 64 << 20
"""Copied in a round, by all threads together; with what is written twice a processor's last cache, or more."""

_SHAPE: Final = VECTORS * 64 + ROWS
_VECTOR_WIDTH: Final = current_isa().vector_width


@final
@dataclass(frozen=True, slots=True)
class Peak:
    """GFLOP/s of multiply-adds and GB/s, read and written, of all threads together."""

    gflops: float
    gigabytes: float

    def at_least(self, gflops: float) -> Peak:
        """The same with what a kernel has reached, where other programs kept the measurement lower."""
        return replace(self, gflops=max(self.gflops, gflops))

    def floor_ms(self, flops: int, moved: int) -> float:
        """The time that so many FLOPs and bytes need at least."""
        return max(flops / (self.gflops * 1e6), moved / (self.gigabytes * 1e6))


def run_tiles(record, a, b, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Compute one tile repeatedly; C follows B in memory."""
    for _ in range(low, high):
        tile(words(record)[TILES], _SHAPE, record, a, b, b + 4 * WIDTH * DEPTH, 0, 0, 1, _VECTOR_WIDTH)


@functools.cache
def measure_peak(threads: int) -> Peak:
    """Of so many threads; the first time its kernel is compiled."""
    with ThreadPoolExecutor(threads) as pool:
        products = [_product() for _ in range(threads)]
        computing = _fastest(pool, products)
        half = COPIED_BYTES // 4 // threads
        pairs = [(np.ones(half, np.float32), np.ones(half, np.float32)) for _ in range(threads)]
        copying = _fastest(pool, [functools.partial(np.copyto, *pair) for pair in pairs])
    return Peak(threads * CALLS * FLOPS / computing / 1e9, threads * 2 * 4 * half / copying / 1e9)


def _product() -> Callable[[], object]:
    """A round of tiles on memory of its own."""
    fields: dict[int, int] = {SAM: 4 * DEPTH, SAK: 4, SBK: 4 * WIDTH, KW: 1, KL: DEPTH, LDC: 4 * WIDTH}
    fields[TILES] = tile_table(current_isa().name).ctypes.data
    record = np.zeros(FIELDS, np.int64)
    for field, value in fields.items():
        record[field] = value
    a, b = aligned(ROWS * DEPTH), aligned((DEPTH + ROWS) * WIDTH)
    a[:], b[: DEPTH * WIDTH] = 1, 1
    kernel = entry(run_tiles).ctypes  # lets go of the interpreter while it computes

    def run() -> None:
        kernel(record.ctypes.data, a.ctypes.data, b.ctypes.data, 0, CALLS)

    return run


def _fastest(pool: ThreadPoolExecutor, work: Sequence[Callable[[], object]]) -> float:
    """Seconds in which all of it is done, at best."""
    found = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        list(pool.map(lambda one: one(), work))
        found.append(time.perf_counter() - begin)
    return min(found)
