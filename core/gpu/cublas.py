"""cuBLAS for comparison: the vendor's float32 product, called through ctypes.

The library comes with the extra `cuda`. Where it is missing the entry refuses with a sentence; nothing else of the
engine uses it. Its matrices are stored column by column, so a row-major C = A B is asked for as its transpose, B' A'.
Source: cuBLAS's reference, cublasSgemm; float32 sums, no tf32 (its default).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from core.errors import DeviceError
from core.gpu.compilation.cuda import cuda
from core.gpu.driver.hosted import Arrays, stream_address
from core.ops.registry import KernelCase

NOT_TRANSPOSED: Final = 0
MISSING: Final = "cuBLAS is not installed. Install it with: pip install '.[cuda]'"


@cache
def problem() -> str | None:
    """Why cuBLAS cannot be used here, as a sentence, or None."""
    try:
        _library()
    except (ImportError, OSError, RuntimeError):  # pathfinder's own error of a missing library is a RuntimeError
        return MISSING
    return None


def refuse(case: KernelCase) -> str | None:
    return problem()


@cache
def _library() -> ctypes.CDLL:
    from cuda.pathfinder import load_nvidia_dynamic_lib

    return ctypes.CDLL(load_nvidia_dynamic_lib("cublas").abs_path)


@cache
def _handle() -> ctypes.c_void_p:
    """One for the process: creating it costs a hundred small products."""
    cuda.current_context()
    handle = ctypes.c_void_p()
    _checked("cublasCreate_v2", ctypes.byref(handle))
    return handle


def _checked(name: str, *arguments: Any) -> None:
    status = _library()[name](*arguments)
    if status:
        raise DeviceError(f"cuBLAS answered {name} with status {status}. Close other programs on the GPU; start again.")


def multiply(a: Any, b: Any, c: Any) -> None:
    """``c = A B`` on row-major float32 device matrices. Raises DeviceError."""
    (m, n), k = c.shape, a.shape[1]
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    _checked("cublasSetStream_v2", _handle(), ctypes.c_void_p(stream_address()))
    _checked(
        "cublasSgemm_v2", _handle(), NOT_TRANSPOSED, NOT_TRANSPOSED,
        n, m, k, ctypes.byref(one), *_matrix(b), *_matrix(a), ctypes.byref(zero), *_matrix(c),
    )  # fmt: skip


def _matrix(array: Any) -> Sequence[Any]:
    """Address and floats from a row to the next."""
    return ctypes.c_void_p(int(array.__cuda_array_interface__["data"][0])), array.shape[1]


def run(case: KernelCase, arrays: Arrays) -> None:
    """As a kernel entry, on device matrices x, x2 and out."""
    multiply(arrays["x"], arrays["x2"], arrays["out"])
