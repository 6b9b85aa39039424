"""Kernels as machine addresses: each is compiled alone, when first needed, and called through its address.

A kernel is ``run(record, context, image, low, high)``: it does tasks `low` to `high` of the record
for one image. Because kernels are called by address, the loops of `core.cpu.execution` compile in a second and
a new kernel needs no change to them.

Helpers that compute with floats are inlined (`njit(inline="always")`). Called, each would exist twice,
alone and as a copy within the kernel's own code, optimised differently; which one runs depends on
whether the kernel was just compiled or came from the cache, and the last bits would differ.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from core.cpu.instruction_set import cached

SIGNATURE: Final = types.void(*[types.int64] * 5)

MATH: Final = frozenset({"contract", "reassoc", "nsz"})
"""Reassociation and fused multiply-adds are allowed; NaN and infinity keep their meaning."""


@functools.cache
def entry(kernel: Callable[..., Any]) -> Any:
    """The compiled kernel; its `address` goes into field 0 of a record."""
    return cached(numba.cfunc, SIGNATURE, error_model="numpy", fastmath=set(MATH))(kernel)


@intrinsic
def call(context, address, record, run, image, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Call a kernel by its address."""
    word = ir.IntType(64)

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [word] * 5).as_pointer()
        builder.call(builder.inttoptr(arguments[0], kind), arguments[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), emit
