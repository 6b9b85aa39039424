"""The one module through which kernels reach Numba CUDA, so that the front end can be exchanged here."""

from __future__ import annotations

from typing import Final

from numba import cuda
from numba.cuda import types
from numba.cuda.core import config
from numba.cuda.extending import intrinsic
from numba.cuda.types import boolean, float32, float64, int32, int64, uint8, uint16, uint32, uint64

SIMULATED: Final = bool(config.ENABLE_CUDASIM)
"""True where NUMBA_ENABLE_CUDASIM=1: kernels run as plain Python, one thread each (0.35 ms a thread)."""

__all__ = [
    "SIMULATED", "boolean", "cuda", "float32", "float64", "int32", "int64", "intrinsic", "types",
    "uint8", "uint16", "uint32", "uint64",
]
