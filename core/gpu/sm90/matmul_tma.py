"""The bf16 matrix product by TMA and `wgmma`: one thread only copies, warpgroups only multiply.

A block takes tile after tile of C, 64 `groups` rows by `columns`, in slices 64 deep; a warpgroup has 64 rows of it.

    producer (1 thread) --TMA--> | stage 0 | stage 1 | ... | --wgmma--> consumers (warpgroups)
                         full[s] ->                         <- empty[s]

Shared memory: stages, each A (rows x 64) and B (64 x columns in TMA tiles of 64) with the 128-byte XOR swizzle | lines
of the result on their way out, for each warp | barriers: `full` of a stage when its bytes have come, `empty` when all
warps are done with it. No thread computes an address for a copy, multiplying warps never wait for one another, and the
next tile's slices arrive while this one is stored. Small products take smaller tiles with more stages (`choose`).
Bytes: A once for each tile across, B once for each tile down, C once. A is read as in memory, its depth along the rows;
B transposed. Source of the layouts: PTX ISA 8.x, section 9.7.15.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import pack_bf16, shared_address, shared_load4, shared_store1, store4
from core.gpu.launch import INTEGER, POINTER, Argument, KernelSignature, blocks_of, make_launch
from core.gpu.ops.matmul.tensor_core import GROUP, product_of
from core.gpu.select import Case
from core.gpu.sm90 import tma
from core.gpu.sm90.wgmma import aligned, low_word, make_products, make_wait, swizzled_high_word

i32, u32, u64, f32 = types.int32, types.uint32, types.uint64, types.float32

SIGNATURE: Final = KernelSignature((
    Argument("map_a", tma.TENSOR_MAP, "bf16 (m, k)"), Argument("map_b", tma.TENSOR_MAP, "bf16 (k, n)"),
    Argument("c", POINTER, "bf16 (m, n)"), Argument("m", INTEGER, "rows of c"),
    Argument("n", INTEGER, "columns of c, a multiple of 8"), Argument("k", INTEGER, "depth, a multiple of 8"),
    Argument("down", INTEGER, "tiles down"), Argument("across", INTEGER, "tiles across"),
))  # fmt: skip
DEPTH: Final = 64
"""Depth of a slice: four instructions of 16, a swizzled line of 128 bytes."""
HIGH: Final = swizzled_high_word(128)
"""Upper half of the descriptors of both factors."""
PART: Final = DEPTH * tma.TILE_COLUMNS * 2
"""Bytes of a TMA tile of B: 64 columns."""
SLICE: Final = [(2 * k, 0, 128 * k) for k in range(DEPTH // 16)]
"""Where the instructions of a slice begin in both factors."""
C_ROW: Final = tma.TILE_COLUMNS * 2 + 16
"""Bytes of a line on its way out: 64 columns, and 16 against bank conflicts."""
C_BYTES: Final = 16 * C_ROW


@final
@dataclass(frozen=True, slots=True)
class MatmulTile:
    """What a block computes: 64 `groups` rows by `columns`, from a ring of `stages` slices (a power of two)."""

    groups: int
    columns: int
    stages: int

    @property
    def numbers(self) -> tuple[int, int, int]:
        """As a recipe's constants."""
        return self.groups, self.columns, self.stages

    @property
    def rows(self) -> int:
        return 64 * self.groups

    @property
    def warps(self) -> int:
        """Warps that multiply; one more copies."""
        return 4 * self.groups

    @property
    def threads(self) -> int:
        return 32 * (self.warps + 1)

    @property
    def stage(self) -> int:
        """Bytes of a slice of both factors."""
        return 2 * DEPTH * (self.rows + self.columns)

    @property
    def shared(self) -> int:
        """The ring, each warp's lines on their way out, the barriers, and room to begin at a multiple of 1024."""
        return self.stages * (self.stage + 16) + self.warps * C_BYTES + 1024


LARGE: Final = MatmulTile(2, 256, 4)
TILES: Final = {
    MatmulTile(1, 64, 8): 0.161, MatmulTile(1, 128, 8): 0.221, MatmulTile(2, 128, 4): 0.374,
    MatmulTile(2, 192, 4): 0.528, MatmulTile(3, 192, 4): 0.784, LARGE: 0.706,
}  # fmt: skip
"""Each with the microseconds that a block takes for a slice, 2.2 for the beginning left out: medians over squares of
512 to 4096 on an H200 (`benchmarks/results/product_tiles-h200.json`)."""

