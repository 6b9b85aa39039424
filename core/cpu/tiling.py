"""Tiling of a product into register tiles: widths of columns, heights of rows, and the fields of a record for both."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from core.cpu import microkernel as mk
from core.cpu import tiled
from core.cpu.instruction_set import current_isa
from core.cpu.records import Address, Fields
from core.cpu.tile_code import tile_table

TYPICAL: Final = 24, 64
"""Rows, a multiple of many tile heights, and depth, assumed where they are not known."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Consecutive columns that are computed in tiles of one width."""

    vectors: int
    blocks: int
    first: int
    count: int

    @property
    def block_bytes(self) -> int:
        """Bytes of one float row of a block."""
        return self.vectors * current_isa().vector_width * 4


def split_columns(count: int, m: int = 0, depth: int = 1) -> tuple[Columns, ...]:
    """Tile the columns of a product with decreasing widths; the last block may be partly empty.

    Given `m` rows of that depth, choose the widths of least cost: 14 pixels are one tile of 14 x 32, but three of up to
    6 x 64. Without, choose the widest tiles, unless mixed widths have a cost.
    """
    widths = sorted(v for v in current_isa().tile_heights if v)[::-1]
    options = [_in_widths(count, widths[i:]) for i in range(len(widths) if m or current_isa().again_cycles else 1)]
    return min(options, key=lambda parts: _columns_cost(parts, *((m, depth) if m else TYPICAL)))


def _columns_cost(parts: Sequence[Columns], m: int, depth: int) -> float:
    """Return the cycles of `m` rows of all columns per step of their depth; every width reads A once more."""
    again = (len(parts) - 1) * m * current_isa().again_cycles
    return again + sum(p.blocks * _rows_cost(m, p.vectors, depth) for p in parts)


def _in_widths(count: int, widths: Sequence[int]) -> tuple[Columns, ...]:
    lanes = current_isa().vector_width
    left, first, parts = -(-count // lanes), 0, []
    for vectors in widths:
        blocks, left = divmod(left, vectors)
        if blocks:
            size = min(count - first, blocks * vectors * lanes)
            parts.append(Columns(vectors, blocks, first, size))
            first += size
    return tuple(parts)


@functools.cache
def split_rows(count: int, vectors: int, depth: int) -> tuple[tuple[int, int], ...]:
    """Return the tile heights that sum to `count` at the least cost: at most three pairs (height, number)."""
    heights = sorted(current_isa().tile_heights[vectors], reverse=True)
    cost = {height: _tile_cost(height, vectors, depth) for height in heights}
    return min(_splits(count, heights, 3), key=lambda parts: sum(number * cost[h] for h, number in parts))


def _tile_cost(height: int, vectors: int, depth: int) -> float:
    """Return the cycles of a tile per step of its depth: two multiply-adds or two loads per cycle, four per sum."""
    wide = max(vectors, 1)
    return max(height * wide, height + wide, 8) / 2 + current_isa().call_cycles / depth


def _rows_cost(count: int, vectors: int, depth: int) -> float:
    """Return the cycles of `count` rows per step of their depth."""
    return sum(n * _tile_cost(h, vectors, depth) for h, n in split_rows(count, vectors, depth))


def _splits(count: int, heights: Sequence[int], parts: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield sums of at most `parts` decreasing heights that are `count`, each used nearly as often as possible."""
    if count == 0:
        yield ()
    elif parts == 1:
        yield from (((height, count // height),) for height in heights if count % height == 0)
    else:
        for i, height in enumerate(heights):
            most = count // height
            for number in range(most, max(most - 4, 0), -1):
                for rest in _splits(count - number * height, heights[i + 1 :], parts - 1):
                    yield ((height, number), *rest)


def tile_fields(columns: Columns) -> Fields:
    """Return the fields of the tiles that compute the columns."""
    return {
        tiled.TILES: tile_table(current_isa().name).ctypes.data, tiled.VECTORS: columns.vectors,
        tiled.BLOCKS: columns.blocks, tiled.COLUMNS: columns.count,
    }  # fmt: skip


def tile_rows(m: int, columns: Columns, depth: int) -> Fields:
    fields = tile_fields(columns)
    for part, (height, number) in enumerate(split_rows(m, columns.vectors, min(depth, 4096))):
        fields[tiled.PARTS + 2 * part] = height
        fields[tiled.PARTS + 2 * part + 1] = number
    return fields


def packed_product(
    columns: Columns, panel: Address, m: int, counts: tuple[int, int, int], groups: int, rows: int
) -> Fields:
    """Return the fields of a product with a packed B: `counts` is (ky, kx, k)."""
    kh, kw, kl = counts
    wide = columns.block_bytes
    return {
        **tile_rows(m, columns, kh * kw * kl),
        mk.KW: kw, mk.KL: kl, tiled.KH: kh, tiled.KH_LAST: kh, mk.SAK: 4,
        tiled.B: panel, mk.SBK: wide, mk.SBX: kl * wide, mk.SBY: kw * kl * wide,
        tiled.SBJ: kh * kw * kl * wide, tiled.SBG: kh * kw * kl * wide * columns.blocks,
        tiled.GROUPS: groups, tiled.ROWS: rows, tiled.T1: 1, tiled.T2: 1,
    }  # fmt: skip
