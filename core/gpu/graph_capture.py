"""A sequence of launches captured as a CUDA graph and replayed, which avoids the cost of launches from Python.

Launches of stream 1 (weight gradients) overlap the chain of input gradients on stream 0. With several ranks, averages
over them are captured too: of the gradient, and of the sums of synchronized batch norm. The gradient has two buckets,
and the first overlaps the rest of backward: layers near the loss have most weights and finish first; those near the
image take most of the time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from core.communicator import Communicator
from core.gpu.compilation.cuda import driver
from core.gpu.driver.device import check, is_done
from core.gpu.launch import Launch, intervals_of
from core.gpu.ops.norm import batch_norm
from core.gpu.ops.update.optimizer import norm
from core.program import ParameterLayout

GRADIENT_NORM: Final = norm.__name__
"""The kernel that reads the whole gradient first: ranks average theirs before it."""
RANK_SUMS: Final = batch_norm.rank_sums.__name__
"""The kernel whose sums ranks average where batch norm is synchronized."""

Run: TypeAlias = Callable[[Launch, Any], None]
"""Queues a launch on a stream."""


class CapturedGraph:
    """A captured sequence; `replay` queues it as one launch."""

    def __init__(self, stream: Any, record: Callable[[], None]) -> None:
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        check(driver.cuStreamBeginCapture(stream, mode))
        try:
            record()
        finally:
            graph = check(driver.cuStreamEndCapture(stream))
        self._executable = check(driver.cuGraphInstantiate(graph, 0))
        check(driver.cuGraphDestroy(graph))
        self._stream = stream

    def replay(self) -> None:
        check(driver.cuGraphLaunch(self._executable, self._stream))

    def close(self) -> None:
        check(driver.cuGraphExecDestroy(self._executable))


class Event:
    """A point in a stream's work, for waiting and for timing."""

    def __init__(self, timing: bool = False) -> None:
        kind = driver.CUevent_flags.CU_EVENT_DEFAULT if timing else driver.CUevent_flags.CU_EVENT_DISABLE_TIMING
        self._handle = check(driver.cuEventCreate(kind.value))

    def record(self, stream: Any) -> None:
        check(driver.cuEventRecord(self._handle, stream))

    def hold(self, stream: Any) -> None:
        """Make a stream wait for this event."""
        check(driver.cuStreamWaitEvent(stream, self._handle, 0))

    def wait(self) -> None:
        check(driver.cuEventSynchronize(self._handle))

    def is_over(self) -> bool:
        """Whether the work before this point is done. Raises DeviceError if it failed."""
        return is_done(driver.cuEventQuery(self._handle))

    def milliseconds_since(self, earlier: Event) -> float:
        self.wait()
        return float(check(driver.cuEventElapsedTime(earlier._handle, self._handle)))

    def close(self) -> None:
        check(driver.cuEventDestroy(self._handle))


def record_streams(launches: Sequence[Launch], main: Any, side: Any, run: Run) -> list[Event]:
    """Queue launches on two streams with the waits between them. Returns the events, to close after the capture."""
    events: list[Event] = []

    def mark(stream: Any) -> Event:
        events.append(Event())
        events[-1].record(stream)
        return events[-1]

    done: dict[int, Event] = {}
    behind, used, current = True, False, 0
    for launch, interval in zip(launches, intervals_of(launches), strict=True):
        if interval != current and used:
            done[current] = mark(side)
        if interval != current and interval - 2 in done:
            done[interval - 2].hold(main)
        current = interval
        if launch.stream == 0:
            if launch.join and used:
                mark(side).hold(main)
                used = False
            run(launch, main)
            behind = True
        else:
            if behind:
                mark(main).hold(side)
            run(launch, side)
            behind, used = False, True
    if used:
        mark(side).hold(main)
    return events


def capture_streams(launches: Sequence[Launch], main: Any, side: Any, run: Run) -> CapturedGraph:
    events: list[Event] = []
    graph = CapturedGraph(main, lambda: events.extend(record_streams(launches, main, side, run)))
    for event in events:
        event.close()
    return graph


OVERLAPPED: Final = 2 / 3
"""Share of the launches that write gradients at which the first bucket is complete. It has most of the gradient of
SqueezeNet and MobileNetV2 (benchmarks/results/scaling-buckets-nvidia-h200-x2.json: without and with it)."""


def first_bucket(launches: Sequence[Launch], gradient: int, layout: ParameterLayout) -> tuple[int, int]:
    """(index of the launch that completes it, its first element); (0, trained elements) if there is none.

    gradient: address of the flat gradient; launches have an argument in it for each parameter that they write.
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
        """`run` with the all-reduces of the gradient; scores: address of loss and hits."""
        completed, first = first_bucket(launches, gradient, self._layout)
        if any(launch.kernel == RANK_SUMS for launch in launches):  # the sums would wait for the first bucket
            completed, first = 0, self._layout.trained
        last, done = launches[completed] if completed else None, self._events[2]
        beside = any(launch.stream for launch in launches[: completed + 1])
        streams = [self._main, self._side] if beside else [self._main]  # those that a capture of these launches uses

        def launch(one: Launch, stream: Any) -> None:
            if one.kernel == GRADIENT_NORM:  # the gradient is complete and has not been read
                if last is not None:
                    done.hold(self._main)
                self._ranks.average_gradients([(gradient, first), (scores, 2)], stream)
            run(one, stream)
            if one is last:
                for event, other in zip(self._events, streams, strict=False):
                    event.record(other)
                    event.hold(self._own)
                self._ranks.average_gradients([(gradient + 4 * first, self._layout.trained - first)], self._own)
                done.record(self._own)

        return launch

    def close(self) -> None:
        for event in self._events:
            event.close()
