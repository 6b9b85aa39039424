"""The bf16 matrix product by TMA and `wgmma`: a producer thread only copies, consumer warpgroups only multiply.

A persistent block computes tile after tile of C, 64 `groups` rows by `columns`, in k blocks of 64; each warpgroup has
64 rows of it.

    producer (1 thread) --TMA--> | stage 0 | stage 1 | ... | --wgmma--> consumers (warpgroups)
                         full[s] ->                         <- empty[s]

Shared memory: stages, each A (rows x 64) and B (64 x columns in TMA tiles of 64) with the 128-byte XOR swizzle | rows
of the result for each warp | barriers: `full` of a stage when its bytes have come, `empty` when all warps have read it.
No thread computes an address for a copy, multiplying warps never wait for one another, and the k blocks of the next
tile arrive while this one is stored. Small products take smaller tiles with more stages (`choose`).
Bytes: A once for each tile across, B once for each tile down, C once. Floor: 2 m n k operations at the tensor cores'
peak. A is read as in memory, its depth along the rows; B transposed.
Source: NVIDIA CUTLASS, warp-specialised persistent GEMM; PTX ISA 8.x, section 9.7.15.5; ADR 20.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from core.gpu.arguments import KernelSignature, ints, pointers, tensor_maps
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, u8, u32, u64
from core.gpu.compilation.ptx import divide_any, pack_bf16, shared_address, shared_load4, shared_store1, store4
from core.gpu.launch import blocks_of, make_launch
from core.gpu.ops.matmul.tensor_core import GROUP, product_of
from core.gpu.parts.vectors import clear
from core.gpu.select import Case
from core.gpu.sm90 import tma
from core.gpu.sm90.wgmma import aligned, low_word, make_products, make_wait, swizzled_high_word

SIGNATURE: Final = KernelSignature((
    *tensor_maps(map_a="bf16 (m, k)", map_b="bf16 (k, n)"),
    *pointers(c="bf16 (m, n)"),
    *ints(m="rows of c", n="columns of c, a multiple of 8", k="depth, a multiple of 8", down="tiles down",
          across="tiles across"),
))  # fmt: skip
DEPTH: Final = 64
"""Depth of a k block: four instructions of 16, a swizzled row of 128 bytes."""
HIGH: Final = swizzled_high_word(128)
"""Upper half of the descriptors of both factors."""
B_TILE_BYTES: Final = DEPTH * tma.TILE_COLUMNS * 2
"""Bytes of a TMA tile of B: 64 columns."""
K_BLOCK: Final = [(2 * k, 0, 128 * k) for k in range(DEPTH // 16)]
"""Where the instructions of a k block begin in both factors."""
C_ROW: Final = tma.TILE_COLUMNS * 2 + 16
"""Bytes of a result row in shared memory: 64 columns, and 16 against bank conflicts."""
C_BYTES: Final = 16 * C_ROW


class MatmulTile(NamedTuple):
    """What a block computes: 64 `groups` rows by `columns`, from `stages` k blocks (a power of two)."""

    groups: int
    columns: int
    stages: int

    @property
    def rows(self) -> int:
        return 64 * self.groups

    @property
    def warps(self) -> int:
        """Consumer warps; the producer is one more."""
        return 4 * self.groups

    @property
    def threads(self) -> int:
        return 32 * (self.warps + 1)

    @property
    def stage(self) -> int:
        """Bytes of a k block of both factors."""
        return 2 * DEPTH * (self.rows + self.columns)

    @property
    def shared(self) -> int:
        """The stages and their barriers, each warp's result rows, and room to begin at a multiple of 1024."""
        return self.stages * (self.stage + 16) + self.warps * C_BYTES + 1024


LARGE: Final = MatmulTile(2, 256, 4)
TILES: Final = {
    MatmulTile(1, 64, 8): 0.161, MatmulTile(1, 128, 8): 0.221, MatmulTile(2, 128, 4): 0.374,
    MatmulTile(2, 192, 4): 0.528, MatmulTile(3, 192, 4): 0.784, LARGE: 0.706,
}  # fmt: skip
"""Each with the microseconds that a block takes for a k block, without 2.2 for the beginning: medians over squares of
512 to 4096 on an H200 (`benchmarks/results/product_tiles-h200.json`)."""

