"""Times every kernel of a plan alone, and the peak of this processor: the register tile in a loop, and copies.

All threads run at once, as in a run of the plan: two of them may share a core, and all share the memory.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from core.cpu.instruction_set import current_isa
from core.cpu.memory import F32, FIELDS, aligned, words
from core.cpu.microkernel import KL, KW, LDC, SAK, SAM, SBK
from core.cpu.records import Record, entry
from core.cpu.tile_code import tile_table
from core.cpu.tiled import TILES, VECTOR_WIDTH, tile
from core.device import KernelTime
from core.ops.contract import Cost
from core.ops.registry import ALGORITHM_ORDER
from core.program import Program

VECTORS: Final = 2
ROWS: Final = max(current_isa().tile_heights[VECTORS])
"""The fastest tile of each instruction set, or as fast as any."""
WIDTH: Final = VECTORS * VECTOR_WIDTH
DEPTH: Final = 192
"""Terms of a sum; A and B have 35 KB with AVX-512 and 17 with AVX2, about the L1 cache."""
FLOPS: Final = 2 * ROWS * WIDTH * DEPTH
CALLS: Final = 10**9 // FLOPS
"""Tiles per round: enough to make the start of a thread negligible."""
ROUNDS, SECONDS = 5, 0.2
"""Fewest rounds, and fewest seconds in all. The fastest round counts, because other programs only slow it down."""
COPIED_BYTES: Final = 64 << 20
"""Bytes that all threads copy in a round: read and written, at least twice the largest cache of a processor."""

_SHAPE: Final = VECTORS * 64 + ROWS


@dataclass(frozen=True, slots=True)
class Peak:
    """GFLOP/s of multiply-adds and GB/s read and written, of all threads together."""

    gflops: float
    gigabytes: float

    def at_least(self, gflops: float) -> Peak:
        """Return the peak raised to what a kernel has reached, if other programs kept the measurement lower."""
        return replace(self, gflops=max(self.gflops, gflops))

    def floor_ms(self, flops: int, moved: int) -> float:
        """Return the least time that these FLOPs and bytes need."""
        return max(flops / (self.gflops * 1e6), moved / (self.gigabytes * 1e6))


def run_tiles(record, a, b, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Compute one tile repeatedly; C follows B in memory."""
    for _ in range(low, high):
        tile(words(record)[TILES], _SHAPE, record, a, b, b + 4 * WIDTH * DEPTH, 0, 0, 1, VECTOR_WIDTH)


@functools.cache
def measure_peak(threads: int) -> Peak:
    """Measure the peak of this number of threads; the first call compiles the kernel."""
    with ThreadPoolExecutor(threads) as pool:
        products = [make_round()[0] for _ in range(threads)]
        computing = _fastest(pool, products)
        half = COPIED_BYTES // 4 // threads
        pairs = [(np.ones(half, np.float32), np.ones(half, np.float32)) for _ in range(threads)]
        copying = _fastest(pool, [functools.partial(np.copyto, *pair) for pair in pairs])
    return Peak(threads * CALLS * FLOPS / computing / 1e9, threads * 2 * 4 * half / copying / 1e9)


def make_round(calls: int = CALLS) -> tuple[Callable[[], object], F32, F32]:
    """Return a function that computes so many tiles, and its matrices A and B, which C follows."""
    record = np.zeros(FIELDS, np.int64)
    record[[SAM, SAK, SBK, KW, KL, LDC]] = 4 * DEPTH, 4, 4 * WIDTH, 1, DEPTH, 4 * WIDTH
    record[TILES] = tile_table(current_isa().name).ctypes.data
    a, b = aligned(ROWS * DEPTH), aligned((DEPTH + ROWS) * WIDTH)
    a[:], b[: DEPTH * WIDTH] = 1, 1
    kernel = entry(run_tiles).ctypes  # ctypes releases the GIL
    return lambda: kernel(record.ctypes.data, a.ctypes.data, b.ctypes.data, 0, calls), a, b


def _fastest(pool: ThreadPoolExecutor, work: Sequence[Callable[[], object]]) -> float:
    found = list[float]()
    while len(found) < ROUNDS or sum(found) < SECONDS:
        begin = time.perf_counter()
        list(pool.map(lambda one: one(), work))
        found.append(time.perf_counter() - begin)
    return min(found)


REPEATS: Final = 3
"""Runs of each kernel, of which the fastest counts."""


def time_records(
    program: Program, records: Sequence[Record], run: Callable[[int], None], images: int, threads: int
) -> list[KernelTime]:
    """Time every record, which `run(i)` runs for the batch; records of one layer, direction and kernel are summed.

    A layer's FLOPs and bytes belong to its kernel named after an algorithm, not to one that clears borders or masks.
    """
    spent: dict[tuple[str, str, str], float] = {}
    for index, record in enumerate(records):
        best = min(_seconds(run, index) for _ in range(REPEATS))
        key = (record.layer, record.direction, record.name)
        spent[key] = spent.get(key, 0.0) + best
    works = {s.node: s.cost.of_batch(images, sum(p.size for p in s.parameters)) for s in program.steps}
    work = {key: works[key[0]] for key in spent if key[0] in works
            and key[2] == next((name for name in ALGORITHM_ORDER if (*key[:2], name) in spent), "")}  # fmt: skip
    reached = max((done.flops / spent[key] / 1e9 for key, done in work.items()), default=0.0)
    peak = measure_peak(threads).at_least(reached)
    return [_kernel_time(key, seconds, work.get(key, Cost(0, 0)), peak) for key, seconds in spent.items()]


def _seconds(run: Callable[[int], None], index: int) -> float:
    begin = time.perf_counter()
    run(index)
    return time.perf_counter() - begin


def _kernel_time(key: tuple[str, str, str], seconds: float, work: Cost, peak: Peak) -> KernelTime:
    return KernelTime(*key, 1e3 * seconds, work.flops, work.bytes, peak.floor_ms(work.flops, work.bytes))
