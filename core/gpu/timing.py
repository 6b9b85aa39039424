"""Times every launch of a step on the device: alone, and what it adds to the captured step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Final

from core.device import KernelTime
from core.gpu.driver.device import Device
from core.gpu.graph_capture import CapturedGraph, Event
from core.gpu.launch import Launch


def time_launches(
    device: Device, launches: Sequence[Launch], stream: Any, run: Callable[[Launch], None], arithmetic: str
) -> list[KernelTime]:
    """One timed run of each launch, in order."""
    events = [Event(timing=True) for _ in range(len(launches) + 1)]
    events[0].record(stream)
    for event, launch in zip(events[1:], launches, strict=True):
        run(launch)
        event.record(stream)
    times = []
    for before, after, launch in zip(events, events[1:], launches, strict=False):
        took = after.milliseconds_since(before)
        times.append(
            KernelTime(
                launch.layer, launch.direction, launch.kernel, took, launch.flops, launch.bytes,
                1e3 * device.hardware.floor(launch.flops, launch.bytes, arithmetic),
            )
        )  # fmt: skip
    for event in events:
        event.close()
    return times


def time_replays(replay: Callable[[], None], stream: Any, count: int) -> float:
    """Mean milliseconds of so many replays in a row."""
    before, after = Event(timing=True), Event(timing=True)
    before.record(stream)
    for _ in range(count):
        replay()
    after.record(stream)
    took = after.milliseconds_since(before)
    before.close()
    after.close()
    return took / count


PREFIX_ROUNDS: Final = 5
"""Measurements of a prefix, of which the median counts."""
PREFIX_MILLISECONDS: Final = 1.0
"""Time that the replays of one measurement take together, about."""


def time_inside(
    launches: Sequence[Launch], stream: Any, capture: Callable[[Sequence[Launch]], CapturedGraph]
) -> list[tuple[Launch, float]]:
    """Launches of a sequence, and the microseconds that each adds to it.

    The first 1, 2, 3 ... launches are captured as graphs; the difference of two neighbours is what a launch adds, with
    all that overlaps: launches on the second stream, and dependent launches. The differences add up to the whole.
    """
    found = [0.0]
    for length in range(1, len(launches) + 1):
        graph, replays = capture(launches[:length]), max(3, round(PREFIX_MILLISECONDS * 1e3 / max(found[-1], 5.0)))
        graph.replay()
        found.append(1e3 * median(time_replays(graph.replay, stream, replays) for _ in range(PREFIX_ROUNDS)))
        graph.close()
    return [(launch, b - a) for launch, a, b in zip(launches, found, found[1:], strict=False)]
