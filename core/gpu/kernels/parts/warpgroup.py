"""Hopper's warpgroup products for factors that overlap in shared memory: the tensor cores read windows as they lie.

`wgmma.mma_async` reads a factor as blocks of 8 x 16 bytes, each 128 bytes in a row; where the next blocks begin, across
and down, is free (no swizzle). So the windows of a convolution need not be unfolded: the block of a tap begins a few
pixels further on, or one pixel of 16 bytes. A factor's rows may run along the sum (K) or across it (transposed): the
blocks are the same, 8 pixels of 16 bytes. Source: PTX ISA 8.x, section 9.7.15.5.

A product is four warps' work: 64 rows, warp w of the four those from 16 w on, in the places of `mma.sync`'s sums.
The text needs the target sm_90a (`core.gpu.compilation.compiler` sees to that).
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


@intrinsic
def meet(context, number):
    """A barrier of one warpgroup; each has its own number from 1 on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = ir.FunctionType(ir.VoidType(), [_WORD])
        builder.call(ir.InlineAsm(function, "bar.sync $0, 128;", "r,~{memory}", side_effect=True), arguments)
        return context.get_dummy_value()

    return types.void(u32), generate


@intrinsic
def meet_many(context, number, threads):
    """A barrier, numbered, of so many threads: whole warps."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = ir.FunctionType(ir.VoidType(), [_WORD, _WORD])
        builder.call(ir.InlineAsm(function, "bar.sync $0, $1;", "r,r,~{memory}", side_effect=True), arguments)
        return context.get_dummy_value()

    return types.void(u32, u32), generate


@intrinsic
def uniform(context, value):
    """The value of a warp's first lane: the assembler then knows that all lanes have the same."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = ir.FunctionType(_WORD, [_WORD])
        text = "shfl.sync.idx.b32 $0, $1, 0, 31, 0xffffffff;"
        return builder.call(ir.InlineAsm(function, text, "=r,r", side_effect=True), arguments)

    return types.int32(i32), generate
