"""PTX instructions as functions for kernels: tensor cores, asynchronous copies, wide loads, packed converts.

Addresses are plain integers: uint64 in global memory, uint32 in shared memory. Source: PTX ISA 8.x,
sections 9.7.9 (copies) and 9.7.14 (mma, ldmatrix). None of these run in Numba's simulator.
"""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import Any

from core.gpu.compilation.cuda import intrinsic, ir, types

_TYPES = {"f": types.float32, "u": types.uint32, "i": types.int32, "l": types.uint64}
_LLVM = {"f": ir.FloatType(), "u": ir.IntType(32), "i": ir.IntType(32), "l": ir.IntType(64)}
_REGISTERS = {"f": "f", "u": "r", "i": "r", "l": "l"}


def instruction(name: str, text: str, results: str, operands: str, volatile: bool = False, memory: bool = False) -> Any:
    """One instruction as a function for kernels; several results come back as a tuple.

    results, operands: one letter each, f float32, u uint32, i int32, l uint64. volatile: the compiler may not remove
    or repeat it. memory: nor move it across other memory accesses.
    """
    kinds = [_LLVM[letter] for letter in results]
    returned = ir.VoidType() if not kinds else kinds[0] if len(kinds) == 1 else ir.LiteralStructType(kinds)
    constraints = [f"={_REGISTERS[letter]}" for letter in results] + [_REGISTERS[letter] for letter in operands]
    constraints += ["~{memory}"] * memory
    made = tuple(_TYPES[letter] for letter in results)
    result = types.void if not made else made[0] if len(made) == 1 else types.Tuple(made)  # type: ignore[attr-defined]
    function = ir.FunctionType(returned, [_LLVM[letter] for letter in operands])

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        assembly = ir.InlineAsm(function, text, ",".join(constraints), side_effect=volatile or memory)
        value = builder.call(assembly, arguments)
        if not results:
            return context.get_dummy_value()
        if len(results) == 1:
            return value
        parts = [builder.extract_value(value, i) for i in range(len(results))]
        return context.make_tuple(builder, signature.return_type, parts)

    def typed(context: Any, *given: Any) -> Any:
        return result(*(_TYPES[letter] for letter in operands)), generate

    names = ["context", *(f"operand{i}" for i in range(len(operands)))]
    typed.__name__ = name
    typed.__signature__ = Signature([Parameter(n, Parameter.POSITIONAL_ONLY) for n in names])  # type: ignore[attr-defined]
    return intrinsic(typed)


def _mma(depth: int, kind: str) -> Any:
    text = f"mma.sync.aligned.m16n8k{depth}.row.col.f32.{kind}.{kind}.f32 "
    text += "{$0,$1,$2,$3},{$4,$5,$6,$7},{$8,$9},{$10,$11,$12,$13};"
    return instruction(f"mma_{kind}", text, "ffff", "uuuuuuffff")


mma_bf16 = _mma(16, "bf16")
"""``mma_bf16(a0..a3, b0, b1, c0..c3)``: 16x8x16 product of bf16 pairs added to four float32 sums of this lane."""

mma_tf32 = _mma(8, "tf32")
"""16x8x8 product of float32 values read as tf32 (their low 13 bits are ignored), float32 sums."""

to_tf32 = instruction("to_tf32", "cvt.rna.tf32.f32 $0, $1;", "u", "f")
"""Bits of a float32 rounded to tf32."""

bits_to_float = instruction("bits_to_float", "mov.b32 $0, $1;", "f", "u")
"""float32 of its 32 bits."""

float_to_bits = instruction("float_to_bits", "mov.b32 $0, $1;", "u", "f")
"""32 bits of a float32."""

ldmatrix4 = instruction(
    "ldmatrix4", "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0,$1,$2,$3},[$4];", "uuuu", "u", volatile=True,
)  # fmt: skip
"""Four 8x8 tiles of 16-bit values from shared memory; lane i gives the address of row i."""

ldmatrix2 = instruction("ldmatrix2", "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {$0,$1},[$2];", "uu", "u", volatile=True)
"""Two 8x8 tiles of 16-bit values; lanes 0 to 15 give the rows' addresses."""

ldmatrix4_transposed = instruction(
    "ldmatrix4_transposed", "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {$0,$1,$2,$3},[$4];",
    "uuuu", "u", volatile=True,
)  # fmt: skip
"""`ldmatrix4`, each tile transposed on the way."""

