"""A sequence of launches captured once as a CUDA graph and replayed, which saves the launches from Python.

Launches of stream 1 (weight gradients) overlap the chain of input gradients on stream 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from core.gpu.compilation.cuda import driver
from core.gpu.driver.device import check
from core.gpu.launch import Launch, windows_of


@final
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
        if self._executable is not None:
            check(driver.cuGraphExecDestroy(self._executable))
            self._executable = None


@final
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

    def milliseconds_since(self, earlier: Event) -> float:
        check(driver.cuEventSynchronize(self._handle))
        return float(check(driver.cuEventElapsedTime(earlier._handle, self._handle)))

    def close(self) -> None:
        check(driver.cuEventDestroy(self._handle))


def record_streams(launches: Sequence[Launch], main: Any, side: Any, run: Callable[[Launch, Any], None]) -> list[Event]:
    """Queue launches on two streams with the waits between them; gives the events to close after the capture."""
    events: list[Event] = []

    def mark(stream: Any) -> Event:
        events.append(Event())
        events[-1].record(stream)
        return events[-1]

    done: dict[int, Event] = {}
    behind, used, current = True, False, 0
    for launch, window in zip(launches, windows_of(launches), strict=True):
        if window != current and used:
            done[current] = mark(side)
        if window != current and window - 2 in done:
            done[window - 2].hold(main)
        current = window
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


def capture_streams(
    launches: Sequence[Launch], main: Any, side: Any, run: Callable[[Launch, Any], None]
) -> CapturedGraph:
    """Launches on two streams as one graph."""
    events: list[Event] = []
    graph = CapturedGraph(main, lambda: events.extend(record_streams(launches, main, side, run)))
    for event in events:
        event.close()
    return graph
