"""When the kernels of a step are timed: so seldom that it costs less than a hundredth of the training."""

from __future__ import annotations

from typing import Final, final

SHARE: Final = 0.01
"""Of the time of the steps."""
FIRST_COST: Final = 8.0
"""Plain steps that the first timed one is taken to cost; 2.3 and 2.4 were measured on two cores and on an H200
(`benchmarks.timing_cost`), more where a step is short."""
LEAST_STEPS: Final = 100
"""Between two timed steps, however cheap they are: each is a long line in events.jsonl."""


@final
class KernelSampling:
    """every: steps between two timed ones, 0 as often as `SHARE` allows; soon: the second step already."""

    def __init__(self, every: int, soon: bool = False) -> None:
        self._every, self._soon = every, soon
        self._trained = self._spent = self._cost = 0.0
        self._next = 0

    def is_due(self, step: int, seconds: float) -> bool:
        """Whether to time a step now, after step number `step` (from 0), which took so many seconds."""
        self._trained += seconds
        if self._every:
            return step % self._every == self._every // 2
        if self._soon and step > 0:
            return True
        cost = self._cost or FIRST_COST * seconds
        return step >= self._next and self._spent + cost <= SHARE * self._trained

    def count(self, step: int, seconds: float) -> None:
        """A timing took so many seconds."""
        self._spent, self._cost, self._next, self._soon = self._spent + seconds, seconds, step + LEAST_STEPS, False
