"""Warpgroup products as functions for kernels: `wgmma.mma_async` with both factors in shared memory.

Four warps together add a product of 64 rows, 16 deep an instruction, to sums in their registers; warp w has the rows
from 16 w on, in the places of `mma.sync`'s sums. A factor consists of core matrices of 8 x 16 bytes. Without swizzle a
core matrix is 128 bytes in a row, and the distance to the next, along the sum (K) and across it, is free:

    descriptor, low word    address / 16 | bytes from one core matrix to the next along the sum / 16 << 16
    descriptor, high word   bytes from one core matrix to the next across the sum / 16 | swizzle << 30

So the windows of a convolution need not be copied out: the factor of a tap begins some pixels, of 16 bytes, further
on. A factor's rows may run along the sum or across it (transposed). The target sm_90a is written by
`core.gpu.compilation.compiler`. Source: PTX ISA 8.x, section 9.7.15.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from core.gpu.compilation.cuda import device_function, intrinsic, ir, types

i32, u32 = types.int32, types.uint32

TILE: Final = 64
"""Rows of a product."""

Place: TypeAlias = tuple[int, int, int]
"""Where an instruction's factors begin: units of 16 bytes from A's descriptor, whole A steps more, units from B's."""

_FLOAT, _WORD = ir.FloatType(), ir.IntType(32)


@device_function
def low_word(address, across):
    """Lower half of a descriptor: where the factor begins, and the bytes between its blocks along the sum."""
    return u32((u32(address) >> u32(4)) | (u32(across) << u32(12)))


@device_function
def high_word(down):
    """Upper half of a descriptor: the bytes between its blocks across the sum."""
    return u32(u32(down) >> u32(4))


def _on_sums(count: int, text: str, operands: int) -> Any:
    """The code generator of `text` on a local array of `count` float32, read and written, and so many words."""
    struct = ir.LiteralStructType([_FLOAT] * count)
    constraints = ",".join([*["=f"] * count, *map(str, range(count)), *["r"] * operands, "~{memory}"])
    function = ir.FunctionType(struct, [_FLOAT] * count + [_WORD] * operands)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        places = [builder.gep(data, [_WORD(i)]) for i in range(count)]
        values = [builder.load(place) for place in places]
        assembly = ir.InlineAsm(function, text, constraints, side_effect=True)
        result = builder.call(assembly, [*values, *arguments[1:]])
        for i, place in enumerate(places):
            builder.store(builder.extract_value(result, i), place)
        return context.get_dummy_value()

    return generate


def make_products(
    columns: int, tiles: Sequence[Sequence[Place]], across: tuple[bool, bool] = (False, False), first_only: int = 0,
    narrow: Sequence[Sequence[Place]] = (),
) -> Any:  # fmt: skip
    """Intrinsic ``f(sums, a low, a high, a step, b low, b high, all)`` that begins one group of products.

    `tiles`: for each 64 x columns product of this warpgroup its instructions, 16 deep each; `across`: whether A's, B's
    rows run across the sum. `sums` holds columns / 2 floats a tile. Where `first_only` is not 0, a tile's instructions
    after so many are left out unless `all` is 1 (a branch instead would make the compiler move the sums about); so are
    those of `narrow`, products of 8 columns whose sums follow.
    """
    each = [(columns, places, first_only or len(places)) for places in tiles] + [(8, places, 0) for places in narrow]
    total, at = sum(wide // 2 for wide, _, _ in each), 0
    al, ah, step, bl, bh, whole = (f"${2 * total + i}" for i in range(6))
    lines = ["{", ".reg .pred p, q;", ".reg .b64 da, db;", ".reg .b32 t;", "setp.ne.b32 p, 1, 0;",
             f"setp.eq.b32 q, {whole}, 1;", "wgmma.fence.sync.aligned;"]  # fmt: skip
    for wide, places, always in each:
        sums = ",".join(f"${at + i}" for i in range(wide // 2))
        at += wide // 2
        for i, (first, steps, other) in enumerate(places):
            when = "" if i < always else "@q "
            lines += [
                f"mad.lo.u32 t, {step}, {steps}, {al};", f"add.u32 t, t, {first};", f"mov.b64 da, {{t, {ah}}};",
                f"add.u32 t, {bl}, {other};", f"mov.b64 db, {{t, {bh}}};",
                f"{when}wgmma.mma_async.sync.aligned.m64n{wide}k16.f32.bf16.bf16 {{{sums}}}, da, db, p, 1, 1, "
                f"{int(across[0])}, {int(across[1])};",
            ]  # fmt: skip
    generate = _on_sums(total, "\n".join([*lines, "wgmma.commit_group.sync.aligned;", "}"]), 6)

    @intrinsic
    def start(context, sums, a_low, a_high, a_step, b_low, b_high, every):
        return types.void(sums, u32, u32, u32, u32, u32, u32), generate

    return start


def make_wait(count: int, pending: int) -> Any:
    """Intrinsic that waits until at most `pending` groups are under way; `sums` of `count` floats are then read."""
    generate = _on_sums(count, f"wgmma.wait_group.sync.aligned {pending};", 0)

    @intrinsic
    def wait(context, sums):
        return types.void(sums), generate

    return wait


def _statement(text: str, operands: int) -> Any:
    """The code generator of an instruction on so many words that gives nothing and orders memory."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = ir.FunctionType(ir.VoidType(), [_WORD] * operands)
        constraints = ",".join([*["r"] * operands, "~{memory}"])
        builder.call(ir.InlineAsm(function, text, constraints, side_effect=True), arguments)
        return context.get_dummy_value()

    return generate


@intrinsic
def warpgroup_barrier(context, number):
    """A barrier of one warpgroup; each has its own number from 1 on."""
    return types.void(u32), _statement("bar.sync $0, 128;", 1)


@intrinsic
def named_barrier(context, number, threads):
    """A barrier, numbered, of so many threads: whole warps."""
    return types.void(u32, u32), _statement("bar.sync $0, $1;", 2)


@intrinsic
def fence_async_proxy(context):
    """Make this thread's writes to shared memory visible to `wgmma` and TMA, which access it by another path."""
    return types.void(), _statement("fence.proxy.async.shared::cta;", 0)


@intrinsic
def uniform(context, value):
    """The value of a warp's first lane: the assembler then knows that all lanes have the same."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = ir.FunctionType(_WORD, [_WORD])
        text = "shfl.sync.idx.b32 $0, $1, 0, 31, 0xffffffff;"
        return builder.call(ir.InlineAsm(function, text, "=r,r", side_effect=True), arguments)

    return types.int32(i32), generate
