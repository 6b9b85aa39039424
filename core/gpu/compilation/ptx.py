"""PTX instructions as functions for kernels: tensor cores, asynchronous copies, wide loads, packed converts.

Addresses are plain integers: uint64 in global memory, uint32 in shared memory. Source: PTX ISA 8.x,
sections 9.7.9 (copies) and 9.7.14 (mma, ldmatrix). None of these run in Numba's simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.gpu.compilation.cuda import intrinsic, ir, types

_IR = {
    types.float32: (ir.FloatType(), "f"),
    types.uint32: (ir.IntType(32), "r"),
    types.int32: (ir.IntType(32), "r"),
    types.uint64: (ir.IntType(64), "l"),
}


def instruction(
    text: str, results: Sequence[Any], operands: Sequence[Any], effect: bool, clobber: bool = False
) -> Any:
    """The code generator of one instruction; several results come back as a tuple."""
    kinds = [_IR[r][0] for r in results]
    returned = ir.VoidType() if not kinds else kinds[0] if len(kinds) == 1 else ir.LiteralStructType(kinds)
    constraints = [f"={_IR[r][1]}" for r in results] + [_IR[o][1] for o in operands]
    if clobber:
        constraints.append("~{memory}")
    result = types.void if not results else results[0] if len(results) == 1 else types.Tuple(tuple(results))  # type: ignore[attr-defined]

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = ir.FunctionType(returned, [_IR[o][0] for o in operands])
        assembly = ir.InlineAsm(function, text, ",".join(constraints), side_effect=effect)
        value = builder.call(assembly, arguments)
        if not results:
            return context.get_dummy_value()
        if len(results) == 1:
            return value
        parts = [builder.extract_value(value, i) for i in range(len(results))]
        return context.make_tuple(builder, signature.return_type, parts)

    return result(*operands), generate


_f, _u, _l = types.float32, types.uint32, types.uint64


@intrinsic
def mma_bf16(context, a0, a1, a2, a3, b0, b1, c0, c1, c2, c3):  # type: ignore[no-untyped-def]
    """16x8x16 product of bf16 pairs added to four float32 sums of this lane."""
    text = (
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{$0,$1,$2,$3},{$4,$5,$6,$7},{$8,$9},{$10,$11,$12,$13};"
    )
    return instruction(text, [_f] * 4, [_u] * 6 + [_f] * 4, False)


@intrinsic
def mma_tf32(context, a0, a1, a2, a3, b0, b1, c0, c1, c2, c3):  # type: ignore[no-untyped-def]
    """16x8x8 product of float32 values read as tf32 (their low 13 bits are ignored), float32 sums."""
    text = (
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{$0,$1,$2,$3},{$4,$5,$6,$7},{$8,$9},{$10,$11,$12,$13};"
    )
    return instruction(text, [_f] * 4, [_u] * 6 + [_f] * 4, False)


@intrinsic
def to_tf32(context, value):  # type: ignore[no-untyped-def]
    """Bits of a float32 rounded to tf32."""
    return instruction("cvt.rna.tf32.f32 $0, $1;", [_u], [_f], False)


@intrinsic
def bits_to_float(context, bits):  # type: ignore[no-untyped-def]
    """float32 of its 32 bits."""
    return instruction("mov.b32 $0, $1;", [_f], [_u], False)


@intrinsic
def float_to_bits(context, value):  # type: ignore[no-untyped-def]
    """32 bits of a float32."""
    return instruction("mov.b32 $0, $1;", [_u], [_f], False)


@intrinsic
def ldmatrix4(context, address):  # type: ignore[no-untyped-def]
    """Four 8x8 tiles of 16-bit values from shared memory; lane i gives the address of row i."""
    text = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0,$1,$2,$3},[$4];"
    return instruction(text, [_u] * 4, [_u], True)


@intrinsic
def ldmatrix2(context, address):  # type: ignore[no-untyped-def]
    """Two 8x8 tiles of 16-bit values; lanes 0 to 15 give the rows' addresses."""
    return instruction("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {$0,$1},[$2];", [_u] * 2, [_u], True)


@intrinsic
def ldmatrix4_transposed(context, address):  # type: ignore[no-untyped-def]
    """`ldmatrix4`, each tile transposed on the way."""
    text = "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {$0,$1,$2,$3},[$4];"
    return instruction(text, [_u] * 4, [_u], True)


@intrinsic
def ldmatrix2_transposed(context, address):  # type: ignore[no-untyped-def]
    """`ldmatrix2`, each tile transposed on the way."""
    return instruction("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {$0,$1},[$2];", [_u] * 2, [_u], True)


@intrinsic
def copy_async16(context, destination, source, real):  # type: ignore[no-untyped-def]
    """Global to shared memory, 16 bytes, past the registers; the bytes after the first `real` become zero."""
    return instruction("cp.async.cg.shared.global [$0], [$1], 16, $2;", [], [_u, _l, _u], True, True)


