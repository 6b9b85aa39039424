"""Copies and launches prepared once for a caller's device arrays, and queued again for each run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final
from weakref import finalize

from core.gpu.compilation.cuda import driver
from core.gpu.driver.device import Device, check, open_device
from core.gpu.driver.hosted import stream_address
from core.gpu.driver.memory import Block
from core.gpu.launch import Launch
from core.ops.contract import Array

Allocate: TypeAlias = Callable[[Mapping[str, int], Mapping[str, Array]], dict[str, int]]
"""Addresses of arrays of so many bytes, the named ones filled with these contents."""


@final
@dataclass(frozen=True, slots=True)
class Copy:
    """A copy between addresses of the device."""

    target: int
    source: int
    bytes: int


@final
@dataclass(frozen=True, slots=True)
class Work:
    """What one run queues, in this order."""

    before: tuple[Copy, ...]
    launches: tuple[Launch, ...]
    after: tuple[Copy, ...]


@final
class Prepared:
    """Work on given device arrays; its own memory, `blocks` by name, goes with it."""

    def __init__(self, make: Callable[[Device, Allocate], Work]) -> None:
        self._device = device = open_device()
        self.blocks: dict[str, Block] = {}
        self._work = make(device, self._allocate)
        self._functions = device.load([launch.recipe for launch in self._work.launches])

    def _allocate(self, sizes: Mapping[str, int], contents: Mapping[str, Array]) -> dict[str, int]:
        self.blocks = {name: Block(size) for name, size in sizes.items()}
        for name, values in contents.items():
            self.blocks[name].put(values)
        finalize(self, close_blocks, list(self.blocks.values()))
        return {name: block.address for name, block in self.blocks.items()}

    def run(self) -> None:
        """Queue everything on the stream in use."""
        self._device.activate()
        stream = driver.CUstream(stream_address())
        for copy in self._work.before:
            check(driver.cuMemcpyDtoDAsync(copy.target, copy.source, copy.bytes, stream))
        for launch in self._work.launches:
            self._functions[launch.recipe].launch(launch.grid, launch.block, launch.shared, stream, launch.values)
        for copy in self._work.after:
            check(driver.cuMemcpyDtoDAsync(copy.target, copy.source, copy.bytes, stream))


def close_blocks(blocks: Sequence[Block]) -> None:
    """Give the memory back, once nobody can run the launches any more."""
    for block in blocks:
        block.close()


def address_of(array: Any) -> int:
    """Where a device array lies."""
    return int(array.__cuda_array_interface__["data"][0])
