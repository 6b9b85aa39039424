"""The register tile of max pooling: one window, up to four vectors of channels, as LLVM IR.

Loops over channels in memory store and load the running maximum for every tap; here it stays in registers
(3 x 3 windows of 64 channels, 111 x 111 pixels, one core: 179 us before). NaN wins; a tie goes to the first pixel.
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from core.cpu.level import Level

WIDE: Final = 4
"""Vectors of the wider tile; the other is one vector wide, and masked."""

F32, I64, I32 = ir.FloatType(), ir.IntType(64), ir.IntType(32)
ARGUMENTS: Final = 11


def make_maximum(level: Level) -> Any:
    """An intrinsic ``maximum(wide, winners, x, row, pixel, kh, kw, out, place, line, closed, lanes)``.

    wide: vectors, `WIDE` or 1. winners: address of int32 that get each winner's place, or 0. x, out: addresses of
    the first channel of the window's first pixel and of the result. place: number of the first pixel; line: more of
    it a row. closed: as `core.cpu.pooling.CLOSED`. lanes: valid floats of a single vector.
    """

    @intrinsic
    def maximum(context, wide, winners, x, row, pixel, kh, kw, out, place, line, closed, lanes):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        def emit(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
            is_wide = b.icmp_signed("==", arguments[0], ir.Constant(I64, WIDE))
            keeps = b.icmp_signed("!=", arguments[1], ir.Constant(I64, 0))
            with b.if_else(is_wide) as (wider, single):
                for branch, vectors in ((wider, WIDE), (single, 1)):
                    with branch, b.if_else(keeps) as (with_places, without):
                        with with_places:
                            b.call(_window_function(b.module, level, vectors, True), arguments[1:])
                        with without:
                            b.call(_window_function(b.module, level, vectors, False), arguments[1:])
            return context.get_dummy_value()

        return types.void(*[types.int64] * (ARGUMENTS + 1)), emit

    return maximum


def _window_function(module: ir.Module, level: Level, vectors: int, winners: bool) -> ir.Function:
    name = f"leafclinic_maximum_{level.name}_{vectors}_{int(winners)}"
    kind = ir.FunctionType(ir.VoidType(), [I64] * ARGUMENTS)
    function = cgutils.get_or_insert_function(module, kind, name)
    if not function.blocks:
        function.linkage = "internal"
        function.attributes.add("noinline")
        function.attributes.add("nounwind")
        _Window(function, level, vectors, winners).emit()
    return function


class _Window:
    """Emits one function. What changes in its loops lies in `alloca` slots, which LLVM turns into registers."""

    def __init__(self, function: ir.Function, level: Level, vectors: int, winners: bool) -> None:
        self.level, self.vectors, self.keeps = level, vectors, winners
        self.function, self.b = function, ir.IRBuilder(function.append_basic_block("entry"))
        self.floats, self.ints = ir.VectorType(F32, level.lanes), ir.VectorType(I32, level.lanes)
        self.bits = ir.VectorType(ir.IntType(1), level.lanes)

    def emit(self) -> None:
        b = self.b
        winner, x, row, pixel, kh, kw, out, place, line, closed, lanes = self.function.args
        iota = ir.Constant(ir.VectorType(I64, self.level.lanes), list(range(self.level.lanes)))
        self.open = b.icmp_signed("<", iota, self._splat(lanes, I64))
        best = [self._slot(self._constant(float("-inf"))) for _ in range(self.vectors)]
        first = self._splat(b.trunc(place, I32), I32)
        kept = [self._slot(first if self.keeps else ir.Constant(self.bits, [0] * self.level.lanes)) for _ in best]
        with cgutils.for_range(b, kh) as y, cgutils.for_range(b, kw) as column:
            start = b.add(x, b.add(b.mul(y.index, row), b.mul(column.index, pixel)))
            here = self._splat(b.trunc(b.add(b.add(place, b.mul(y.index, line)), column.index), I32), I32)
            for v in range(self.vectors):
                self._see(self._load(start, v), best[v], kept[v], here)
        for v in range(self.vectors):
            self._finish(b.load(best[v]), b.load(kept[v]), (out, winner, closed), v)
        b.ret_void()

    def _see(self, seen: Any, best: Any, kept: Any, here: Any) -> None:
        """One pixel: `kept` is the winners' places, or which lanes saw a NaN."""
        b, old = self.b, self.b.load(best)
        wins, is_nan = b.fcmp_ordered(">", seen, old), b.fcmp_unordered("uno", seen, seen)
        if self.keeps:
            wins = b.or_(wins, is_nan)
            b.store(b.select(wins, here, b.load(kept)), kept)
        else:
            b.store(b.or_(b.load(kept), is_nan), kept)
        b.store(b.select(wins, seen, old), best)

    def _finish(self, best: Any, kept: Any, places: Any, v: int) -> None:
        b = self.b
        out, winner, closed = places
        if not self.keeps:
            self._store(b.select(kept, self._constant(float("nan")), best), out, v)
            return
        self._store(best, out, v)
        cap = b.select(
            b.icmp_signed("==", closed, ir.Constant(I64, 2)), self._constant(6.0), self._constant(float("inf"))
        )
        lies_in = b.and_(b.fcmp_ordered(">", best, self._constant(0.0)), b.fcmp_ordered("<", best, cap))
        free = self._splat(b.icmp_signed("==", closed, ir.Constant(I64, 0)), ir.IntType(1))
        minus = ir.Constant(self.ints, [-1] * self.level.lanes)
        self._store(b.select(b.or_(lies_in, free), kept, minus), winner, v)

    def _slot(self, value: Any) -> Any:
        slot = cgutils.alloca_once(self.b, value.type)
        self.b.store(value, slot)
        return slot

    def _constant(self, value: float) -> ir.Constant:
        return ir.Constant(self.floats, [value] * self.level.lanes)

    def _splat(self, scalar: Any, kind: ir.Type) -> Any:
        undefined = ir.Constant(ir.VectorType(kind, self.level.lanes), ir.Undefined)
        one = self.b.insert_element(undefined, scalar, ir.Constant(I32, 0))
        zeros = ir.Constant(ir.VectorType(I32, self.level.lanes), [0] * self.level.lanes)
        return self.b.shuffle_vector(one, undefined, zeros)

    def _pointer(self, address: Any, v: int, kind: ir.Type) -> Any:
        return self.b.inttoptr(self.b.add(address, ir.Constant(I64, 4 * v * self.level.lanes)), kind.as_pointer())

    def _load(self, address: Any, v: int) -> Any:
        pointer = self._pointer(address, v, self.floats)
        if self.vectors > 1:
            value = self.b.load(pointer)
            value.align = 4
            return value
        kind = ir.FunctionType(self.floats, [pointer.type, I32, self.bits, self.floats])
        name = f"llvm.masked.load.v{self.level.lanes}f32.p0"
        masked = cgutils.get_or_insert_function(self.function.module, kind, name)
        return self.b.call(masked, [pointer, ir.Constant(I32, 4), self.open, self._constant(0.0)])

    def _store(self, value: Any, address: Any, v: int) -> None:
        pointer = self._pointer(address, v, value.type)
        if self.vectors > 1:
            self.b.store(value, pointer).align = 4
            return
        letter = "f" if value.type == self.floats else "i"
        kind = ir.FunctionType(ir.VoidType(), [value.type, pointer.type, I32, self.bits])
        name = f"llvm.masked.store.v{self.level.lanes}{letter}32.p0"
        masked = cgutils.get_or_insert_function(self.function.module, kind, name)
        self.b.call(masked, [value, pointer, ir.Constant(I32, 4), self.open])
