"""The matrix product on the tensor cores: bf16 factors, float32 sums, bf16 result.

A block of eight warps computes a tile of C. `cp.async` copies k blocks of both factors into a ring of stages in shared
memory; each warp reads fragments with `ldmatrix` and multiplies 16 x 8 x 16 at a time with `mma.sync`.

                 columns
            +------+------+
      rows  | warp | warp |   4 x 2 warps, each 32 x 64 sums in registers
            | ...  | ...  |
            +------+------+

Shared memory: stages, each A (rows x depth) and B (depth x columns), rows padded by 16 bytes against bank conflicts.
Epilogue: the tile replaces the stages, so that each lane stores 16 bytes. Blocks are ordered in groups of rows, so that
concurrent blocks share k blocks in the L2 cache.
Bytes: A once for each tile across, B once for each tile down, C once. Floor: 2 m n k operations at the peak.
Source: NVIDIA CUTLASS, multistage GEMM and threadblock swizzle; PTX ISA 8.x, 9.7.14.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.arguments import KernelSignature, ints, pointers
from core.gpu.compilation import ptx
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, u8, u32, u64
from core.gpu.launch import Tensor, blocks_of, make_launch
from core.gpu.parts.epilogue import make_staging, make_writing, pixel_of_row
from core.gpu.parts.tile import multiply_bf16
from core.gpu.parts.vectors import clear
from core.gpu.select import Case

GROUP: Final = 8
"""Rows of tiles computed together: their k blocks of A stay in the L2 cache for all columns."""

TILE: Final = (128, 128, 32, 4, 2, 4)
"""Rows, columns and depth of a tile, stages, warps along rows and columns: 74 KB, which every GPU since Ampere has.
The H200 is fastest with (128, 128, 64, 3, 2, 2), at 105 KB."""

SIGNATURE: Final = KernelSignature((
    *pointers(a="bf16 (m, k)", b="bf16 (k, n)", c="bf16 (m, n)"),
    *ints(m="rows of c", n="columns of c, a multiple of 8", k="depth, a multiple of 8"),
))  # fmt: skip


def make_copier(tall: int, wide: int, at: int, threads: int) -> Any:
    """Device function that starts the copies of a factor's tile to `at` in a stage, zeros beyond the factor's edges."""
    row, chunks = wide * 2 + 16, wide // 8  # rows padded by 16 bytes: no bank conflicts

    @device_function
    def copy(slot, factor, row0, column0, rows, columns, thread):
        for j in range(tall * chunks // threads):
            i = i32(thread + j * threads)
            r, q = i32(i // chunks), i32(i % chunks * 8)
            real = row0 + r < rows and column0 + q < columns
            place = u64(u64(row0 + r) * u64(columns) + u64(column0 + q))
            source = u64(factor + place * u64(2)) if real else u64(factor)
            ptx.copy_async16(u32(slot + u32(at + r * row + q * 2)), source, u32(16 if real else 0))

    return copy


def make_multiplier(rows: int, columns: int, depth: int, down: int, across: int) -> Any:
    """Device function that adds the product of one k block to a warp's `down` x `across` tiles of 16 x 8."""
    a_row, b_row, b_at, fragments = depth * 2 + 16, columns * 2 + 16, rows * (depth * 2 + 16), across * 2

    @device_function
    def multiply_k_block(acc, slot, warp_row, warp_column, lane):
        for kk in range(depth // 16):
            bits = cuda.local.array(fragments, u32)
            for j in range(across // 2):
                column = warp_column + j * 16 + (lane >> 4) * 8
                t = ptx.ldmatrix4_transposed(u32(slot + u32(b_at + (kk * 16 + (lane & 15)) * b_row + column * 2)))
                bits[j * 4], bits[j * 4 + 1], bits[j * 4 + 2], bits[j * 4 + 3] = t[0], t[1], t[2], t[3]
            for i in range(down):
                line = warp_row + i * 16 + (lane & 15)
                f = ptx.ldmatrix4(u32(slot + u32(line * a_row + kk * 32 + (lane >> 4) * 16)))
                for j in range(across):
                    multiply_bf16(f, bits[j * 2], bits[j * 2 + 1], acc, (i * across + j) * 4)

    return multiply_k_block


def make_kernel(rows: int, columns: int, depth: int, stages: int, warps_down: int, warps_across: int) -> Any:
    """``C = A B`` for a tile; A (M, K), B (K, N), C (M, N) in bf16 at 64-bit addresses, K and N multiples of 8."""
    threads = 32 * warps_down * warps_across
    b_at = rows * (depth * 2 + 16)
    stage = b_at + depth * (columns * 2 + 16)
    down, across = rows // warps_down // 16, columns // warps_across // 8
    sums, ahead = down * across * 4, stages - 1
    wait, wait_all = ptx.WAIT_COPIES[stages - 2], ptx.WAIT_COPIES[0]
    copy_a, copy_b = make_copier(rows, depth, 0, threads), make_copier(depth, columns, b_at, threads)
    multiply_k_block = make_multiplier(rows, columns, depth, down, across)
    stage_out = make_staging(2, (down, across), columns * 2 + 16)
    write_out = make_writing(2, rows, columns, threads, pixel_of_row)

    def product(a, b, c, m, n, k):
        base = ptx.shared_address(cuda.shared.array(0, u8))
        thread = i32(cuda.threadIdx.x)
        lane, warp = i32(thread & 31), i32(thread >> 5)
        warp_row = i32(warp // warps_across * (rows // warps_down))
        warp_column = i32(warp % warps_across * (columns // warps_across))
        tiles_down, tiles_across = i32((m + rows - 1) // rows), i32((n + columns - 1) // columns)
        group = i32(i32(cuda.blockIdx.x) // (GROUP * tiles_across))
        tall = i32(min(tiles_down - group * GROUP, GROUP))
        inside = i32(i32(cuda.blockIdx.x) - group * GROUP * tiles_across)
        row0, column0 = i32((group * GROUP + inside % tall) * rows), i32(inside // tall * columns)
        acc = cuda.local.array(sums, f32)
        clear(acc)
        steps = i32((k + depth - 1) // depth)
        for step in range(steps + ahead):
            if step >= ahead:
                wait()
                cuda.syncthreads()  # this k block is in shared memory; the stage filled next has been read
            if step < steps:  # copied now, multiplied `ahead` steps later
                slot = u32(base + u32(step % stages * stage))
                copy_a(slot, a, row0, i32(step * depth), m, k, thread)
                copy_b(slot, b, i32(step * depth), column0, k, n, thread)
            ptx.commit_copies()
            if step >= ahead:
                slot = u32(base + u32((step - ahead) % stages * stage))
                multiply_k_block(acc, slot, warp_row, warp_column, lane)
        wait_all()
        cuda.syncthreads()  # all products are complete: the tile replaces the stages
        none = i32(0)
        stage_out(acc, base, warp_row, warp_column, lane, u64(0), column0, n, none)
        cuda.syncthreads()  # the tile is in shared memory
        write_out(base, thread, column0, n, c, n, u64(0), none, none, none, (row0, m))

    return product


def shared_bytes(rows: int, columns: int, depth: int, stages: int, warps_down: int, warps_across: int) -> int:
    """Dynamic shared memory of a tile: the stages, or the result that replaces them."""
    return max(stages * (rows * (depth * 2 + 16) + depth * (columns * 2 + 16)), rows * (columns * 2 + 16))


def write(case: Case) -> None:
    x, x2, out = product_of(case)
    tile = case.configuration or TILE
    values = {"a": x.address, "b": x2.address, "c": out.address, "m": out.width, "n": out.channels, "k": x.channels}
    grid = (blocks_of(out.width, tile[0]) * blocks_of(out.channels, tile[1]),)
    case.frame.add(make_launch(
        case.step.node, case.direction, make_kernel, tile, SIGNATURE, values, grid,
        (32 * tile[4] * tile[5],), shared_bytes(*tile), resident=1,
    ))  # fmt: skip


def product_of(case: Case) -> tuple[Tensor, Tensor, Tensor]:
    """Both factors and the product: columns of a matrix are channels, its rows are the pixels of one row."""
    x, x2 = case.step.inputs
    return case.frame.tensor(x), case.frame.tensor(x2), case.frame.tensor(case.step.output)


def refuse(case: Case) -> str:
    (_, depth), (_, columns) = (value.shape for value in case.step.inputs)
    if depth % 8 or columns % 8:
        return f"16-byte copies of bf16 need the depth {depth} and the columns {columns} to be multiples of 8."
    return ""
