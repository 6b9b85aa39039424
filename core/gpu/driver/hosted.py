"""Runs work on arrays of a dict: host arrays are copied to the device and back, device arrays stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from core.gpu.compilation.cuda import cuda
from core.ops.registry import KernelCase

Arrays: TypeAlias = dict[str, Any]
Run: TypeAlias = Callable[[KernelCase, Arrays], None]


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


_streams: list[Any] = [0]


def hosted(run: Run, *writes: str) -> Run:
    """`run` for arrays of either place; the host arrays named in `writes` are copied back."""

    def either(case: KernelCase, arrays: Arrays) -> None:
        if not any(isinstance(value, np.ndarray) for value in arrays.values()):
            run(case, arrays)
            return
        device = {name: _to_device(value) for name, value in arrays.items()}
        run(case, device)
        for name in writes:
            if name in arrays:
                arrays[name][...] = device[name].copy_to_host().reshape(arrays[name].shape)

    return either


def _to_device(value: Any) -> Any:
    return cuda.to_device(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value
