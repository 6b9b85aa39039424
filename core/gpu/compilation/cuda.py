"""The one door to the CUDA front end: kernels and plans import `cuda`, `types` and `driver` from here.

numba-cuda is in maintenance mode; when its successor is taken, this module and `ptx` change and no kernel does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from cuda.bindings import driver
from llvmlite import ir
from numba import cuda
from numba.core import config, types
from numba.cuda.extending import intrinsic

__all__ = ["compile_to_ptx", "cuda", "device_function", "driver", "intrinsic", "ir", "types"]


config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
"""A laboratory kernel on a small array is meant to be small: no warning that the GPU is not full."""

def device_function(function: Callable[..., Any]) -> Any:
    """Decorator of functions that kernels call; they are inlined."""
    return cuda.jit(device=True, forceinline=True)(function)


def compile_to_ptx(
    function: Callable[..., Any], signature: tuple[Any, ...], capability: tuple[int, int],
    bounds: tuple[int, int] | None, fast: bool = True,
) -> tuple[str, str]:  # fmt: skip
    """(PTX, entry name) of a kernel for a compute capability; needs no GPU.

    bounds: threads a block, blocks a multiprocessor. `fast` arithmetic takes every number for finite.
    """
    with _pretend_device(capability):
        ptx, _ = cuda.compile(
            function, signature, cc=capability, output="ptx", abi="numba", device=False, fastmath=fast,
            launch_bounds=bounds,
        )
    # The compiler stamps its own, newest version; older drivers read the same text under the older stamp.
    version = "8.0" if capability < (10, 0) else "8.7"
    ptx = re.sub(r"^\.version .*$", f".version {version}", ptx, count=1, flags=re.MULTILINE)
    entry = re.search(r"\.visible \.entry (\w+)\(", ptx)
    assert entry is not None
    return ptx, entry.group(1)


@contextmanager
def _pretend_device(capability: tuple[int, int]) -> Iterator[None]:
    """Device functions ask the current GPU for its capability; without a GPU this answers."""
    device = SimpleNamespace(compute_capability=capability)
    with patch("numba.cuda.dispatcher.get_current_device", lambda: device):
        yield