ldmatrix2_transposed = instruction(
    "ldmatrix2_transposed", "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {$0,$1},[$2];", "uu", "u", volatile=True,
)  # fmt: skip
"""`ldmatrix2`, each tile transposed on the way."""

copy_async16 = instruction("copy_async16", "cp.async.cg.shared.global [$0], [$1], 16, $2;", "", "ulu", memory=True)
"""``(destination, source, real)``: 16 bytes from global to shared memory; those after the first `real` become zero."""

copy_async16_cached = instruction(
    "copy_async16_cached", "cp.async.ca.shared.global [$0], [$1], 16, $2;", "", "ulu", memory=True,
)  # fmt: skip
"""`copy_async16` that also keeps the line in L1, for data this block reads again."""

commit_copies = instruction("commit_copies", "cp.async.commit_group;", "", "", memory=True)
"""Close a group of asynchronous copies."""

WAIT_COPIES = tuple(instruction("wait", f"cp.async.wait_group {pending};", "", "", memory=True) for pending in range(6))
"""`WAIT_COPIES[n]()` waits until at most n groups of copies are under way."""


@intrinsic
def shared_address(context, array):  # type: ignore[no-untyped-def]
    """Address in shared memory of an array made by `cuda.shared.array`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        long = ir.IntType(64)
        assembly = ir.InlineAsm(ir.FunctionType(long, [long]), "cvta.to.shared.u64 $0, $1;", "=l,l", side_effect=False)
        return builder.trunc(builder.call(assembly, [builder.ptrtoint(array.data, long)]), ir.IntType(32))

    return types.uint32(array), generate


pack_bf16 = instruction("pack_bf16", "cvt.rn.bf16x2.f32 $0, $2, $1;", "u", "ff")
"""Two float32 rounded to a pair of bf16."""

low_bf16 = instruction("low_bf16", "shl.b32 $0, $1, 16;", "f", "u")
"""The lower bf16 of a pair as float32."""

high_bf16 = instruction("high_bf16", "and.b32 $0, $1, 0xffff0000;", "f", "u")
"""The upper bf16 of a pair as float32."""

fma_clamped = instruction("fma_clamped", "fma.rn.sat.f32 $0, $1, $2, $3;", "f", "fff")
"""``a b + c`` between 0 and 1."""

load4 = instruction("load4", "ld.global.nc.v4.u32 {$0,$1,$2,$3}, [$4];", "uuuu", "l")
"""16 bytes of global memory that this kernel does not write."""

load4_ordered = instruction("load4_ordered", "ld.global.v4.u32 {$0,$1,$2,$3}, [$4];", "uuuu", "l", memory=True)
"""16 bytes of global memory, ordered with this thread's stores."""

load2_ordered = instruction("load2_ordered", "ld.global.v2.u32 {$0,$1}, [$2];", "uu", "l", memory=True)
"""8 bytes of global memory, ordered with this thread's stores."""

prefetch = instruction("prefetch", "prefetch.global.L2 [$0];", "", "l", volatile=True)
"""Prefetch a line of global memory into the L2 cache."""

load2 = instruction("load2", "ld.global.nc.v2.u32 {$0,$1}, [$2];", "uu", "l")
"""8 bytes of global memory that this kernel does not write."""

load1 = instruction("load1", "ld.global.nc.u32 $0, [$1];", "u", "l")
"""4 bytes of global memory that this kernel does not write."""

load_float = instruction("load_float", "ld.global.f32 $0, [$1];", "f", "l", memory=True)
"""One float32 of global memory, ordered with this thread's stores."""

load_byte = instruction("load_byte", "{.reg .u16 t; ld.global.nc.u8 t, [$1]; cvt.u32.u16 $0, t;}", "u", "l")
"""One byte of global memory, zero-extended."""

store4 = instruction("store4", "st.global.v4.u32 [$0], {$1,$2,$3,$4};", "", "luuuu", memory=True)
"""16 bytes to global memory."""

store2 = instruction("store2", "st.global.v2.u32 [$0], {$1,$2};", "", "luu", memory=True)
"""8 bytes to global memory."""

store1 = instruction("store1", "st.global.u32 [$0], $1;", "", "lu", memory=True)
"""4 bytes to global memory."""

store_half = instruction("store_half", "{.reg .u16 t; cvt.u16.u32 t,$1; st.global.u16 [$0],t;}", "", "lu", memory=True)
"""The low half of a word to global memory."""

store_float = instruction("store_float", "st.global.f32 [$0], $1;", "", "lf", memory=True)
"""One float32 to global memory."""

