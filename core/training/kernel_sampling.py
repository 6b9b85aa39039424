"""Decides which steps have their kernels timed, so that timing takes less than 1 % of the training."""

from __future__ import annotations

from typing import Final, final

SHARE: Final = 0.01
"""Largest share of the training time."""
FIRST_COST: Final = 8.0
"""Assumed cost of the first timed step, in plain steps. Measured: 2.3 to 2.4, more for short steps
(`benchmarks.timing_cost`)."""
LEAST_STEPS: Final = 100
"""Fewest steps between two timed steps: each is a long line in events.jsonl."""


@final
class KernelSampling:
    """Schedules timed steps.

    every: steps between two timed steps, 0 for as often as `SHARE` allows; soon: time the second step.
    """

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
        """Record that timing the step took `seconds`."""
        self._spent, self._cost, self._next, self._soon = self._spent + seconds, seconds, step + LEAST_STEPS, False
