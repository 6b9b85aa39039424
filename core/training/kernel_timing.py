"""Kernel times of a run: which steps have their kernels timed, and the table of their means for the terminal."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from typing import Final

from core.device import KernelTime
from core.text import align_columns

SHARE: Final = 0.01
"""Largest share of the training time that timing may take."""
FIRST_COST: Final = 8.0
"""Assumed cost of the first timed step, in plain steps. Measured: 2.3 to 2.4, more for short steps
(`benchmarks.timing_cost`)."""
LEAST_STEPS: Final = 100
"""Fewest steps between two timed steps: each is a long line in events.jsonl."""
SHOWN: Final = 24
"""Number of kernels in the table: the slowest two dozen of about a hundred take most of the time."""


class KernelSampling:
    """Schedules timed steps: one in `every`, 0 for as often as `SHARE` allows; soon: time the second step."""

    def __init__(self, every: int, soon: bool = False) -> None:
        self._every, self._soon = every, soon
        self._trained = self._spent = self._cost = 0.0
        self._next = 0

    def is_due(self, step: int, seconds: float) -> bool:
        """Whether to time a step after step `step` (from 0), which took `seconds`."""
        self._trained += seconds
        if self._every:
            return step % self._every == self._every // 2
        if self._soon and step > 0:
            return True
        cost = self._cost or FIRST_COST * seconds
        return step >= self._next and self._spent + cost <= SHARE * self._trained

    def count(self, step: int, seconds: float) -> None:
        self._spent, self._cost, self._next, self._soon = self._spent + seconds, seconds, step + LEAST_STEPS, False


class KernelTable:
    """Sums over the timed steps of a run, one entry for each layer, direction and kernel."""

    def __init__(self) -> None:
        self._samples = 0
        self._sums: dict[tuple[str, str, str], KernelTime] = {}

    def add(self, times: Iterable[KernelTime]) -> None:
        self._samples += 1
        for time in times:
            key = (time.layer, time.direction, time.kernel)
            self._sums[key] = self._sums[key] + time if key in self._sums else time

    def describe(self) -> str:
        """The table: slowest kernels first, then the rest and the total; empty if no kernel was timed."""
        if not self._sums:
            return ""
        times = sorted(self._sums.values(), key=lambda time: -time.milliseconds)
        head = ("layer", "pass", "kernel", "ms", "GFLOP/s", "GB/s", "of floor")
        lines = [(t.layer, t.direction, t.kernel, *self._figures([t])) for t in times[:SHOWN]]
        if len(times) > SHOWN:
            lines.append((f"{len(times) - SHOWN} more", "", "", *self._figures(times[SHOWN:])))
        lines.append(("all", "", "", *self._figures(times)))
        steps = "one step" if self._samples == 1 else f"{self._samples} steps"
        return f"Kernels, timed one by one (mean of {steps}):\n" + align_columns([head, *lines], right=(3, 4, 5, 6))

    def _figures(self, times: list[KernelTime]) -> tuple[str, ...]:
        time = functools.reduce(operator.add, times)
        return (f"{time.milliseconds / self._samples:.3f}", f"{time.gflops:.0f}", f"{time.gigabytes:.1f}",
                f"{100 * time.of_peak:.0f} %")  # fmt: skip
