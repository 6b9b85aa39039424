"""Hopper's warpgroup products as functions for kernels: `wgmma.mma_async` with both factors in shared memory.

Source: PTX ISA 8.x, section 9.7.15. Four warps together add a 64 x 256 product, 64 deep, to 128 sums a thread.
The text needs the target sm_90a, which `core.gpu.kernels.matmul_hopper` writes into the PTX.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.cuda import intrinsic, ir, types

SUMS: Final = 128
"""float32 sums of a thread: 64 x 256 over 128 threads."""
DEPTH: Final = 64
"""Depth of one slice, four instructions of 16."""
A_STEP: Final = 2
"""16 deep in A: 32 bytes further, in units of 16 bytes."""
B_STEP: Final = 128
"""16 rows of B: 2048 bytes further."""

_FLOAT = ir.FloatType()
_INDEX = ir.IntType(32)
_STRUCT = ir.LiteralStructType([_FLOAT] * SUMS)


def _start_text() -> str:
    sums = ",".join(f"${i}" for i in range(SUMS))
    lines = ["{", ".reg .pred p;", ".reg .b64 da, db;", "setp.ne.b32 p, 1, 0;", "wgmma.fence.sync.aligned;"]
    for k in range(DEPTH // 16):
        lines += [
            f"add.s64 da, ${2 * SUMS}, {k * A_STEP};",
            f"add.s64 db, ${2 * SUMS + 1}, {k * B_STEP};",
            f"wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {{{sums}}}, da, db, p, 1, 1, 0, 1;",
        ]
    return "\n".join([*lines, "wgmma.commit_group.sync.aligned;", "}"])


def _on_sums(context: Any, builder: Any, array_type: Any, array: Any, text: str, more: list[Any], kinds: str) -> Any:
    """Run `text` with the 128 sums of a local array as operands that are read and written."""
    data = context.make_array(array_type)(context, builder, array).data
    places = [builder.gep(data, [_INDEX(i)]) for i in range(SUMS)]
    values = [builder.load(place) for place in places]
    constraints = ",".join([*["=f"] * SUMS, *map(str, range(SUMS)), *kinds, "~{memory}"])
    function = ir.FunctionType(_STRUCT, [_FLOAT] * SUMS + [m.type for m in more])
    result = builder.call(ir.InlineAsm(function, text, constraints, side_effect=True), [*values, *more])
    for i, place in enumerate(places):
        builder.store(builder.extract_value(result, i), place)
    return context.get_dummy_value()


@intrinsic
def start_product(context, sums, a, b):
    """Begin adding a slice's product to the sums; a and b are descriptors (`descriptor`) of its first 16 columns."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _on_sums(context, builder, signature.args[0], arguments[0], _start_text(), arguments[1:], "ll")

    return types.void(sums, types.uint64, types.uint64), generate


@intrinsic
def keep_one_product(context, sums):
    """Wait until at most the last product that was begun is under way: the one before no longer reads its slice."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        text = "wgmma.wait_group.sync.aligned 1;"
        return _on_sums(context, builder, signature.args[0], arguments[0], text, [], "")

    return types.void(sums), generate


@intrinsic
def finish_product(context, sums):
    """Wait until the sums are complete."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        text = "wgmma.wait_group.sync.aligned 0;"
        return _on_sums(context, builder, signature.args[0], arguments[0], text, [], "")

    return types.void(sums), generate


@intrinsic
def show_to_tensor_cores(context):
    """Make this thread's writes to shared memory visible to wgmma, which reads by another path."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = ir.FunctionType(ir.VoidType(), [])
        builder.call(ir.InlineAsm(function, "fence.proxy.async.shared::cta;", "~{memory}", side_effect=True), [])
        return context.get_dummy_value()

    return types.void(), generate
