"""Records: kernel calls as data, encoded as rows of int64, and the compilation of the kernels that they call.

A kernel is ``run(record, context, image, low, high)``: it executes tasks `low` to `high` of the record
for one image. Kernels are called by address, so that the loops of `core.cpu.execution` compile in a second and
a new kernel needs no change to them.

Helpers that compute with floats are inlined (`njit(inline="always")`). Called, each would exist twice,
alone and as a copy within the kernel's own code, optimised differently; which one runs depends on
whether the kernel was just compiled or came from the cache, and the last bits would differ.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types

from core.cpu.instruction_set import cached
from core.cpu.memory import FIELDS, TASKS, make_intrinsic

Words: TypeAlias = npt.NDArray[np.int64]

SIGNATURE: Final = types.void(*[types.int64] * 5)

FAST_MATH: Final = frozenset({"contract", "reassoc", "nsz"})
"""Reassociation and fused multiply-adds are allowed; NaN and infinity keep their meaning."""


@functools.cache
def entry(kernel: Callable[..., Any]) -> Any:
    """Return the compiled kernel; its `address` is field 0 of a record."""
    return cached(numba.cfunc, SIGNATURE, error_model="numpy", fastmath=set(FAST_MATH))(kernel)


def _emit_call(b: ir.IRBuilder, arguments: Sequence[Any]) -> None:
    kernel = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 5).as_pointer()
    b.call(b.inttoptr(arguments[0], kernel), arguments[1:])


call = make_intrinsic(types.void, [types.int64] * 6, _emit_call)
"""``call(address, record, context, image, low, high)`` calls a kernel by its address."""


class Space(Enum):
    """The memory of an address: shared by all threads, of an image (or its thread), or of a thread's gradient."""

    SHARED = "shared"
    SLOT = "slot"
    PRIVATE = "private"


@dataclass(frozen=True, slots=True)
class Address:
    """An offset in bytes from the start of a space; in SHARED an absolute address."""

    space: Space
    bytes: int

    def __add__(self, offset: int) -> Address:
        return Address(self.space, self.bytes + offset)


NULL: Final = Address(Space.SHARED, 0)
Fields: TypeAlias = dict[int, int | Address]


def address_of(array: npt.NDArray[Any], first: int = 0) -> Address:
    """Return the address of element `first` of an array that lives as long as the records."""
    return Address(Space.SHARED, array.ctypes.data + first * array.itemsize)


@dataclass(frozen=True, slots=True)
class Record:
    """One kernel call. `layer`, `direction`, `name`: for reports; `once`: runs once per batch, not once per image."""

    kernel: Callable[..., Any]
    fields: Mapping[int, int | Address]
    tasks: int
    layer: str
    direction: str
    name: str
    once: bool = False


@dataclass(frozen=True, slots=True)
class RecordTable:
    """Encoded records: record i for slot s and thread t is row i of ``words + s * slot_shift + t * thread_shift``."""

    words: Words
    slot_shift: Words
    thread_shift: Words


def encode_records(records: Sequence[Record], slots: tuple[int, int], privates: tuple[int, int]) -> RecordTable:
    """Encode records as integers; `slots` and `privates` are (first address, bytes to the next)."""
    words, slot_shift, thread_shift = (np.zeros((len(records), FIELDS), np.int64) for _ in range(3))
    for i, record in enumerate(records):
        words[i, 0] = entry(record.kernel).address
        words[i, TASKS] = record.tasks
        for field, value in record.fields.items():
            if not isinstance(value, Address):
                words[i, field] = value
            elif value.space is Space.SHARED:
                words[i, field] = value.bytes
            elif value.space is Space.SLOT:
                words[i, field], slot_shift[i, field] = slots[0] + value.bytes, slots[1]
            else:
                words[i, field], thread_shift[i, field] = privates[0] + value.bytes, privates[1]
    return RecordTable(words, slot_shift, thread_shift)
