"""Memory as kernels see it: addresses as arrays, functions written as LLVM IR, and arrays aligned for vectors."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import carray, njit, types
from numba.extending import intrinsic

FIELDS: Final = 56
"""int64 fields of a record; field 0 is the address of its kernel."""

TASKS: Final = 47
"""Field with the number of tasks of a record."""

LINE: Final = 64
"""Bytes of a cache line. Kernels are faster on buffers aligned to it than on 16 bytes."""

SLACK: Final = 512
"""Bytes that may be read past a buffer's end: the widest tile loads 256 bytes from its last valid float."""

F32: TypeAlias = npt.NDArray[np.float32]


def make_intrinsic(
    result: types.Type, arguments: Sequence[types.Type], emit: Callable[[ir.IRBuilder, Sequence[Any]], Any]
) -> Any:
    """Return a function for kernels whose code `emit(builder, arguments)` writes; it returns the result unless void."""

    def function(context: Any, *_: Any) -> Any:
        def code(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[Any]) -> Any:
            value = emit(builder, values)
            return context.get_dummy_value() if result is types.void else value

        return result(*arguments), code

    names = ("context", *(f"argument{i}" for i in range(len(arguments))))
    parameters = [Parameter(name, Parameter.POSITIONAL_ONLY) for name in names]
    function.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # Numba reads the number of arguments
    return intrinsic(function)


def _array_reader(element: types.Type, code: ir.Type) -> Any:
    """Return a function ``array(address, count)`` for kernels that views memory as an array of `element`."""
    result = types.CPointer(element)
    pointer = make_intrinsic(result, [types.int64], lambda b, a: b.inttoptr(a[0], code.as_pointer()))

    @njit(inline="always")
    def array(address, count):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return carray(pointer(address), count)

    return array


floats = _array_reader(types.float32, ir.FloatType())
doubles = _array_reader(types.float64, ir.DoubleType())
int32s = _array_reader(types.int32, ir.IntType(32))
int64s = _array_reader(types.int64, ir.IntType(64))
bytes_at = _array_reader(types.uint8, ir.IntType(8))


@njit(inline="always")
def words(address):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Return the int64 fields of a record or of the context."""
    return int64s(address, FIELDS)


def aligned(count: int) -> F32:
    """Return a zeroed float32 array of `count` on a cache line, with `SLACK` readable bytes after it."""
    size = count + (LINE + SLACK) // 4
    block = np.zeros(size, np.float32)
    first = (-block.ctypes.data % LINE) // 4
    return block[first : first + count]


def view_at(address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> F32:
    """Return a strided float32 view of memory that the caller keeps alive."""
    reach = sum((side - 1) * stride for side, stride in zip(shape, strides, strict=True)) + 4
    block = memoryview((ctypes.c_char * reach).from_address(address))
    return np.ndarray(shape, np.float32, block, 0, strides)
