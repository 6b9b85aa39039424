"""Sums the kernel times of a run and formats them as a table for the terminal."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping
from typing import Final, final

from core.device import KernelTime
from core.training.dry_run import align_columns

SHOWN: Final = 24
"""Number of kernels in the table: the slowest two dozen of about a hundred take most of the time."""


def rates_of(time: KernelTime) -> Mapping[str, float]:
    """GFLOP/s, GB/s and the ratio of the floor to the time; 1 is the device's peak."""
    milliseconds = max(time.milliseconds, 1e-6)
    return {
        "GFLOP/s": time.flops / milliseconds / 1e6,
        "GB/s": time.bytes / milliseconds / 1e6,
        "share of floor": time.floor_ms / milliseconds,
    }


@final
class KernelTable:
    """Sums over the timed steps of a run, one entry for each layer, direction and kernel."""

    def __init__(self) -> None:
        self.samples = 0
        self._sums: dict[tuple[str, str, str], KernelTime] = {}

    def add(self, times: Iterable[KernelTime]) -> None:
        """Add a timed step."""
        self.samples += 1
        for time in times:
            key = (time.layer, time.direction, time.kernel)
            self._sums[key] = self._sums[key] + time if key in self._sums else time

    def describe(self) -> str:
        """The table: slowest kernels first, then the rest and the total; empty if no step was timed."""
        if not self.samples:
            return ""
        times = sorted(self._sums.values(), key=lambda time: -time.milliseconds)
        head = ("layer", "pass", "kernel", "ms", "GFLOP/s", "GB/s", "of floor")
        lines = [(t.layer, t.direction, t.kernel, *self._figures(t)) for t in times[:SHOWN]]
        if len(times) > SHOWN:
            lines.append((f"{len(times) - SHOWN} more", "", "", *self._figures(_sum(times[SHOWN:]))))
        lines.append(("all", "", "", *self._figures(_sum(times))))
        steps = "one step" if self.samples == 1 else f"{self.samples} steps"
        return f"Kernels, timed one by one (mean of {steps}):\n" + align_columns([head, *lines], right=(3, 4, 5, 6))

    def _figures(self, time: KernelTime) -> tuple[str, ...]:
        rates = rates_of(time)
        return (
            f"{time.milliseconds / self.samples:.3f}", f"{rates['GFLOP/s']:.0f}", f"{rates['GB/s']:.1f}",
            f"{100 * rates['share of floor']:.0f} %",
        )  # fmt: skip


def _sum(times: Iterable[KernelTime]) -> KernelTime:
    return functools.reduce(operator.add, times)
