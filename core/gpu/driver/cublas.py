"""cuBLAS's float32 matrix product as a function that a plan launches and captures, for comparison with our kernels.

The library comes with the extra `cuda`. Its matrices are column-major, so a row-major C = A B is computed as its
transpose, B' A'. Source: cuBLAS's reference, cublasSgemm; float32 sums, no tf32 (its default).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from core.errors import DeviceError

MODULE: Final = "cublas"
"""Module of the recipes whose launches call the library."""
MISSING: Final = "cuBLAS is not installed. Install it with: pip install '.[cuda]'"


@cache
def problem() -> str:
    """Why cuBLAS cannot be used here, as a sentence, or ""."""
    try:
        _library()
    except (ImportError, OSError, RuntimeError):  # pathfinder's own error of a missing library is a RuntimeError
        return MISSING
    return ""


@cache
def _library() -> ctypes.CDLL:
    from cuda.pathfinder import load_nvidia_dynamic_lib

    return ctypes.CDLL(load_nvidia_dynamic_lib("cublas").abs_path)


def _checked(name: str, *arguments: Any) -> None:
    status = _library()[name](*arguments)
    if status:
        raise DeviceError(f"cuBLAS answered {name} with status {status}. Close other programs on the GPU; start again.")


class Sgemm:
    """``c = A B + beta c``; a launch's values are (A transposed, B transposed, rows, columns, depth, a, b, c, beta)."""

    def __init__(self) -> None:
        self._handle = ctypes.c_void_p()
        _checked("cublasCreate_v2", ctypes.byref(self._handle))

    def launch(
        self, grid: Sequence[int], block: Sequence[int], shared: int, stream: Any, values: Sequence[Any],
        dependent: bool = False,
    ) -> None:  # fmt: skip
        """Queue one product; `a`, `b` and `c` are addresses of row-major matrices."""
        a_transposed, b_transposed, rows, columns, depth, a, b, c, beta = values
        one, factor = ctypes.c_float(1), ctypes.c_float(beta)
        a_row, b_row = rows if a_transposed else depth, depth if b_transposed else columns
        _checked("cublasSetStream_v2", self._handle, ctypes.c_void_p(int(stream)))
        _checked(
            "cublasSgemm_v2", self._handle, int(b_transposed), int(a_transposed), columns, rows, depth,
            ctypes.byref(one), ctypes.c_void_p(b), b_row, ctypes.c_void_p(a), a_row,
            ctypes.byref(factor), ctypes.c_void_p(c), columns,
        )  # fmt: skip

    def allow_shared(self, shared: int) -> None:
        """Nothing to do: the library needs none of ours."""

    def close(self) -> None:
        _checked("cublasDestroy_v2", self._handle)
