"""Launches teaching kernels on arrays of a dict: host arrays travel to the device and back, device arrays stay.

A launcher is `launch(case, arrays)` on device arrays. `hosted` makes of it the `run` of a table row,
so that tests hand in NumPy arrays and the laboratory device arrays, and both go the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import numpy as np

from core.gpu.compilation.cuda import SIMULATED, cuda, driver
from core.gpu.compilation.hopper import ptx_for_hopper
from core.gpu.driver.device import Function, check
from core.ops.registry import Case

Arrays: TypeAlias = dict[str, Any]
Launcher: TypeAlias = Callable[[Case, Arrays], None]

THREADS: Final = 32 if SIMULATED else 256
"""Threads of a block of a one-dimensional kernel; the simulator pays 0.35 ms for each, idle or not."""

SHARED_BYTES: Final = 48 * 1024
"""Shared memory a block may have on every GPU without asking for more."""


def blocks(count: int, each: int = THREADS) -> int:
    """Blocks needed for `count` items, at least one."""
    return max(1, -(-count // each))


def over(count: int, each: int = 1) -> tuple[Any, ...]:
    """Launch configuration of one thread per `each` items."""
    return at((blocks(blocks(count, each)),), (THREADS,))


def at(grid: tuple[int, ...], block: tuple[int, ...], shared: int = 0) -> tuple[Any, ...]:
    """Launch configuration: blocks, threads of a block, the stream in use, bytes of dynamic shared memory."""
    return grid, block, _streams[-1], shared


@contextmanager
def on_stream(stream: Any) -> Iterator[None]:
    """Launches inside go to this Numba stream instead of the default one; needed to capture a CUDA graph."""
    _streams.append(stream)
    try:
        yield
    finally:
        _streams.pop()


def stream_address() -> int:
    """The stream in use as the driver's number, 0 for the default one."""
    handle = getattr(_streams[-1], "handle", _streams[-1])
    return int(getattr(handle, "value", handle) or 0)


_streams: list[Any] = [0]


def hosted(launch: Launcher, *writes: str) -> Launcher:
    """`launch` for arrays of either place; the host arrays named in `writes` are copied back."""

    def run(case: Case, arrays: Arrays) -> None:
        if not any(isinstance(value, np.ndarray) for value in arrays.values()):
            launch(case, arrays)
            return
        device = {name: _to_device(value) for name, value in arrays.items()}
        launch(case, device)
        for name in writes:
            if name in arrays:
                arrays[name][...] = device[name].copy_to_host().reshape(arrays[name].shape)

    return run


def _to_device(value: Any) -> Any:
    return cuda.to_device(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value


def load_for_hopper(kernel: Any, kinds: tuple[str, ...], threads: int) -> Function:
    """A kernel whose instructions are Hopper's own, on the current GPU, which must be one."""
    text, entry = ptx_for_hopper(kernel, kinds, threads)
    cuda.current_context()  # the driver loads into it
    module = check(driver.cuModuleLoadData(text.encode() + b"\0"))
    return Function(check(driver.cuModuleGetFunction(module, entry.encode())), kinds)


def scratch(arrays: Arrays, name: str, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    """A device array of this shape, kept in `arrays` so that a second run allocates nothing."""
    name = f"scratch {name}"
    found = arrays.get(name)
    if found is None or found.shape != shape:
        arrays[name] = found = cuda.device_array(shape, dtype)
    return found


def flat(array: Any) -> Any:
    """The same memory as one dimension."""
    return array.reshape(array.size)


def as_matrix(array: Any) -> Any:
    """The same memory, ``(..., C)`` as ``(everything else, C)``."""
    channels = tuple(array.shape)[-1]
    return array.reshape(array.size // channels, channels)


def zeros(arrays: Arrays, name: str, size: int) -> Any:
    """A device vector of zeros, kept in `arrays`: the bias of a layer that has none."""
    name = f"zeros {name}"
    if name not in arrays:
        arrays[name] = cuda.to_device(np.zeros(size, np.float32))
    return arrays[name]
