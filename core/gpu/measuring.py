"""Times ways to compute one case on the GPU that is there: interleaved, each as a captured graph of repeats.

Arrays hold random bf16 numbers. Large ones are several sets in turn, so that none is found in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Final, final

import numpy as np

from core.errors import DeviceError
from core.gpu.compilation.cuda import driver
from core.gpu.control import make_block
from core.gpu.driver.device import Device, check
from core.gpu.driver.memory import Block
from core.gpu.frame import Addresses, Frame
from core.gpu.gradients import Backward
from core.gpu.graph_capture import CapturedGraph, Event
from core.gpu.launch import Launch
from core.gpu.launch_lists import chain
from core.gpu.lowering import write_step
from core.gpu.select import FORWARD, Choice
from core.gpu.sizes import block_sizes

SETS: Final = 3
"""Sets of arrays in turn."""
CACHED: Final = 64 << 20
"""Bytes of two sets that a GPU's second cache may hold."""
DURATION: Final = 100.0
"""Microseconds that a graph should take at least."""
REPEATS: Final = (3, 24)
"""Fewest and most repeats of a way in its graph."""
ROOM: Final = 1 << 20
"""Bytes behind every region: another way's packed filters may be longer."""


def write_way(frame: Frame, where: Addresses, choice: Choice) -> list[Launch]:
    """The launches of a case alone, and of the batch norm behind it, whose work depends on how the sums are made."""
    frame.restart(where)
    choice.write(Backward(frame, False))
    following = frame.following(choice.case.steps[-1])
    behind = following is not None and following.op == "batch_norm" and frame.program.training
    if behind and choice.case.direction == FORWARD and following is not None:
        write_step(frame, following)
    return [replace(launch, stream=0, join=False) for launch in frame.launches]


@final
class Bench:
    """Memory for the arrays of a frame's cases, and a stream. Every way must have been written once (`write_way`)."""

    def __init__(self, device: Device, frame: Frame) -> None:
        self._device, self._frame = device, frame
        self._stream = device.new_stream()
        self._blocks = {name: Block(size + ROOM) for name, size in block_sizes(frame, (), 0).items()}
        self._blocks["tables"].put(frame.all_tables())
        self._blocks["control"].put(make_block(frame.batch, frame.program.taught, photos=frame.batch))
        for name in ("weights", "packed", "arena"):
            _fill(self._blocks[name])

    def close(self) -> None:
        for block in self._blocks.values():
            block.close()
        check(driver.cuStreamDestroy(self._stream))

    def _sets(self, choice: Choice) -> list[list[Launch]]:
        """The way's launches, once for each set of arrays."""
        write_way(self._frame, Addresses(), choice)
        offsets, end = {}, 0
        for name, size in self._frame.array_sizes.items():
            offsets[name] = end
            end += -(-size // 1024) * 1024
        count = 1 if 2 * end <= CACHED else SETS
        if count * end > self._blocks["arena"].size:
            self._blocks["arena"].close()
            self._blocks["arena"] = Block(count * end)
            _fill(self._blocks["arena"])
        at = {name: block.address for name, block in self._blocks.items()}
        found = []
        for i in range(count):
            found.append(write_way(self._frame, Addresses.of(at, at["arena"] + i * end, offsets), choice))
        return found

    def _capture(self, choice: Choice) -> tuple[CapturedGraph, int] | None:
        """A graph of repeats of a way, and how many; None where the GPU refuses to launch it."""
        sets = self._sets(choice)
        most = max(REPEATS[0], min(REPEATS[1], round(DURATION / max(choice.microseconds, 1.0))))
        launches = chain(self._frame, [launch for i in range(most) for launch in sets[i % len(sets)]])

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

    def times(self, ways: Sequence[Choice], rounds: int) -> list[float | None]:
        """Microseconds of each, the median of the rounds; None for a way that the GPU refuses."""
        graphs = [self._capture(way) for way in ways]
        taken: list[list[float]] = [[] for _ in ways]
        before, after = Event(timing=True), Event(timing=True)
        for _ in range(rounds):
            for found, times in zip(graphs, taken, strict=True):
                if found is not None:
                    before.record(self._stream)
                    found[0].replay()
                    after.record(self._stream)
                    times.append(1e3 * after.milliseconds_since(before) / found[1])
        for found in graphs:
            if found is not None:
                found[0].close()
        before.close()
        after.close()
        return [median(times) if times else None for times in taken]


def _fill(block: Block) -> None:
    """Random bf16 numbers of mean 0, repeated."""
    some = (np.random.default_rng(0).normal(0, 0.5, 1 << 20).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    count = min(some.nbytes, block.size // 2 * 2)
    block.put(some[: count // 2])
    while count < block.size:
        size = min(count, block.size - count)
        check(driver.cuMemcpyDtoD(block.address + count, block.address, size))
        count += size
    check(driver.cuCtxSynchronize())
