"""Times launches on this GPU: those of a captured step, and each way to compute a case, interleaved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from statistics import median
from typing import Any, Final

import numpy as np

from core.device import KernelTime
from core.errors import DeviceError
from core.gpu.compilation.cuda import driver
from core.gpu.control import make_block
from core.gpu.driver.device import Device, check
from core.gpu.driver.memory import Block
from core.gpu.frame import Frame
from core.gpu.gradients import Backward
from core.gpu.graph_capture import CapturedGraph, Event, Run
from core.gpu.launch import Launch, blocks_of
from core.gpu.lowering import overlap_launches, write_step
from core.gpu.select import FORWARD, Choice
from core.gpu.sizes import block_sizes


def time_launches(
    device: Device, launches: Sequence[Launch], stream: Any, run: Run, arithmetic: str
) -> list[KernelTime]:
    """One timed run of each launch, in order."""
    events = [Event(timing=True) for _ in range(len(launches) + 1)]
    events[0].record(stream)
    for event, launch in zip(events[1:], launches, strict=True):
        run(launch, stream)
        event.record(stream)
    times = [
        KernelTime(
            launch.layer, launch.direction, launch.kernel, after.milliseconds_since(before), launch.flops, launch.bytes,
            1e3 * device.hardware.floor(launch.flops, launch.bytes, arithmetic),
        )
        for before, after, launch in zip(events, events[1:], launches, strict=False)
    ]  # fmt: skip
    for event in events:
        event.close()
    return times


def time_replays(replay: Callable[[], None], stream: Any, count: int) -> float:
    """Mean milliseconds of `count` replays in a row."""
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
"""Measurements of a prefix; the median counts."""
PREFIX_MILLISECONDS: Final = 1.0
"""Approximate duration of one measurement."""


def time_inside(
    launches: Sequence[Launch], stream: Any, capture: Callable[[Sequence[Launch]], CapturedGraph]
) -> list[tuple[Launch, float]]:
    """Launches of a sequence, and the microseconds that each adds to it.

    The first 1, 2, 3 ... launches are captured as graphs; a launch adds the difference between two of them, which
    includes overlap: launches on the second stream, and dependent launches. The differences add up to the whole.
    """
    times = [0.0]
    for length in range(1, len(launches) + 1):
        graph, replays = capture(launches[:length]), max(3, round(PREFIX_MILLISECONDS * 1e3 / max(times[-1], 5.0)))
        graph.replay()
        times.append(1e3 * median(time_replays(graph.replay, stream, replays) for _ in range(PREFIX_ROUNDS)))
        graph.close()
    return [(launch, b - a) for launch, a, b in zip(launches, times, times[1:], strict=False)]


SETS: Final = 3
"""Sets of arrays, used in turn, so that large arrays are not found in the cache."""
CACHED: Final = 64 << 20
"""Bytes of two sets that a GPU's L2 cache may hold."""
DURATION: Final = 100.0
"""Shortest duration of a graph in microseconds."""
REPEATS: Final = (3, 24)
"""Fewest and most repeats of a choice in its graph."""
ROOM: Final = 1 << 20
"""Bytes after every block: the packed filters of another choice may be longer."""


def write_choice(frame: Frame, at: Mapping[str, int], arrays: Mapping[str, int], choice: Choice) -> list[Launch]:
    """The launches of a case alone, and of a batch norm after it, whose work depends on how the sums are computed."""
    frame.restart(at, arrays)
    choice.write(Backward(frame, False))
    following = frame.following(choice.case.steps[-1])
    forward = frame.program.training and choice.case.direction == FORWARD
    if forward and following is not None and following.op == "batch_norm":
        write_step(frame, following)
    return [replace(launch, stream=0, join=False) for launch in frame.launches]


class Bench:
    """Memory for the arrays of a frame's cases, and a stream. Every choice must have been written once."""

    def __init__(self, device: Device, frame: Frame) -> None:
        self._device, self._frame = device, frame
        self._stream = device.new_stream()
        self._blocks = {name: Block(size + ROOM) for name, size in block_sizes(frame, (), 0).items()}
        self._blocks["tables"].put(frame.tables.whole())
        self._blocks["control"].put(make_block(frame.batch, frame.program.target_size, photos=frame.batch))
        for name in ("weights", "packed", "arena"):
            _fill(self._blocks[name])

    def close(self) -> None:
        for block in self._blocks.values():
            block.close()
        check(driver.cuStreamDestroy(self._stream))

    def _sets(self, choice: Choice) -> tuple[list[dict[str, int]], int]:
        """Offsets of a choice's arrays in the arena, for each of the sets used in turn, and the end of the last."""
        write_choice(self._frame, {}, {}, choice)
        sizes = self._frame.array_sizes
        *starts, end = accumulate((blocks_of(size, 1024) * 1024 for size in sizes.values()), initial=0)
        firsts = [0] if 2 * end <= CACHED else [i * end for i in range(SETS)]
        offsets = [{name: first + start for name, start in zip(sizes, starts, strict=True)} for first in firsts]
        return offsets, len(firsts) * end

    def _make_room(self, needed: int) -> None:
        """Enlarge the arena for all choices, before the first of them is captured with its address."""
        if needed > self._blocks["arena"].size:
            self._blocks["arena"].close()
            self._blocks["arena"] = Block(needed)
            _fill(self._blocks["arena"])

    def _capture(self, choice: Choice, sets: Sequence[Mapping[str, int]]) -> tuple[CapturedGraph, int] | None:
        """A graph of repeats of a choice, and their number; None where the GPU refuses to launch it."""
        at = {name: block.address for name, block in self._blocks.items()}
        written = [
            write_choice(self._frame, at, {name: at["arena"] + offset for name, offset in offsets.items()}, choice)
            for offsets in sets
        ]
        most = max(REPEATS[0], min(REPEATS[1], round(DURATION / max(choice.microseconds, 1.0))))
        launches = overlap_launches(self._frame, [n for i in range(most) for n in written[i % len(written)]])

        def record() -> None:
            for n in launches:
                functions[n.recipe].launch(n.grid, n.block, n.shared, self._stream, n.values, n.dependent)

        try:
            functions = self._device.load([launch.recipe for launch in launches])
            record()
        except DeviceError:  # no such instruction, too many registers or too much shared memory for a block
            return None
        self._device.synchronize()
        return CapturedGraph(self._stream, record), most

    def times(self, choices: Sequence[Choice], rounds: int) -> list[float | None]:
        """Median microseconds of each choice over interleaved rounds; None where the GPU refuses to launch it."""
        sets = [self._sets(choice) for choice in choices]
        self._make_room(max((end for _, end in sets), default=0))
        graphs = [self._capture(choice, offsets) for choice, (offsets, _) in zip(choices, sets, strict=True)]
        taken: list[list[float]] = [[] for _ in choices]
        for _ in range(rounds):
            for captured, times in zip(graphs, taken, strict=True):
                if captured is not None:
                    times.append(1e3 * time_replays(captured[0].replay, self._stream, 1) / captured[1])
        for captured in graphs:
            if captured is not None:
                captured[0].close()
        return [median(times) if times else None for times in taken]


def _fill(block: Block) -> None:
    """Fill a block with random bf16 numbers of mean 0, repeated."""
    some = (np.random.default_rng(0).normal(0, 0.5, 1 << 20).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    count = min(some.nbytes, block.size // 2 * 2)
    block.put(some[: count // 2])
    while count < block.size:
        size = min(count, block.size - count)
        check(driver.cuMemcpyDtoD(block.address + count, block.address, size))
        count += size
    check(driver.cuCtxSynchronize())
