"""Launches on a caller's arrays, prepared once and queued again for each run; host arrays are copied there and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias
from weakref import finalize

import numpy as np

from core.gpu.compilation.cuda import cuda, driver
from core.gpu.driver.device import Device, check, open_device
from core.gpu.driver.memory import Block
from core.gpu.launch import Launch
from core.ops.contract import Array
from core.ops.registry import KernelCase

Arrays: TypeAlias = dict[str, Any]
Run: TypeAlias = Callable[[KernelCase, Arrays], None]
Allocate: TypeAlias = Callable[[Mapping[str, int], Mapping[str, Array]], dict[str, int]]
"""Addresses of new arrays, by their sizes in bytes and the contents of some of them."""

_streams: list[Any] = [0]


@contextmanager
def on_stream(stream: Any) -> Iterator[None]:
    """Launches inside go to this Numba stream instead of the default one; needed to capture a CUDA graph."""
    _streams.append(stream)
    try:
        yield
    finally:
        _streams.pop()


def current_stream() -> Any:
    """The Numba stream in use, 0 for the default one."""
    return _streams[-1]


def stream_address() -> int:
    """The stream in use as the driver's number, 0 for the default one."""
    handle = getattr(_streams[-1], "handle", _streams[-1])
    return int(getattr(handle, "value", handle) or 0)


def hosted(run: Run, *writes: str) -> Run:
    """`run` for arrays on the host or the device; the host arrays named in `writes` are copied back."""

    def either(case: KernelCase, arrays: Arrays) -> None:
        if not any(isinstance(value, np.ndarray) for value in arrays.values()):
            run(case, arrays)
            return
        device = {
            name: cuda.to_device(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value
            for name, value in arrays.items()
        }
        run(case, device)
        for name in writes:
            if name in arrays:
                arrays[name][...] = device[name].copy_to_host().reshape(arrays[name].shape)

    return either


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy between addresses of the device."""

    target: int
    source: int
    bytes: int


Work: TypeAlias = Sequence[Copy | Launch]
"""What one run queues, in order."""


class Prepared:
    """Work on given device arrays. Memory of its own, `blocks` by name, is freed with it."""

    def __init__(self, make: Callable[[Device, Allocate], Work]) -> None:
        self._device = device = open_device()
        self.blocks: dict[str, Block] = {}
        self._work = make(device, self._allocate)
        self._functions = device.load([item.recipe for item in self._work if isinstance(item, Launch)])

    def _allocate(self, sizes: Mapping[str, int], contents: Mapping[str, Array]) -> dict[str, int]:
        self.blocks = {name: Block(size) for name, size in sizes.items()}
        for block in self.blocks.values():
            finalize(self, block.close)
        for name, values in contents.items():
            self.blocks[name].put(values)
        return {name: block.address for name, block in self.blocks.items()}

    def run(self) -> None:
        """Queue everything on the stream in use."""
        self._device.activate()
        stream = driver.CUstream(stream_address())
        for item in self._work:
            if isinstance(item, Copy):
                check(driver.cuMemcpyDtoDAsync(item.target, item.source, item.bytes, stream))
            else:
                self._functions[item.recipe].launch(item.grid, item.block, item.shared, stream, item.values)


def addresses_of(arrays: Arrays) -> dict[str, int]:
    """Addresses of the device arrays among `arrays`."""
    interfaces = {name: getattr(array, "__cuda_array_interface__", None) for name, array in arrays.items()}
    return {name: int(interface["data"][0]) for name, interface in interfaces.items() if interface}
