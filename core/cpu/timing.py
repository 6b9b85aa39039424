"""Times every kernel of a plan alone, on all threads as in a run of the plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Sequence
from typing import Final

from core.cpu.peak import Peak, measure_peak
from core.cpu.records import Record
from core.device import KernelTime
from core.ops.contract import Cost
from core.program import Program

REPEATS: Final = 3
"""Each kernel runs so often; the fastest counts, because other programs only ever slow it down."""

WORKERS: Final = ("tiled", "naive", "im2col", "fused")
"""Kernels that do the arithmetic of a layer, the first one present counts."""


def time_records(
    program: Program, records: Sequence[Record], run: Callable[[int], None], images: int, threads: int
) -> list[KernelTime]:
    """`run(i)` runs record i for all the batch; records of one layer, direction and kernel are added up."""
    spent: dict[tuple[str, str, str], float] = {}
    for index, record in enumerate(records):
        best = min(_seconds(run, index) for _ in range(REPEATS))
        key = (record.layer, record.direction, record.name)
        spent[key] = spent.get(key, 0.0) + best
    cost = {step.node: step.cost for step in program.steps}
    work = {key: cost[key[0]] for key in spent if key[0] in cost and does_the_work(key, spent)}
    reached = max((cost.flops * images / spent[key] / 1e9 for key, cost in work.items()), default=0.0)
    peak = measure_peak(threads).at_least(reached)
    return [_kernel_time(key, seconds, work.get(key), images, peak) for key, seconds in spent.items()]


def does_the_work(key: tuple[str, str, str], kernels: Container[tuple[str, str, str]]) -> bool:
    """Whether a layer's FLOPs and bytes are this kernel's: a pass may have helpers that clear borders or mask."""
    layer, direction, kernel = key
    return kernel == next((name for name in WORKERS if (layer, direction, name) in kernels), "")


def _seconds(run: Callable[[int], None], index: int) -> float:
    begin = time.perf_counter()
    run(index)
    return time.perf_counter() - begin


def _kernel_time(key: tuple[str, str, str], seconds: float, work: Cost | None, images: int, peak: Peak) -> KernelTime:
    flops, size = (work.flops * images, work.bytes * images) if work is not None else (0, 0)
    return KernelTime(*key, 1e3 * seconds, flops, size, peak.floor_ms(flops, size))
