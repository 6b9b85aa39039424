"""Addresses as arrays, for kernels that read records of int64, and memory aligned for vectors."""

from __future__ import annotations

import ctypes
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


@intrinsic
def _float_pointer(context, address):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return types.CPointer(types.float32)(types.int64), _emit(ir.FloatType())


@intrinsic
def _word_pointer(context, address):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return types.CPointer(types.int64)(types.int64), _emit(ir.IntType(64))


@intrinsic
def _int32_pointer(context, address):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return types.CPointer(types.int32)(types.int64), _emit(ir.IntType(32))


@intrinsic
def _double_pointer(context, address):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return types.CPointer(types.float64)(types.int64), _emit(ir.DoubleType())


@intrinsic
def _byte_pointer(context, address):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return types.CPointer(types.uint8)(types.int64), _emit(ir.IntType(8))


def _emit(element: ir.Type) -> Any:
    def emit(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], element.as_pointer())

    return emit


@njit(inline="always")
def floats(address, count):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """float32 array of `count` at an address."""
    return carray(_float_pointer(address), count)


@njit(inline="always")
def words(address):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """The int64 fields of a record or of the context."""
    return carray(_word_pointer(address), FIELDS)


@njit(inline="always")
def int32s(address, count):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """int32 array of `count` at an address."""
    return carray(_int32_pointer(address), count)


@njit(inline="always")
def doubles(address, count):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """float64 array of `count` at an address."""
    return carray(_double_pointer(address), count)


@njit(inline="always")
def bytes_at(address, count):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """uint8 array of `count` at an address."""
    return carray(_byte_pointer(address), count)


def aligned(count: int) -> F32:
    """Zeroed float32 array of `count` on a cache line, with `SLACK` readable bytes after it."""
    size = count + (LINE + SLACK) // 4
    block = np.zeros(size, np.float32)
    first = (-block.ctypes.data % LINE) // 4
    return block[first : first + count]


def view_at(address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> F32:
    """A strided float32 view on memory that someone else keeps alive."""
    reach = sum((side - 1) * stride for side, stride in zip(shape, strides, strict=True)) + 4
    block = memoryview((ctypes.c_char * reach).from_address(address))
    return np.ndarray(shape, np.float32, block, 0, strides)