PROCESSORS: Final = 132
"""Of an H100 (SXM) or H200."""

TURNS: Final = 4
"""Turns of the largest tiles from which they are taken whatever remains."""


@device_function
def find_tile(tile, down, across):
    """(row, column) of a tile: groups of rows first, so that blocks at work find each other's slices in L2."""
    group = tma.divide(u32(tile), u32(u32(GROUP) * u32(across)))
    inside = u32(u32(tile) - group * u32(GROUP) * u32(across))
    tall = u32(min(u32(u32(down) - group * u32(GROUP)), u32(GROUP)))
    column = tma.divide(inside, tall)
    return i32(group * u32(GROUP) + inside - column * tall), i32(column)


def make_sender(tile: MatmulTile) -> Any:
    """Device function of one thread: the slices of all tiles of this block, as far ahead as the ring has room."""
    rows, columns, stages, stage, a_bytes = tile.rows, tile.columns, tile.stages, tile.stage, 2 * DEPTH * tile.rows

    @device_function
    def send_tiles(ring, full, empty, map_a, map_b, down, across, steps):
        slot, parity = u32(0), u32(1)
        tile = i32(cuda.blockIdx.x)
        while tile < down * across:
            row, column = find_tile(tile, down, across)
            step = i32(0)
            while step < steps:
                tma.wait_for(u32(empty + slot * u32(8)), parity)
                barrier, place = u32(full + slot * u32(8)), u32(ring + slot * u32(stage))
                tma.expect_bytes(barrier, u32(stage))
                tma.copy_tile(place, map_a, i32(step * DEPTH), i32(row * rows), barrier)
                for part in range(columns // tma.TILE_COLUMNS):
                    first = i32(column * columns + part * tma.TILE_COLUMNS)
                    tma.copy_tile(u32(place + u32(a_bytes + part * PART)), map_b, first, i32(step * DEPTH), barrier)
                slot = u32((slot + u32(1)) & u32(stages - 1))
                parity = u32(parity ^ u32(slot == 0))
                step = i32(step + 1)
            tile = i32(tile + i32(cuda.gridDim.x))

    return send_tiles


@device_function
def release(empty, slot, lane):
    """This warp reads the slice no more."""
    if lane == 0:
        tma.arrive(u32(empty + slot * u32(8)))


def make_writer(columns: int) -> Any:
    """Device function: a warp's 16 lines of sums, 64 columns at a time through shared lines of its own."""

    @device_function
    def write_lines(acc, lines, c, row, column, m, n, lane):
        for part in range(columns // 64):
            place = u32(lines + u32((lane >> 2) * C_ROW + (lane & 3) * 4))
            for j in range(8):
                o = (part * 8 + j) * 4
                shared_store1(u32(place + u32(j * 16)), pack_bf16(acc[o], acc[o + 1]))
                shared_store1(u32(place + u32(j * 16 + 8 * C_ROW)), pack_bf16(acc[o + 2], acc[o + 3]))
            cuda.syncwarp()  # the lines are complete
            for i in range(4):
                r, q = i32(i * 4 + (lane >> 3)), i32(lane & 7)
                v = shared_load4(u32(lines + u32(r * C_ROW + q * 16)))
                at = i32(column + part * 64 + q * 8)
                if row + r < m and at < n:
                    store4(u64(c + (u64(row + r) * u64(n) + u64(at)) * u64(2)), v[0], v[1], v[2], v[3])
            cuda.syncwarp()  # the lines are free

    return write_lines


def make_multiplier(tile: MatmulTile) -> Any:
    """Device function of the other warps: each slice's product, begun before that of the slice before is complete."""
    rows, columns, stages, stage, a_bytes = tile.rows, tile.columns, tile.stages, tile.stage, 2 * DEPTH * tile.rows
    sums, write_lines = columns // 2, make_writer(columns)
    start_product = make_products(columns, [SLICE], (False, True))
    keep_one_product, finish_product = make_wait(sums, 1), make_wait(sums, 0)

    @device_function
    def multiply_tiles(ring, full, empty, lines, c, m, n, warp, lane, down, across, steps):
        acc = cuda.local.array(sums, f32)
        slot, parity, last = u32(0), u32(0), u32(0)
        mine = u32(u32(warp >> 2) * u32(64 * 128))
        tile = i32(cuda.blockIdx.x)
        while tile < down * across:
            row, column = find_tile(tile, down, across)
            for i in range(sums):
                acc[i] = f32(0.0)
            step = i32(0)
            while step < steps:
                tma.wait_for(u32(full + slot * u32(8)), parity)
                place = u32(ring + slot * u32(stage))
                left, right = low_word(u32(place + mine), u32(16)), low_word(u32(place + u32(a_bytes)), u32(PART))
                start_product(acc, left, u32(HIGH), u32(0), right, u32(HIGH), u32(1))
                keep_one_product(acc)
                if step > 0:
                    release(empty, last, lane)
                last = slot
                slot = u32((slot + u32(1)) & u32(stages - 1))
                parity = u32(parity ^ u32(slot == 0))
                step = i32(step + 1)
            finish_product(acc)
            release(empty, last, lane)
            write_lines(acc, lines, c, i32(row * rows + warp * 16), i32(column * columns), m, n, lane)
            tile = i32(tile + i32(cuda.gridDim.x))

    return multiply_tiles


def make_product(groups: int, columns: int, stages: int) -> Any:
    """``C = A B`` by a tile of these numbers."""
    tile = MatmulTile(groups, columns, stages)
    stage, warps = tile.stage, tile.warps
    send_tiles, multiply_tiles = make_sender(tile), make_multiplier(tile)
    open_barriers = tma.make_barriers(stages, warps)

    def product(map_a, map_b, c, m, n, k, down, across):
        ring = aligned(shared_address(cuda.shared.array(0, types.uint8)))
        lines = u32(ring + u32(stages * stage))
        full = u32(lines + u32(warps * C_BYTES))
        empty = u32(full + u32(8 * stages))
        thread = i32(cuda.threadIdx.x)
        lane, warp = i32(thread & 31), i32(thread >> 5)
        steps = i32((k + DEPTH - 1) // DEPTH)
        if thread == 0:
            open_barriers(full, empty)
        if warp == warps and lane == 0:
            tma.prefetch_map(map_a)
            tma.prefetch_map(map_b)
        cuda.syncthreads()  # the barriers are initialised
        if warp == warps:
            if lane == 0:
                send_tiles(ring, full, empty, map_a, map_b, down, across, steps)
        else:
            mine = u32(lines + u32(warp) * u32(C_BYTES))
            multiply_tiles(ring, full, empty, mine, c, m, n, warp, lane, down, across, steps)

    return product


def choose(m: int, n: int, processors: int = PROCESSORS) -> MatmulTile:
    """The tile for a product of m rows and n columns that takes a processor the least time: its turns times their cost.

    At each of the twelve measured sizes that is the fastest of six, which no rule by size alone is: 1792 takes the
    tile of 1024, because three turns of small tiles are less than one of the largest.
    """

    def turns(tile: MatmulTile) -> int:
        return blocks_of(blocks_of(m, tile.rows) * blocks_of(n, tile.columns), processors)

    return LARGE if turns(LARGE) >= TURNS else min(TILES, key=lambda tile: turns(tile) * TILES[tile])


def write(case: Case) -> None:
    """As many blocks as processors, each with tiles one after another."""
    x, x2, out = product_of(case)
    m, n, k, processors = out.width, out.channels, x.channels, case.frame.processors
    tile: MatmulTile = case.configuration or choose(m, n, processors)
    down, across = blocks_of(m, tile.rows), blocks_of(n, tile.columns)
    values = {
        "map_a": tma.matrix_map(x.address, m, k, tile.rows), "map_b": tma.matrix_map(x2.address, k, n, DEPTH),
        "c": out.address, "m": m, "n": n, "k": k, "down": down, "across": across,
    }  # fmt: skip
    case.frame.add(
        make_launch(
            case.step.node, case.direction, "tma", ("sm90.matmul_tma", "make_product", tile.numbers), SIGNATURE,
            values, (min(down * across, processors), 1, 1), (tile.threads, 1, 1), tile.shared, resident=1,
        )
    )  # fmt: skip