@intrinsic
def copy_async16_cached(context, destination, source, real):  # type: ignore[no-untyped-def]
    """`copy_async16` that also keeps the line in L1, for data this block reads again."""
    return instruction("cp.async.ca.shared.global [$0], [$1], 16, $2;", [], [_u, _l, _u], True, True)


@intrinsic
def commit_copies(context):  # type: ignore[no-untyped-def]
    """Close a group of asynchronous copies."""
    return instruction("cp.async.commit_group;", [], [], True, True)


def _waiter(pending: int) -> Any:
    @intrinsic
    def wait(context):  # type: ignore[no-untyped-def]
        return instruction(f"cp.async.wait_group {pending};", [], [], True, True)

    return wait


WAIT_COPIES = tuple(_waiter(n) for n in range(6))
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


@intrinsic
def pack_bf16(context, low, high):  # type: ignore[no-untyped-def]
    """Two float32 rounded to a pair of bf16."""
    return instruction("cvt.rn.bf16x2.f32 $0, $2, $1;", [_u], [_f, _f], False)


@intrinsic
def low_bf16(context, pair):  # type: ignore[no-untyped-def]
    """The lower bf16 of a pair as float32."""
    return instruction("shl.b32 $0, $1, 16;", [_f], [_u], False)


@intrinsic
def high_bf16(context, pair):  # type: ignore[no-untyped-def]
    """The upper bf16 of a pair as float32."""
    return instruction("and.b32 $0, $1, 0xffff0000;", [_f], [_u], False)


@intrinsic
def fma_clamped(context, a, b, c):  # type: ignore[no-untyped-def]
    """``a b + c`` between 0 and 1."""
    return instruction("fma.rn.sat.f32 $0, $1, $2, $3;", [_f], [_f, _f, _f], False)


@intrinsic
def load4(context, address):  # type: ignore[no-untyped-def]
    """16 bytes of global memory that this kernel does not write."""
    return instruction("ld.global.nc.v4.u32 {$0,$1,$2,$3}, [$4];", [_u] * 4, [_l], False)


@intrinsic
def load4_ordered(context, address):  # type: ignore[no-untyped-def]
    """16 bytes of global memory, ordered with this thread's stores."""
    return instruction("ld.global.v4.u32 {$0,$1,$2,$3}, [$4];", [_u] * 4, [_l], True, True)


@intrinsic
def prefetch(context, address):  # type: ignore[no-untyped-def]
    """Ask for the line of global memory to be in the L2 cache soon."""
    return instruction("prefetch.global.L2 [$0];", [], [_l], True, False)


@intrinsic
def load2(context, address):  # type: ignore[no-untyped-def]
    """8 bytes of global memory that this kernel does not write."""
    return instruction("ld.global.nc.v2.u32 {$0,$1}, [$2];", [_u] * 2, [_l], False)


@intrinsic
def load1(context, address):  # type: ignore[no-untyped-def]
    """4 bytes of global memory that this kernel does not write."""
    return instruction("ld.global.nc.u32 $0, [$1];", [_u], [_l], False)


@intrinsic
def load_float(context, address):  # type: ignore[no-untyped-def]
    """One float32 of global memory, ordered with this thread's stores."""
    return instruction("ld.global.f32 $0, [$1];", [_f], [_l], True, True)


@intrinsic
def load_byte(context, address):  # type: ignore[no-untyped-def]
    """One byte of global memory, zero-extended."""
    return instruction("{.reg .u16 t; ld.global.nc.u8 t, [$1]; cvt.u32.u16 $0, t;}", [_u], [_l], False)


@intrinsic
def store4(context, address, v0, v1, v2, v3):  # type: ignore[no-untyped-def]
    """16 bytes to global memory."""
    return instruction("st.global.v4.u32 [$0], {$1,$2,$3,$4};", [], [_l] + [_u] * 4, True, True)


@intrinsic
def store2(context, address, v0, v1):  # type: ignore[no-untyped-def]
    """8 bytes to global memory."""
    return instruction("st.global.v2.u32 [$0], {$1,$2};", [], [_l, _u, _u], True, True)


@intrinsic
def store1(context, address, value):  # type: ignore[no-untyped-def]
    """4 bytes to global memory."""
    return instruction("st.global.u32 [$0], $1;", [], [_l, _u], True, True)


@intrinsic
def store_float(context, address, value):  # type: ignore[no-untyped-def]
    """One float32 to global memory."""
    return instruction("st.global.f32 [$0], $1;", [], [_l, _f], True, True)


@intrinsic
def shared_load4(context, address):  # type: ignore[no-untyped-def]
    """16 bytes of shared memory."""
    return instruction("ld.shared.v4.u32 {$0,$1,$2,$3}, [$4];", [_u] * 4, [_u], True)


@intrinsic
def shared_load1(context, address):  # type: ignore[no-untyped-def]
    """4 bytes of shared memory."""
    return instruction("ld.shared.u32 $0, [$1];", [_u], [_u], True)


