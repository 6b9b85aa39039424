"""Processor instructions for cooperating threads: shared counters, a pause, and the floating-point mode.

Numba has no atomics on the CPU; these are LLVM instructions, so that every processor gets its own.
"""

from __future__ import annotations

import os
import platform
from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

I64 = ir.IntType(64)
I32 = ir.IntType(32)
X86: Final = platform.machine().lower() in ("x86_64", "amd64")

FLUSH: Final = 0x8040
"""Bits of MXCSR: denormal results are written as zero (FTZ, bit 15), denormal operands read as zero (DAZ, bit 6)."""


@intrinsic
def add_shared(context, address, more):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Add to the int64 at an address and return the old value (release: earlier writes of this thread are visible)."""

    def emit(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return b.atomic_rmw("add", b.inttoptr(arguments[0], I64.as_pointer()), arguments[1], "acq_rel")

    return types.int64(types.int64, types.int64), emit


@intrinsic
def read_shared(context, address):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Return the int64 at an address (acquire: what others wrote before they added to it is visible)."""

    def emit(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return b.load_atomic(b.inttoptr(arguments[0], I64.as_pointer()), "acquire", 8)

    return types.int64(types.int64), emit


@intrinsic
def pause(context):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Spin for a moment without slowing the other hardware thread of the core."""

    def emit(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        if X86:
            kind = ir.FunctionType(ir.VoidType(), [])
            b.call(cgutils.get_or_insert_function(b.module, kind, "llvm.x86.sse2.pause"), [])
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def give_way(context):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Yield the core to another thread, where the system supports it."""

    def emit(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        if os.name == "posix":
            b.call(cgutils.get_or_insert_function(b.module, ir.FunctionType(I32, []), "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def flush_denormals(context):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """This thread treats denormal floats as zero from here on; gives the mode for `restore_floats`."""

    def emit(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        if not X86:
            return ir.Constant(I64, 0)
        slot = cgutils.alloca_once(b, I32)
        b.call(_mode_function(b, "st"), [slot])
        before = b.load(slot)
        b.store(b.or_(before, ir.Constant(I32, FLUSH)), slot)
        b.call(_mode_function(b, "ld"), [slot])
        return b.zext(before, I64)

    return types.int64(), emit


@intrinsic
def restore_floats(context, mode):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """End `flush_denormals`: NumPy in the same thread computes as before."""

    def emit(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        if X86:
            slot = cgutils.alloca_once(b, I32)
            b.store(b.trunc(arguments[0], I32), slot)
            b.call(_mode_function(b, "ld"), [slot])
        return context.get_dummy_value()

    return types.void(types.int64), emit


def _mode_function(b: ir.IRBuilder, direction: str) -> Any:
    """LLVM's intrinsic that stores ("st") or loads ("ld") MXCSR."""
    kind = ir.FunctionType(ir.VoidType(), [I32.as_pointer()])
    return cgutils.get_or_insert_function(b.module, kind, f"llvm.x86.sse.{direction}mxcsr")
