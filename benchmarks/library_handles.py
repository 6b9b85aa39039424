"""What it costs to create the vendor's library handles, apart from any work: medians of ten.

A program that creates a handle for every layer pays this every time; ours has none.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable

LIBRARIES = (
    ("cublas", ("libcublas.so.13", "libcublas.so.12"), "cublasCreate_v2", "cublasDestroy_v2"),
    ("cudnn", ("libcudnn.so.9",), "cudnnCreate", "cudnnDestroy"),
)


def time_handles() -> dict[str, float]:
    """Milliseconds of creating and destroying a handle of each library that PyTorch has loaded."""
    found = {}
    for name, files, create, destroy in LIBRARIES:
        library = _open(files)
        if library is not None:
            found[f"{name} handle"] = statistics.median(_time(library, create, destroy) for _ in range(10)) * 1e3
    return found


def _open(files: tuple[str, ...]) -> ctypes.CDLL | None:
    for file in files:
        try:
            return ctypes.CDLL(file)
        except OSError:
            continue
    return None


def _time(library: ctypes.CDLL, create: str, destroy: str) -> float:
    handle = ctypes.c_void_p()
    begin = time.perf_counter()
    _checked(library[create], ctypes.byref(handle))
    seconds = time.perf_counter() - begin
    _checked(library[destroy], handle)
    return seconds


def _checked(function: Callable[..., int], *arguments: object) -> None:
    status = function(*arguments)
    if status:
        raise RuntimeError(f"The library answered with status {status}.")