WAVES: Final = 4
"""Waves of the largest tiles from which they are taken whatever remains."""


@device_function
def find_tile(tile, down, across):
    """(row, column) of a tile: groups of rows first, so that concurrent blocks share k blocks in the L2 cache."""
    group = divide_any(u32(tile), u32(u32(GROUP) * u32(across)))
    inside = u32(u32(tile) - group * u32(GROUP) * u32(across))
    tall = u32(min(u32(u32(down) - group * u32(GROUP)), u32(GROUP)))
    column = divide_any(inside, tall)
    return i32(group * u32(GROUP) + inside - column * tall), i32(column)


def make_producer(tile: MatmulTile) -> Any:
    """Device function of one thread: the k blocks of all tiles of this block, as far ahead as there are free stages."""
    rows, columns, stages, STAGE, a_bytes = tile.rows, tile.columns, tile.stages, tile.stage, 2 * DEPTH * tile.rows

    @device_function
    def produce(ring, full, empty, map_a, map_b, down, across, steps):
        stage, parity = u32(0), u32(1)
        tile = i32(cuda.blockIdx.x)
        while tile < down * across:
            row, column = find_tile(tile, down, across)
            step = i32(0)
            while step < steps:
                tma.wait_for(u32(empty + stage * u32(8)), parity)
                barrier, target = u32(full + stage * u32(8)), u32(ring + stage * u32(STAGE))
                tma.expect_bytes(barrier, u32(STAGE))
                tma.copy_tile(target, map_a, i32(step * DEPTH), i32(row * rows), barrier)
                for part in range(columns // tma.TILE_COLUMNS):
                    first = i32(column * columns + part * tma.TILE_COLUMNS)
                    to = u32(target + u32(a_bytes + part * B_TILE_BYTES))
                    tma.copy_tile(to, map_b, first, i32(step * DEPTH), barrier)
                stage = u32((stage + u32(1)) & u32(stages - 1))
                parity = u32(parity ^ u32(stage == 0))
                step = i32(step + 1)
            tile = i32(tile + i32(cuda.gridDim.x))

    return produce


@device_function
def release(empty, stage, lane):
    """This warp has read the stage."""
    if lane == 0:
        tma.arrive(u32(empty + stage * u32(8)))


def make_writer(columns: int) -> Any:
    """Device function, the epilogue: a warp's 16 rows of sums, 64 columns at a time through shared memory."""

    @device_function
    def write_rows(acc, c_rows, c, row, column, m, n, lane):
        for part in range(columns // 64):
            first = u32(c_rows + u32((lane >> 2) * C_ROW + (lane & 3) * 4))
            for j in range(8):
                o = (part * 8 + j) * 4
                shared_store1(u32(first + u32(j * 16)), pack_bf16(acc[o], acc[o + 1]))
                shared_store1(u32(first + u32(j * 16 + 8 * C_ROW)), pack_bf16(acc[o + 2], acc[o + 3]))
            cuda.syncwarp()  # the rows are complete
            for i in range(4):
                r, q = i32(i * 4 + (lane >> 3)), i32(lane & 7)
                v = shared_load4(u32(c_rows + u32(r * C_ROW + q * 16)))
                at = i32(column + part * 64 + q * 8)
                if row + r < m and at < n:
                    store4(u64(c + (u64(row + r) * u64(n) + u64(at)) * u64(2)), v[0], v[1], v[2], v[3])
            cuda.syncwarp()  # the rows may be written again

    return write_rows


def make_consumer(tile: MatmulTile) -> Any:
    """Device function of the other warps: the product of each k block, begun while the last one is in flight."""
    rows, columns, stages, STAGE, a_bytes = tile.rows, tile.columns, tile.stages, tile.stage, 2 * DEPTH * tile.rows
    sums, write_rows = columns // 2, make_writer(columns)
    start_product = make_products(columns, [K_BLOCK], (False, True))
    keep_one_product, finish_product = make_wait(sums, 1), make_wait(sums, 0)

    @device_function
    def consume(ring, full, empty, c_rows, c, m, n, warp, lane, down, across, steps):
        acc = cuda.local.array(sums, f32)
        stage, parity, last = u32(0), u32(0), u32(0)
        offset = u32(u32(warp >> 2) * u32(64 * 128))  # of this warpgroup's 64 rows of A
        tile = i32(cuda.blockIdx.x)
        while tile < down * across:
            row, column = find_tile(tile, down, across)
            clear(acc)
            step = i32(0)
            while step < steps:
                tma.wait_for(u32(full + stage * u32(8)), parity)
                source = u32(ring + stage * u32(STAGE))
                a, b = low_word(u32(source + offset), u32(16)), low_word(u32(source + u32(a_bytes)), u32(B_TILE_BYTES))
                start_product(acc, a, u32(HIGH), u32(0), b, u32(HIGH), u32(1))
                keep_one_product(acc)
                if step > 0:  # the product before is complete: its stage is free
                    release(empty, last, lane)
                last = stage
                stage = u32((stage + u32(1)) & u32(stages - 1))
                parity = u32(parity ^ u32(stage == 0))
                step = i32(step + 1)
            finish_product(acc)
            release(empty, last, lane)
            write_rows(acc, c_rows, c, i32(row * rows + warp * 16), i32(column * columns), m, n, lane)
            tile = i32(tile + i32(cuda.gridDim.x))

    return consume


def make_product(groups: int, columns: int, stages: int) -> Any:
    """``C = A B`` by a tile of these numbers."""
    tile = MatmulTile(groups, columns, stages)
    STAGE, warps = tile.stage, tile.warps
    produce, consume = make_producer(tile), make_consumer(tile)
    initialise_barriers = tma.make_barriers(stages, warps)

    def product(map_a, map_b, c, m, n, k, down, across):
        ring = aligned(shared_address(cuda.shared.array(0, u8)))
        c_rows = u32(ring + u32(stages * STAGE))
        full = u32(c_rows + u32(warps * C_BYTES))
        empty = u32(full + u32(8 * stages))
        thread = i32(cuda.threadIdx.x)
        lane, warp = i32(thread & 31), i32(thread >> 5)
        steps = i32((k + DEPTH - 1) // DEPTH)
        if thread == 0:
            initialise_barriers(full, empty)
        if warp == warps and lane == 0:
            tma.prefetch_map(map_a)
            tma.prefetch_map(map_b)
        cuda.syncthreads()  # the barriers are initialised
        if warp == warps:  # the producer warp
            if lane == 0:
                produce(ring, full, empty, map_a, map_b, down, across, steps)
        else:
            own_rows = u32(c_rows + u32(warp) * u32(C_BYTES))
            consume(ring, full, empty, own_rows, c, m, n, warp, lane, down, across, steps)

    return product


def choose(m: int, n: int, processors: int) -> MatmulTile:
    """The tile with the least time for a product of m rows and n columns: its waves times their cost.

    At each of the twelve measured sizes that is the fastest of six, which no rule by size alone is: 1792 takes the
    tile of 1024, because three waves of small tiles are less than one of the largest.
    """

    def waves(tile: MatmulTile) -> int:
        return blocks_of(blocks_of(m, tile.rows) * blocks_of(n, tile.columns), processors)

    return LARGE if waves(LARGE) >= WAVES else min(TILES, key=lambda tile: waves(tile) * TILES[tile])


def write(case: Case) -> None:
    x, x2, out = product_of(case)
    m, n, k, processors = out.width, out.channels, x.channels, case.frame.processors
    tile: MatmulTile = case.configuration or choose(m, n, processors)
    down, across = blocks_of(m, tile.rows), blocks_of(n, tile.columns)
    values = {
        "map_a": tma.matrix_map(x.address, m, k, k, tile.rows),
        "map_b": tma.matrix_map(x2.address, k, n, n, DEPTH), "c": out.address, "m": m, "n": n, "k": k, "down": down,
        "across": across,
    }  # fmt: skip
    case.frame.add(make_launch(
        case.step.node, case.direction, make_product, tile, SIGNATURE, values,
        (min(down * across, processors),), (tile.threads,), tile.shared, resident=1,
    ))  # fmt: skip
