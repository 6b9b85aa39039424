"""Vector code of an instruction set as LLVM IR: loads and stores at any alignment, masks, loops over pixels.

Loops over channels in Numba would check at every pixel whether arrays overlap, and keep sums in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.core import cgutils

from core.cpu.instruction_set import InstructionSet, current_isa
from core.cpu.memory import make_intrinsic

F32: Final = ir.FloatType()
F64: Final = ir.DoubleType()
I64: Final = ir.IntType(64)
I32: Final = ir.IntType(32)


def small_function(
    module: ir.Module, isa: InstructionSet, name: str, count: int, emit: Callable[[ir.Function], None]
) -> Any:
    """Return a function of `count` int64 in the module, emitted at the first request and not inlined."""
    kind = ir.FunctionType(ir.VoidType(), [I64] * count)
    function = cgutils.get_or_insert_function(module, kind, f"leafclinic_{name}_{isa.name}")
    if not function.blocks:
        function.linkage = "internal"
        function.attributes.add("noinline")
        function.attributes.add("nounwind")
        emit(function)
    return function


def row_intrinsic(name: str, count: int, emit: Callable[[Pixels], None]) -> Any:
    """Return a function for kernels that takes `count` int64 and runs the code that `emit` writes, not inlined."""

    def emit_function(function: ir.Function) -> None:
        pixels = Pixels(function, current_isa())
        emit(pixels)
        pixels.b.ret_void()

    def emit_call(b: ir.IRBuilder, arguments: Sequence[Any]) -> None:
        b.call(small_function(b.module, current_isa(), name, count, emit_function), arguments)

    return make_intrinsic(types.void, [types.int64] * count, emit_call)


class Vectors:
    """Emits code for vectors of floats. Addresses are int64; a mask has the lanes that are read or written."""

    def __init__(self, builder: ir.IRBuilder, isa: InstructionSet) -> None:
        self.b, self.vector_width = builder, isa.vector_width
        self.floats, self.ints = ir.VectorType(F32, self.vector_width), ir.VectorType(I32, self.vector_width)
        self.doubles, self.bits = ir.VectorType(F64, self.vector_width), ir.VectorType(ir.IntType(1), self.vector_width)

    def splat(self, scalar: Any) -> Any:
        """The scalar in every lane."""
        undefined = ir.Constant(ir.VectorType(scalar.type, self.vector_width), ir.Undefined)
        one = self.b.insert_element(undefined, scalar, ir.Constant(I32, 0))
        return self.b.shuffle_vector(one, undefined, ir.Constant(self.ints, [0] * self.vector_width))

    def constant(self, value: float) -> ir.Constant:
        return ir.Constant(self.floats, [value] * self.vector_width)

    def first(self, count: Any) -> Any:
        """Return the mask of the first `count` lanes."""
        iota = ir.Constant(ir.VectorType(I64, self.vector_width), list(range(self.vector_width)))
        return self.b.icmp_signed("<", iota, self.splat(count))

    def slot(self, value: Any) -> Any:
        """Return a variable that changes in a loop; LLVM turns it into a register."""
        place = cgutils.alloca_once(self.b, value.type)
        self.b.store(value, place)
        return place

    def load(self, address: Any, mask: Any = None, kind: ir.VectorType | None = None) -> Any:
        """Load floats, or vectors of type `kind`; zero outside the mask."""
        vector = kind or self.floats
        pointer = self.b.inttoptr(address, vector.as_pointer())
        if mask is None:
            value = self.b.load(pointer)
            value.align = 4
            return value
        masked = ir.FunctionType(vector, [pointer.type, I32, self.bits, vector])
        name = f"llvm.masked.load.v{self.vector_width}{'f' if vector == self.floats else 'i'}32.p0"
        function = cgutils.get_or_insert_function(self.b.module, masked, name)
        return self.b.call(function, [pointer, ir.Constant(I32, 4), mask, ir.Constant(vector, None)])

    def store(self, value: Any, address: Any, mask: Any = None) -> None:
        pointer = self.b.inttoptr(address, value.type.as_pointer())
        if mask is None:
            self.b.store(value, pointer).align = 4
            return
        letter = {self.floats: "f32", self.doubles: "f64", self.ints: "i32"}[value.type]
        kind = ir.FunctionType(ir.VoidType(), [value.type, pointer.type, I32, self.bits])
        name = f"llvm.masked.store.v{self.vector_width}{letter}.p0"
        function = cgutils.get_or_insert_function(self.b.module, kind, name)
        self.b.call(function, [value, pointer, ir.Constant(I32, 4), mask])

    def multiply_add_from(self, form: str, base: Any, step: Any, b: Any, c: Any) -> Any:
        """Emit b * x + c as one AVX2 instruction, x at the address ``form``: "($1,$2,2)" is base + 2 step."""
        llvmlite.binding.initialize_native_asmparser()  # without it LLVM aborts the process at inline assembly
        places = "=x,r,x,0" if "$2" not in form else "=x,r,r,x,0"
        arguments = [base, b, c] if "$2" not in form else [base, step, b, c]
        kind = ir.FunctionType(self.floats, [value.type for value in arguments])
        code = f"vfmadd231ps {form}, ${len(arguments) - 1}, $0"
        return self.b.call(ir.InlineAsm(kind, code, places, side_effect=True), arguments)

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """a * b + c, fused where the processor can."""
        kind = ir.FunctionType(a.type, [a.type] * 3)
        name = f"llvm.fmuladd.v{self.vector_width}f{32 if a.type == self.floats else 64}"
        return self.b.call(cgutils.get_or_insert_function(self.b.module, kind, name), [a, b, c])

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        return self.b.select(condition, a, b)

    def above(self, x: Any, bound: float) -> Any:
        return self.b.fcmp_ordered(">", x, self.constant(bound))

    def below(self, x: Any, bound: float) -> Any:
        return self.b.fcmp_ordered("<", x, self.constant(bound))

    def clip(self, x: Any, low: float, high: float | None = None) -> Any:
        """NaN passes through."""
        x = self.where(self.below(x, low), self.constant(low), x)
        return x if high is None else self.where(self.above(x, high), self.constant(high), x)

    def scale(self, x: Any, factor: float) -> Any:
        return self.b.fmul(x, self.constant(factor))

    def shift(self, x: Any, term: float) -> Any:
        return self.b.fadd(x, self.constant(term))

    def negate(self, x: Any) -> Any:
        return self.scale(x, -1.0)

    def absolute(self, x: Any) -> Any:
        return self.where(self.below(x, 0.0), self.negate(x), x)

    def exp_below(self, x: Any) -> Any:
        """Emit exp(x) for x <= 0, relative error 2e-7. Source: expf of Cephes, 2^n times a polynomial."""
        x = self.where(self.below(x, -87.0), self.constant(-87.0), x)
        whole = self.b.fptosi(self.shift(self.scale(x, 1.44269504), -0.5), self.ints)  # rounds towards 0, so to nearest
        n = self.b.sitofp(whole, self.floats)
        x = self.multiply_add(n, self.constant(2.12194440e-4), self.multiply_add(n, self.constant(-0.693359375), x))
        y = self.constant(1.9875691500e-4)
        for term in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
            y = self.multiply_add(y, x, self.constant(term))
        y = self.shift(self.multiply_add(self.b.fmul(x, x), y, x), 1.0)
        exponent = self.b.shl(self.b.add(whole, ir.Constant(self.ints, [127] * self.vector_width)),
                              ir.Constant(self.ints, [23] * self.vector_width))
        return self.b.fmul(y, self.b.bitcast(exponent, self.floats))


class Pixels:
    """Emits one function over pixels and channels; `a` are its int64 arguments."""

    def __init__(self, function: ir.Function, isa: InstructionSet) -> None:
        self.b, self.a = ir.IRBuilder(function.append_basic_block("entry")), function.args
        self.v, self.isa = Vectors(self.b, isa), isa

    def for_channels(self, channels: Any, body: Callable[[Any, Any], None]) -> None:
        """Emit `body(first channel, mask)` for every vector of channels; only the last may have a mask."""
        lanes = ir.Constant(I64, self.v.vector_width)
        with cgutils.for_range_slice(self.b, ir.Constant(I64, 0), channels, lanes) as (channel, _):
            left = self.b.sub(channels, channel)
            with self.b.if_else(self.b.icmp_signed(">=", left, lanes)) as (whole, part):
                with whole:
                    body(channel, None)
                with part:
                    body(channel, self.v.first(left))

    def at(self, base: Any, *terms: tuple[Any, Any]) -> Any:
        """Return base + the sum of the products; the second factor of a product may be a number."""
        for factor, count in terms:
            base = self.b.add(base, self.b.mul(factor, ir.Constant(I64, count) if isinstance(count, int) else count))
        return base

    def clip_bounds(self, clip: Any) -> tuple[Any, Any]:
        """Return the bounds of an activation up to `core.cpu.activation.CLIP`: none, from 0, or 0 to 6."""
        v, b = self.v, self.b
        low = b.select(b.icmp_signed("!=", clip, ir.Constant(I64, 0)), v.constant(0.0), v.constant(float("-inf")))
        high = b.select(b.icmp_signed("==", clip, ir.Constant(I64, 2)), v.constant(6.0), v.constant(float("inf")))
        return low, high

    def clip(self, value: Any, bounds: tuple[Any, Any]) -> Any:
        """Clip a vector; NaN passes through."""
        for relation, bound in zip("<>", bounds, strict=True):
            value = self.b.select(self.b.fcmp_ordered(relation, value, bound), bound, value)
        return value
