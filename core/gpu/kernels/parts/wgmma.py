"""Hopper's warpgroup products as functions for kernels: `wgmma.mma_async` with both factors in shared memory.

Source: PTX ISA 8.x, section 9.7.15. Four warps together add a product of 64 rows, 64 deep, to their sums: half as
many a thread as the product has columns. The text needs the target sm_90a, which `core.gpu.compilation.hopper` writes.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from core.gpu.compilation.cuda import intrinsic, ir, types

DEPTH: Final = 64
"""Depth of one slice, four instructions of 16."""
A_STEP: Final = 2
"""16 deep in A: 32 bytes further, in units of 16 bytes."""
B_STEP: Final = 128
"""16 rows of B: 2048 bytes further."""

_FLOAT = ir.FloatType()
_INDEX = ir.IntType(32)


def _start_text(columns: int) -> str:
    count = columns // 2
    sums = ",".join(f"${i}" for i in range(count))
    lines = ["{", ".reg .pred p;", ".reg .b64 da, db;", "setp.ne.b32 p, 1, 0;", "wgmma.fence.sync.aligned;"]
    for k in range(DEPTH // 16):
        lines += [
            f"add.s64 da, ${2 * count}, {k * A_STEP};",
            f"add.s64 db, ${2 * count + 1}, {k * B_STEP};",
            f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.bf16.bf16 {{{sums}}}, da, db, p, 1, 1, 0, 1;",
        ]
    return "\n".join([*lines, "wgmma.commit_group.sync.aligned;", "}"])


def _on_sums(
    context: Any, builder: Any, array_type: Any, array: Any, count: int, text: str, more: list[Any], kinds: str
) -> Any:
    """Run `text` with the sums of a local array as operands that are read and written."""
    data = context.make_array(array_type)(context, builder, array).data
    places = [builder.gep(data, [_INDEX(i)]) for i in range(count)]
    values = [builder.load(place) for place in places]
    constraints = ",".join([*["=f"] * count, *map(str, range(count)), *kinds, "~{memory}"])
    result_type = ir.LiteralStructType([_FLOAT] * count)
    function = ir.FunctionType(result_type, [_FLOAT] * count + [m.type for m in more])
    result = builder.call(ir.InlineAsm(function, text, constraints, side_effect=True), [*values, *more])
    for i, place in enumerate(places):
        builder.store(builder.extract_value(result, i), place)
    return context.get_dummy_value()


@cache
def make_products(columns: int) -> tuple[Any, Any, Any]:
    """(start_product, keep_one_product, finish_product) for sums of 64 rows and so many columns.

    - start_product(sums, a, b): begin adding a slice's product; a and b are descriptors of its first 16 columns
    - keep_one_product(sums): wait until at most the last product begun is under way: the one before reads no more
    - finish_product(sums): wait until the sums are complete
    """
    count = columns // 2

    @intrinsic
    def start_product(context, sums, a, b):
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            text = _start_text(columns)
            return _on_sums(context, builder, signature.args[0], arguments[0], count, text, arguments[1:], "ll")

        return types.void(sums, types.uint64, types.uint64), generate

    def make_wait(pending: int) -> Any:
        @intrinsic
        def wait(context, sums):
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                text = f"wgmma.wait_group.sync.aligned {pending};"
                return _on_sums(context, builder, signature.args[0], arguments[0], count, text, [], "")

            return types.void(sums), generate

        return wait

    return start_product, make_wait(1), make_wait(0)


@intrinsic
def show_to_tensor_cores(context):
    """Make this thread's writes to shared memory visible to wgmma, which reads by another path."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = ir.FunctionType(ir.VoidType(), [])
        builder.call(ir.InlineAsm(function, "fence.proxy.async.shared::cta;", "~{memory}", side_effect=True), [])
        return context.get_dummy_value()

    return types.void(), generate
