"""cuBLAS as a yardstick: the vendor's float32 product, called as a student's program would, through ctypes.

The library comes with the extra `cuda`. Where it is missing the rows refuse with a sentence; nothing else of the
engine uses it. Its matrices lie column by column, so a row-major C = A B is asked for as its transpose, B' A'.
Source: cuBLAS's reference, cublasSgemm; float32 sums, no tf32 (its default).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from core.errors import DeviceError
from core.gpu.compilation.cuda import SIMULATED, cuda
from core.gpu.driver.hosted import Arrays, over, stream_address
from core.gpu.kernels.ladder.cases import refuse_fused
from core.gpu.kernels.ladder.reduction import launch_sum_columns
from core.gpu.ops.dense.product import add_bias
from core.ops.registry import Case

AS_IT_LIES: Final = 0
TURNED: Final = 1
MISSING: Final = "cuBLAS is not installed. Install it with: pip install '.[cuda]'"


@cache
def problem() -> str | None:
    """Why cuBLAS cannot be used here, as a sentence, or None."""
    if SIMULATED:
        return "cuBLAS needs a GPU; this is the simulator."
    try:
        _library()
    except (ImportError, OSError, RuntimeError):  # pathfinder's own error of a missing library is a RuntimeError
        return MISSING
    return None


def refuse(case: Case) -> str | None:
    return refuse_fused(case) or problem()


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


def multiply(a: Any, b: Any, c: Any, a_turned: bool = False, b_turned: bool = False) -> None:
    """``c = A B`` on row-major float32 device matrices; a is (K, M) if turned, b is (N, K). Raises DeviceError."""
    m, n = c.shape
    k = a.shape[0] if a_turned else a.shape[1]
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    _checked("cublasSetStream_v2", _handle(), ctypes.c_void_p(stream_address()))
    _checked(
        "cublasSgemm_v2", _handle(), TURNED if b_turned else AS_IT_LIES, TURNED if a_turned else AS_IT_LIES,
        n, m, k, ctypes.byref(one), *_matrix(b), *_matrix(a), ctypes.byref(zero), *_matrix(c),
    )  # fmt: skip


def _matrix(array: Any) -> Sequence[Any]:
    """Address and floats from a row to the next."""
    return ctypes.c_void_p(int(array.__cuda_array_interface__["data"][0])), array.shape[1]


def launch_product(case: Case, arrays: Arrays) -> None:
    multiply(arrays["x"], arrays["x2"], arrays["out"])


def launch_dense_forward(case: Case, arrays: Arrays) -> None:
    multiply(arrays["x"], arrays["weight"], arrays["out"], b_turned=True)
    if "bias" in arrays:
        add_bias[over(arrays["out"].size)](arrays["out"], arrays["bias"])


def launch_dense_backward_input(case: Case, arrays: Arrays) -> None:
    multiply(arrays["dy"], arrays["weight"], arrays["dx"])


def launch_dense_backward_weight(case: Case, arrays: Arrays) -> None:
    multiply(arrays["dy"], arrays["x"], arrays["dweight"], a_turned=True)
    if "dbias" in arrays:
        launch_sum_columns(arrays, arrays["dy"], arrays["dbias"])
