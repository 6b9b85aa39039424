"""Warpgroup products as functions for kernels: `wgmma.mma_async` with both factors in shared memory.

Four warps together add a product of 64 rows, 16 deep per instruction, to sums in their registers; warp w has the rows
from 16 w on, in the layout of `mma.sync`. A factor consists of core matrices of 8 x 16 bytes. Without swizzle a core
matrix is 128 contiguous bytes, and the distance to the next, along the sum (K) and across it, is free:

    descriptor, low word    address / 16 | bytes from one core matrix to the next along the sum / 16 << 16
    descriptor, high word   bytes from one core matrix to the next across the sum / 16 | swizzle << 30

So the windows of a convolution need not be copied: the factor of a tap begins some pixels, of 16 bytes, further on. A
factor's rows may run along the sum or across it (transposed). `core.gpu.compilation.generations` writes the target.

**XOR swizzle** of TMA tiles. A tile has 64 rows, or as many as its part of a feature map has pixels. A row holds 16, 32
or 64 channels of a pixel: 32, 64 or 128 bytes. TMA permutes the 16-byte chunks of a row so that neither `wgmma` nor the
threads meet bank conflicts; chunk c of row r is at

    128 bytes: c xor (r mod 8)      64 bytes: c xor (r / 2 mod 4)      32 bytes: c xor (r / 4 mod 2)

Eight rows are one core matrix, whether its rows are the pixels or, transposed, the channels. The swizzle follows from
the address, not from the tile, so a factor may begin at any row.
Source: PTX ISA 8.x, sections 5.5.6 and 9.7.15.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from core.gpu.compilation.cuda import device_function, i32, intrinsic, ir, types, u32
from core.gpu.compilation.ptx import instruction

TILE: Final = 64
"""Rows of a product, and of a TMA tile of a matrix."""
PERIOD: Final = 1024
"""Bytes after which every swizzle repeats: alignment of a tile."""
MAX_TILE: Final = 256
"""Pixels of a TMA tile of a feature map along each side, at most."""
MAX_PADDING: Final = 1.6
"""Pixels computed over pixels needed, above which a kernel by image rows refuses the layer."""

_MODE: Final = {128: 1, 64: 2, 32: 3}

Offsets: TypeAlias = tuple[int, int, int]
"""Where an instruction's factors begin: units of 16 bytes from A's descriptor, A steps in addition, units from B's."""

_FLOAT, _WORD = ir.FloatType(), ir.IntType(32)


def row_bytes(channels: int) -> int:
    """Bytes of a row of the tiles that hold so many channels, or 64 of them each."""
    return 32 if channels <= 16 else 64 if channels <= 32 else 128


