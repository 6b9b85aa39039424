"""Processor instructions for cooperating threads: shared counters, a pause, and the floating-point mode.

Numba has no atomics on the CPU; these are LLVM instructions, so that every processor has them.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from typing import Any, Final

from llvmlite import ir
from numba import config, types
from numba.core import cgutils

from core.cpu.memory import make_intrinsic

I64 = ir.IntType(64)
I32 = ir.IntType(32)
X86: Final = platform.machine().lower() in ("x86_64", "amd64")

FLUSH: Final = 0x8040
"""Bits of MXCSR: denormal results are written as zero (FTZ, bit 15), denormal operands read as zero (DAZ, bit 6)."""


def _call(b: ir.IRBuilder, name: str, result: ir.Type, *arguments: Any) -> None:
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    b.call(cgutils.get_or_insert_function(b.module, kind, name), arguments)


def _emit_pause(b: ir.IRBuilder, arguments: Sequence[Any]) -> None:
    if X86:
        _call(b, "llvm.x86.sse2.pause", ir.VoidType())


def _emit_yield(b: ir.IRBuilder, arguments: Sequence[Any]) -> None:
    if os.name == "posix":
        _call(b, "sched_yield", I32)


def _emit_limit(b: ir.IRBuilder, arguments: Sequence[Any]) -> Any:
    if config.THREADING_LAYER != "omp":  # loops run on one thread (`core.cpu.execution.has_openmp`)
        return arguments[0]
    get = cgutils.get_or_insert_function(b.module, ir.FunctionType(I64, []), "get_num_threads")
    before = b.trunc(b.call(get, []), I32)
    wanted = b.trunc(arguments[0], I32)
    _call(b, "set_num_threads", ir.VoidType(), b.select(b.icmp_signed("<", wanted, before), wanted, before))
    return b.zext(before, I64)


def _emit_set(b: ir.IRBuilder, arguments: Sequence[Any]) -> None:
    if config.THREADING_LAYER == "omp":
        _call(b, "set_num_threads", ir.VoidType(), b.trunc(arguments[0], I32))


def _emit_flush(b: ir.IRBuilder, arguments: Sequence[Any]) -> Any:
    if not X86:
        return ir.Constant(I64, 0)
    slot = cgutils.alloca_once(b, I32)
    _call(b, "llvm.x86.sse.stmxcsr", ir.VoidType(), slot)
    before = b.load(slot)
    b.store(b.or_(before, ir.Constant(I32, FLUSH)), slot)
    _call(b, "llvm.x86.sse.ldmxcsr", ir.VoidType(), slot)
    return b.zext(before, I64)


def _emit_restore(b: ir.IRBuilder, arguments: Sequence[Any]) -> None:
    if X86:
        slot = cgutils.alloca_once(b, I32)
        b.store(b.trunc(arguments[0], I32), slot)
        _call(b, "llvm.x86.sse.ldmxcsr", ir.VoidType(), slot)


add_shared = make_intrinsic(
    types.int64, [types.int64] * 2,
    lambda b, a: b.atomic_rmw("add", b.inttoptr(a[0], I64.as_pointer()), a[1], "acq_rel"),
)  # fmt: skip
"""Add to the int64 at an address and return the old value (release: earlier writes of this thread are visible)."""

read_shared = make_intrinsic(
    types.int64, [types.int64], lambda b, a: b.load_atomic(b.inttoptr(a[0], I64.as_pointer()), "acquire", 8)
)
"""Return the int64 at an address (acquire: writes of other threads before they added to it are visible)."""

pause = make_intrinsic(types.void, [], _emit_pause)
"""Wait for a moment without slowing the other hardware thread of the core."""

give_way = make_intrinsic(types.void, [], _emit_yield)
"""Yield the core to another thread, if the system supports it."""

limit_team = make_intrinsic(types.int64, [types.int64], _emit_limit)
"""Limit the threads of this thread's next parallel loops; returns the number before, for `set_team`.

Numba otherwise starts, and waits for, a thread for every core that the process had when Numba was imported."""

set_team = make_intrinsic(types.void, [types.int64], _emit_set)
"""Set the threads of this thread's next parallel loops."""

flush_denormals = make_intrinsic(types.int64, [], _emit_flush)
"""Treat denormal floats as zero in this thread; returns the mode for `restore_floats`."""

restore_floats = make_intrinsic(types.void, [types.int64], _emit_restore)
"""Restore the mode from before `flush_denormals`, so that NumPy computes in this thread as before."""
