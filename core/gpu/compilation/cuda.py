"""The CUDA front end: kernels and plans import `cuda`, `driver` and types from here only.

numba-cuda is in maintenance mode; its replacement changes this module and `ptx`, but no kernel.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from cuda.bindings import driver
from cuda.pathfinder import DynamicLibNotFoundError
from llvmlite import ir
from numba import cuda
from numba.core import config, types
from numba.cuda.extending import intrinsic

from core.errors import DeviceError

__all__ = [
    "compile_to_ptx", "cuda", "device_function", "driver", "f32", "f64", "i32", "i64", "intrinsic", "ir", "types",
    "u32", "u64", "u8",
]  # fmt: skip

u8: Any = types.uint8
i32: Any = types.int32
u32: Any = types.uint32
i64: Any = types.int64
u64: Any = types.uint64
f32: Any = types.float32
f64: Any = types.float64

config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
"""No warning that a laboratory kernel on a small array leaves the GPU idle."""

def device_function(function: Callable[..., Any]) -> Any:
    """Decorator of functions that kernels call; they are inlined."""
    return cuda.jit(device=True, forceinline=True)(function)


def compile_to_ptx(
    function: Callable[..., Any], signature: tuple[Any, ...], capability: tuple[int, int],
    bounds: tuple[int, int] | None, fast: bool = True,
) -> tuple[str, str]:  # fmt: skip
    """(PTX, entry name) of a kernel for a compute capability; needs no GPU.

    bounds: threads per block, blocks per multiprocessor. `fast` arithmetic assumes finite numbers. Raises DeviceError.
    """
    device = SimpleNamespace(compute_capability=capability)  # device functions ask the current GPU for it
    try:
        with patch("numba.cuda.dispatcher.get_current_device", lambda: device):
            ptx, _ = cuda.compile(function, signature, cc=capability, output="ptx", abi="numba", device=False,
                                  fastmath=fast, launch_bounds=bounds)
    except DynamicLibNotFoundError as error:
        raise DeviceError("NVVM, which compiles kernels, is missing. Install it with: pip install '.[cuda]'") from error
    # The compiler writes its own, newest version; older drivers accept the same text with an older version.
    version = "8.0" if capability < (10, 0) else "8.7"
    ptx = re.sub(r"^\.version .*$", f".version {version}", ptx, count=1, flags=re.MULTILINE)
    entry = re.search(r"\.visible \.entry (\w+)\(", ptx)
    assert entry is not None
    return ptx, entry.group(1)
