"""Vector code of an instruction set as LLVM IR: loads and stores at any alignment, masks, small functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

import llvmlite.binding
from llvmlite import ir
from numba.core import cgutils

from core.cpu.instruction_set import InstructionSet

F32: Final = ir.FloatType()
F64: Final = ir.DoubleType()
I64: Final = ir.IntType(64)
I32: Final = ir.IntType(32)


def small_function(
    module: ir.Module, isa: InstructionSet, name: str, count: int, emit: Callable[[ir.Function], None]
) -> Any:
    """A function of `count` int64 in the module, emitted when it is first asked for; it stays a function of its own."""
    kind = ir.FunctionType(ir.VoidType(), [I64] * count)
    function = cgutils.get_or_insert_function(module, kind, f"leafclinic_{name}_{isa.name}")
    if not function.blocks:
        function.linkage = "internal"
        function.attributes.add("noinline")
        function.attributes.add("nounwind")
        emit(function)
    return function


@final
class Vectors:
    """Emits code for vectors of floats of an instruction set. Addresses are int64; a mask says which lanes count."""

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
        """Mask of the first `count` lanes."""
        iota = ir.Constant(ir.VectorType(I64, self.vector_width), list(range(self.vector_width)))
        return self.b.icmp_signed("<", iota, self.splat(count))

    def slot(self, value: Any) -> Any:
        """A variable that changes in a loop; LLVM turns it into a register."""
        place = cgutils.alloca_once(self.b, value.type)
        self.b.store(value, place)
        return place

    def load(self, address: Any, mask: Any = None, kind: ir.VectorType | None = None) -> Any:
        """Floats, or int32 if `kind` says so; zero outside the mask."""
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
        """Floats, doubles or int32."""
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
        """b * the floats at ``form``, such as "($1,$2,2)" for base + 2 step, + c in one instruction of AVX2."""
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
        """exp(x) of x <= 0, to 2e-7 of itself. Source: Cephes, expf: 2^n times a polynomial on half a power of two."""
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