def tiles_of(channels: int) -> int:
    """TMA tiles side by side."""
    return -(-channels * 2 // row_bytes(channels))


def tile_bytes(channels: int) -> int:
    """Bytes of a TMA tile of 64 rows."""
    return TILE * row_bytes(channels)


def swizzled_high_word(row: int) -> int:
    """Upper half of a descriptor of tiles whose rows have `row` bytes: eight rows from one core matrix to the next."""
    return (8 * row >> 4) | (_MODE[row] << 30)


@device_function
def low_word(address, along):
    """Lower half of a descriptor: the address of the factor, and the bytes between its core matrices along the sum."""
    return u32((u32(address) >> u32(4)) | (u32(along) << u32(12)))


@device_function
def high_word(across):
    """Upper half of a descriptor without swizzle: the bytes between core matrices across the sum."""
    return u32(u32(across) >> u32(4))


@device_function
def aligned(address):
    """The first address from this one on where a swizzled tile may begin."""
    return u32((u32(address) + u32(PERIOD - 1)) & u32(-PERIOD & 0xFFFFFFFF))


def make_xor(row: int) -> Any:
    """Device function: the swizzle of a lane's row, number lane / 4 of eight rows of `row` bytes."""
    SHIFT, MASK = {128: (2, 7), 64: (3, 3), 32: (4, 1)}[row]

    @device_function
    def xor(lane):
        return i32((lane >> SHIFT) & MASK)

    return xor


def _on_sums(count: int, text: str, operands: int) -> Any:
    """The code generator of `text` on a local array of `count` float32, read and written, and so many words."""
    struct = ir.LiteralStructType([_FLOAT] * count)
    constraints = ",".join([*["=f"] * count, *map(str, range(count)), *["r"] * operands, "~{memory}"])
    function = ir.FunctionType(struct, [_FLOAT] * count + [_WORD] * operands)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointers = [builder.gep(data, [_WORD(i)]) for i in range(count)]
        values = [builder.load(pointer) for pointer in pointers]
        assembly = ir.InlineAsm(function, text, constraints, side_effect=True)
        result = builder.call(assembly, [*values, *arguments[1:]])
        for i, pointer in enumerate(pointers):
            builder.store(builder.extract_value(result, i), pointer)
        return context.get_dummy_value()

    return generate


def make_products(
    columns: int, tiles: Sequence[Sequence[Offsets]], transposed: tuple[bool, bool] = (False, False),
    first_only: int = 0, narrow: Sequence[Sequence[Offsets]] = (),
) -> Any:  # fmt: skip
    """Intrinsic ``f(sums, a low, a high, a step, b low, b high, all)`` that begins one group of products.

    `tiles`: for each 64 x columns product of this warpgroup its instructions, 16 deep each; `transposed`: whether the
    rows of A and B run across the sum. `sums` holds columns / 2 floats per tile. Where `first_only` is not 0, a tile's
    instructions after so many are skipped unless `all` is 1 (with a branch the compiler would move the sums between
    registers); so are those of `narrow`, products of 8 columns whose sums follow.
    """
    groups = [(columns, steps, first_only or len(steps)) for steps in tiles] + [(8, steps, 0) for steps in narrow]
    total, at = sum(wide // 2 for wide, _, _ in groups), 0
    al, ah, step, bl, bh, whole = (f"${2 * total + i}" for i in range(6))
    lines = ["{", ".reg .pred p, q;", ".reg .b64 da, db;", ".reg .b32 t;", "setp.ne.b32 p, 1, 0;",
             f"setp.eq.b32 q, {whole}, 1;", "wgmma.fence.sync.aligned;"]  # fmt: skip
    for wide, steps, always in groups:
        sums = ",".join(f"${at + i}" for i in range(wide // 2))
        at += wide // 2
        for i, (a_offset, a_steps, b_offset) in enumerate(steps):
            when = "" if i < always else "@q "
            lines += [
                f"mad.lo.u32 t, {step}, {a_steps}, {al};", f"add.u32 t, t, {a_offset};", f"mov.b64 da, {{t, {ah}}};",
                f"add.u32 t, {bl}, {b_offset};", f"mov.b64 db, {{t, {bh}}};",
                f"{when}wgmma.mma_async.sync.aligned.m64n{wide}k16.f32.bf16.bf16 {{{sums}}}, da, db, p, 1, 1, "
                f"{int(transposed[0])}, {int(transposed[1])};",
            ]  # fmt: skip
    generate = _on_sums(total, "\n".join([*lines, "wgmma.commit_group.sync.aligned;", "}"]), 6)

    @intrinsic
    def start(context, sums, a_low, a_high, a_step, b_low, b_high, every):
        return types.void(sums, u32, u32, u32, u32, u32, u32), generate

    return start


def make_wait(count: int, pending: int) -> Any:
    """Intrinsic ``f(sums)``: wait until at most `pending` groups are under way; then `count` floats may be read."""
    generate = _on_sums(count, f"wgmma.wait_group.sync.aligned {pending};", 0)

    @intrinsic
    def wait(context, sums):
        return types.void(sums), generate

    return wait


warpgroup_barrier = instruction("warpgroup_barrier", "bar.sync $0, 128;", "", "u", memory=True)
"""``(number)``: a barrier of one warpgroup; each has its own number from 1 on."""

named_barrier = instruction("named_barrier", "bar.sync $0, $1;", "", "uu", memory=True)
"""``(number, threads)``: a barrier of so many threads, whole warps."""

fence_async_proxy = instruction("fence_async_proxy", "fence.proxy.async.shared::cta;", "", "", memory=True)
"""Make this thread's writes to shared memory visible to `wgmma` and TMA, which access it through the async proxy."""

uniform = instruction("uniform", "shfl.sync.idx.b32 $0, $1, 0, 31, 0xffffffff;", "i", "i", volatile=True)
"""The value of a warp's first lane: the assembler then knows that all lanes have the same."""