shared_load4 = instruction("shared_load4", "ld.shared.v4.u32 {$0,$1,$2,$3}, [$4];", "uuuu", "u", volatile=True)
"""16 bytes of shared memory."""

shared_load1 = instruction("shared_load1", "ld.shared.u32 $0, [$1];", "u", "u", volatile=True)
"""4 bytes of shared memory."""

shared_load2 = instruction("shared_load2", "ld.shared.v2.u32 {$0,$1}, [$2];", "uu", "u", volatile=True)
"""8 bytes of shared memory."""

shared_store1 = instruction("shared_store1", "st.shared.u32 [$0], $1;", "", "uu", memory=True)
"""4 bytes to shared memory."""

shared_store2 = instruction("shared_store2", "st.shared.v2.u32 [$0], {$1,$2};", "", "uuu", memory=True)
"""8 bytes to shared memory."""

shared_store4 = instruction("shared_store4", "st.shared.v4.u32 [$0], {$1,$2,$3,$4};", "", "uuuuu", memory=True)
"""16 bytes to shared memory."""

shuffle_xor = instruction("shuffle_xor", "shfl.sync.bfly.b32 $0, $1, $2, 31, 0xffffffff;", "f", "fu", volatile=True)
"""``(value, mask)``: the value of the lane whose number is this lane's XOR `mask`, over the whole warp."""

shuffle_bits = instruction("shuffle_bits", "shfl.sync.bfly.b32 $0, $1, $2, 31, 0xffffffff;", "u", "uu", volatile=True)
"""`shuffle_xor` of 32 bits."""

of_quad = instruction("of_quad", "shfl.sync.idx.b32 $0, $1, $2, 0x1c1f, 0xffffffff;", "f", "uu", volatile=True)
"""``(bits, place)``: the float32 that one of this lane's four neighbours holds."""

of_lane = instruction("of_lane", "shfl.sync.idx.b32 $0, $1, $2, 31, 0xffffffff;", "f", "uu", volatile=True)
"""``(bits, lane)``: the float32 that a lane of the warp holds."""

divide_fast = instruction(
    "divide_fast", "{.reg .u32 t; mul.hi.u32 t, $1, $2; add.u32 t, t, $1; shr.u32 $0, t, $3;}", "u", "uuu",
)  # fmt: skip
"""``(n, multiplier, shift)``: ``(high32(n * multiplier) + n) >> shift``. Numba takes 64 bits and 4 times as long."""

divide_any = instruction("divide_any", "div.u32 $0, $1, $2;", "u", "uu")
"""``(n, divisor)``: unsigned, by a divisor that is not prepared. Numba's own takes 64 bits and checks for zero."""

permute = instruction("permute", "prmt.b32 $0, $1, $2, $3;", "u", "uuu")
"""``(a, b, selector)``: four of eight bytes. Digit i of the selector names byte i: 0 to 3 of `a`, 4 to 7 of `b`."""

shift_pair = instruction("shift_pair", "shf.r.wrap.b32 $0, $1, $2, $3;", "u", "uuu")
"""``(low, high, bits)``: the lower 32 of 64 bits, shifted right by up to 31."""

byte_to_float = instruction(
    "byte_to_float", "{.reg .b32 t; prmt.b32 t, $1, 0x4B000000, $2; add.f32 $0, t, 0fCB000000;}", "f", "uu",
)  # fmt: skip
"""Byte i of a word, by the selector ``0x7650 + i``: a float of 2^23 or more has its integer part in its low bits.

Four times as fast as a conversion. One instruction sequence, since fast arithmetic would reorder the subtraction.
"""

fma_bf16 = instruction("fma_bf16", "fma.rn.bf16x2 $0, $1, $2, $3;", "u", "uuu")
"""``a b + c`` of pairs of bf16."""

max_bf16 = instruction("max_bf16", "max.bf16x2 $0, $1, $2;", "u", "uu")
"""The larger ones of two pairs of bf16."""

min_bf16 = instruction("min_bf16", "min.bf16x2 $0, $1, $2;", "u", "uu")
"""The smaller ones of two pairs of bf16."""

hold32 = instruction("hold32", "mov.b32 $0, $1;", "i", "i", volatile=True)
"""The value, which the compiler then keeps in a register instead of recomputing it in every loop iteration."""

hold64 = instruction("hold64", "mov.b64 $0, $1;", "l", "l", volatile=True)
"""`hold32` for an address."""
