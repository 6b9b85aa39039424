"""Times every launch of a step with events on the device, and says what its bytes and FLOPs would need at best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from core.device import KernelTime
from core.gpu.driver.device import Device
from core.gpu.graph_capture import Event
from core.gpu.launch import Launch

MATRIX_RATE: Final = {8: 2048, 9: 4096, 10: 8192, 12: 2048}
"""bf16 operations a clock and multiprocessor on the tensor cores, by major compute capability (vendor's tables)."""


SLOWER: Final = {"bf16": 1, "tf32": 2, "float32": 6, "fma": 16}
"""How many times slower than `MATRIX_RATE`; float32 is three tf32 products, fma 64 multiply-adds a clock (Turing)."""


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
                floor_milliseconds(device, launch.flops * SLOWER[arithmetic], launch.bytes),
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


def floor_milliseconds(device: Device, flops: int, moved: int) -> float:
    """Time at the device's peak memory rate or peak bf16 rate, whichever is longer."""
    rate = MATRIX_RATE.get(device.capability[0], 2048) * device.processors * device.clock
    return max(moved / device.bandwidth, flops / rate) * 1e3