@intrinsic
def shared_load2(context, address):  # type: ignore[no-untyped-def]
    """8 bytes of shared memory."""
    return instruction("ld.shared.v2.u32 {$0,$1}, [$2];", [_u] * 2, [_u], True)


@intrinsic
def shared_store1(context, address, value):  # type: ignore[no-untyped-def]
    """4 bytes to shared memory."""
    return instruction("st.shared.u32 [$0], $1;", [], [_u, _u], True, True)


@intrinsic
def shared_store2(context, address, v0, v1):  # type: ignore[no-untyped-def]
    """8 bytes to shared memory."""
    return instruction("st.shared.v2.u32 [$0], {$1,$2};", [], [_u, _u, _u], True, True)


@intrinsic
def shared_store4(context, address, v0, v1, v2, v3):  # type: ignore[no-untyped-def]
    """16 bytes to shared memory."""
    return instruction("st.shared.v4.u32 [$0], {$1,$2,$3,$4};", [], [_u] * 5, True, True)


@intrinsic
def shuffle_xor(context, value, lanes):  # type: ignore[no-untyped-def]
    """The value of the lane whose number differs by `lanes`, over the whole warp."""
    return instruction("shfl.sync.bfly.b32 $0, $1, $2, 31, 0xffffffff;", [_f], [_f, _u], True)


@intrinsic
def shuffle_bits(context, value, lanes):  # type: ignore[no-untyped-def]
    """`shuffle_xor` of 32 bits."""
    return instruction("shfl.sync.bfly.b32 $0, $1, $2, 31, 0xffffffff;", [_u], [_u, _u], True)


@intrinsic
def of_quad(context, bits, place):  # type: ignore[no-untyped-def]
    """The float32 that one of this lane's four neighbours holds."""
    return instruction("shfl.sync.idx.b32 $0, $1, $2, 0x1c1f, 0xffffffff;", [_f], [_u, _u], True)


@intrinsic
def of_lane(context, bits, lane):  # type: ignore[no-untyped-def]
    """The float32 that a lane of the warp holds."""
    return instruction("shfl.sync.idx.b32 $0, $1, $2, 31, 0xffffffff;", [_f], [_u, _u], True)


@intrinsic
def divide_fast(context, n, multiplier, shift):  # type: ignore[no-untyped-def]
    """``(high32(n * multiplier) + n) >> shift``: left to Numba this becomes 64-bit arithmetic, 4x as long."""
    text = "{.reg .u32 t; mul.hi.u32 t, $1, $2; add.u32 t, t, $1; shr.u32 $0, t, $3;}"
    return instruction(text, [_u], [_u, _u, _u], False)


@intrinsic
def permute(context, a, b, selector):  # type: ignore[no-untyped-def]
    """Four of eight bytes: digit i of the hexadecimal selector names byte i, 0 to 3 of `a`, 4 to 7 of `b`."""
    return instruction("prmt.b32 $0, $1, $2, $3;", [_u], [_u, _u, _u], False)


@intrinsic
def shift_pair(context, low, high, bits):  # type: ignore[no-untyped-def]
    """The lower 32 of 64 bits shifted right by up to 31."""
    return instruction("shf.r.wrap.b32 $0, $1, $2, $3;", [_u], [_u, _u, _u], False)


@intrinsic
def byte_to_float(context, word, selector):  # type: ignore[no-untyped-def]
    """Byte i of a word, by the selector ``0x7650 + i``: a float of 2^23 and more shows its whole part in its low bits.

    Four times as fast as a conversion; in one piece, since fast arithmetic would pull the subtraction apart.
    """
    text = "{.reg .b32 t; prmt.b32 t, $1, 0x4B000000, $2; add.f32 $0, t, 0fCB000000;}"
    return instruction(text, [_f], [_u, _u], False)


@intrinsic
def fma_bf16(context, a, b, c):  # type: ignore[no-untyped-def]
    """``a b + c`` of pairs of bf16."""
    return instruction("fma.rn.bf16x2 $0, $1, $2, $3;", [_u], [_u, _u, _u], False)


@intrinsic
def max_bf16(context, a, b):  # type: ignore[no-untyped-def]
    """The larger ones of two pairs of bf16."""
    return instruction("max.bf16x2 $0, $1, $2;", [_u], [_u, _u], False)


@intrinsic
def min_bf16(context, a, b):  # type: ignore[no-untyped-def]
    """The smaller ones of two pairs of bf16."""
    return instruction("min.bf16x2 $0, $1, $2;", [_u], [_u, _u], False)


@intrinsic
def hold32(context, value):  # type: ignore[no-untyped-def]
    """The value, which the compiler must keep: it would work it out again in every turn of a loop otherwise."""
    return instruction("mov.b32 $0, $1;", [types.int32], [types.int32], True)


@intrinsic
def hold64(context, value):  # type: ignore[no-untyped-def]
    """`hold32` for an address."""
    return instruction("mov.b64 $0, $1;", [_l], [_l], True)
