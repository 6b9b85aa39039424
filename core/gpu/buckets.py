"""Averages over ranks inside a captured step: the gradient, and batch norm's sums where they are synchronized.

The gradient has two buckets, of which the first overlaps the rest of backward. Layers near the loss have most weights
and finish first; those near the image take most of the time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, final

from core.communicator import Communicator
from core.gpu.graph_capture import Event
from core.gpu.launch import Launch
from core.gpu.ops.norm import batch_norm
from core.gpu.ops.norm.launches import RANK_SUMS
from core.gpu.ops.update.optimizer import GRADIENT_NORM
from core.program import ParameterLayout

Run: TypeAlias = Callable[[Launch, Any], None]
"""Queues a launch on a stream."""
OVERLAPPED: Final = 2 / 3
"""Of the launches that write gradients: the first bucket is what they complete. It is most of the gradient of
SqueezeNet and MobileNetV2 (benchmarks/results/scaling-buckets-nvidia-h200-x2.json: without and with it)."""


def first_bucket(launches: Sequence[Launch], gradient: int, layout: ParameterLayout) -> tuple[int, int]:
    """(number of the launch that completes it, its first float); (0, trained floats) where there is none.

    gradient: address of the flat gradient, which launches take as an argument for each parameter that they write.
    """
    starts = sorted(start for start, _ in layout.offsets.values() if start < layout.trained)
    last: dict[int, int] = {}
    for number, launch in enumerate(launches):
        if launch.kernel == GRADIENT_NORM:
            break
        for value in launch.values:
            if isinstance(value, int) and 0 <= value - gradient < 4 * layout.trained:
                last[starts[bisect_right(starts, (value - gradient) // 4) - 1]] = number
    begin, end = min(last.values(), default=0), max(last.values(), default=0)
    limit, first, completed = begin + OVERLAPPED * (end - begin), layout.trained, 0
    for start in reversed(starts):
        if not 0 < last.get(start, 0) <= limit:  # a frozen parameter has no launch
            break
        first, completed = start, max(completed, last[start])
    return completed, first


@final
class GradientAverage:
    """Queues the all-reduces of a step's gradient, loss and hits, among its launches.

    main, side: the streams of the launches; own: a stream for the first bucket.
    """

    def __init__(self, ranks: Communicator, layout: ParameterLayout, main: Any, side: Any, own: Any) -> None:
        self._ranks, self._layout, self._main, self._side, self._own = ranks, layout, main, side, own
        self._events = [Event() for _ in range(3)]

    def insert_sums(self, run: Run) -> Run:
        """`run` with an all-reduce after every launch of this rank's sums of a batch norm."""

        def launch(one: Launch, stream: Any) -> None:
            run(one, stream)
            if one.kernel == RANK_SUMS:
                values = dict(zip(batch_norm.RANK_SUMS.parameters, one.values, strict=True))
                self._ranks.average_gradients([(values["sums"], 2 * values["row"])], stream)

        return launch

    def insert(self, launches: Sequence[Launch], gradient: int, scores: int, run: Run) -> Run:
        """`run` with the all-reduces of the gradient at their places; scores: address of loss and hits."""
        completed, first = first_bucket(launches, gradient, self._layout)
        if any(launch.kernel == RANK_SUMS for launch in launches):  # the sums would wait for the first bucket
            completed, first = 0, self._layout.trained
        last, done = launches[completed] if completed else None, self._events[2]

        def launch(one: Launch, stream: Any) -> None:
            if one.kernel == GRADIENT_NORM:  # the gradient is complete, and nothing has read it yet
                if last is not None:
                    done.hold(self._main)
                self._ranks.average_gradients([(gradient, first), (scores, 2)], stream)
            run(one, stream)
            if one is last:
                for event, other in zip(self._events, self._streams_of(launches[: completed + 1]), strict=False):
                    event.record(other)
                    event.hold(self._own)
                self._ranks.average_gradients([(gradient + 4 * first, self._layout.trained - first)], self._own)
                done.record(self._own)

        return launch

    def _streams_of(self, launches: Sequence[Launch]) -> list[Any]:
        """Those that a capture of these launches has reached."""
        return [self._main, *([self._side] if any(launch.stream for launch in launches) else [])]

    def close(self) -> None:
        for event in self._events:
            event.close()
