"""Which tile a matrix kernel runs with: that of the nearest shape in a measured table (`tiles.json`).

The table holds the fastest of some ten tiles for every layer of SqueezeNet 1.0 on one H200, batch 32 and 256. A shape
not in it takes the tile of the nearest one, by ratios of columns, depth of the sum and rows, that wastes little.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import log2
from pathlib import Path
from typing import Final, final

from core.gpu.kernels.parts.tile import Tile

MINIMUM_PIXELS: Final = 256
"""A split of the weight gradient sums at least so many pixels: below, writing partial results costs more."""

WASTE: Final = 1.35
"""Columns computed over columns needed that a tile may have, where another fits better."""


FAR: Final = 1.0
"""Distance beyond which a measured shape says nothing about a small batch: four times the rows, twice the depth."""

FMA_FRAGMENTS: Final = 8
"""Fragments of 16 x 8 sums that a warp may hold beside the factors it asks its lanes for: above, they spill."""
FMA_THREADS: Final = 256
"""Threads of a block that leave each one 255 registers."""


@final
@dataclass(frozen=True, slots=True)
class Row:
    """One measured shape: outputs ``rows x columns`` of a sum over `depth`."""

    arithmetic: str
    direction: str
    rows: int
    columns: int
    depth: int
    splits: int
    tile: tuple[int, ...]
    microseconds: float

    @property
    def pace(self) -> float:
        """Microseconds a row of outputs took."""
        return self.microseconds / self.rows

    def distance(self, rows: int, columns: int, depth: int) -> float:
        """How different the shapes are; columns decide most."""
        return (
            2 * abs(log2(self.columns / columns)) + abs(log2(self.depth / depth)) + 0.5 * abs(log2(self.rows / rows))
        )


@cache
def _rows(arithmetic: str, direction: str) -> tuple[Row, ...]:
    measured = "float32" if arithmetic in ("tf32", "fma") else arithmetic
    text = (Path(__file__).with_name("tiles.json")).read_text(encoding="utf-8")
    found = []
    for raw in json.loads(text):
        if (raw["arithmetic"], raw["direction"]) == (measured, direction):
            shape, tile = (raw["rows"], raw["columns"], raw["depth"]), tuple(raw["tile"])
            if arithmetic == "fma":
                fitted = _tile(arithmetic, *tile)
                if fitted.threads > FMA_THREADS:
                    continue
                tile = fitted.numbers
            found.append(Row(arithmetic, direction, *shape, raw["splits"], tile, raw["microseconds"]))
    return tuple(found)


def _tile(arithmetic: str, *numbers: int) -> Tile:
    """The tile, without tensor cores with two stages, one block and more warps.

    So its rings fit into Turing's 64 KiB, where nothing is copied ahead anyway, and its sums into the registers.
    """
    tile = Tile(*numbers)
    if arithmetic != "fma":
        return tile
    tile = replace(tile, stages=2, blocks=1)
    while tile.fragments[0] * tile.fragments[1] > FMA_FRAGMENTS:
        if tile.fragments[0] % 2 == 0:
            tile = replace(tile, warp_rows=2 * tile.warp_rows)
        else:
            tile = replace(tile, warp_columns=2 * tile.warp_columns)
    return tile


def nearest(arithmetic: str, direction: str, rows: int, columns: int, depth: int) -> Iterator[Row]:
    """The measured shapes, nearest first."""
    yield from sorted(_rows(arithmetic, direction), key=lambda r: r.distance(rows, columns, depth))


def forward(arithmetic: str, rows: int, columns: int, depth: int, half: int = 0) -> Tile:
    """For ``rows x columns`` outputs of a sum over `depth`; the first `half` columns are a fire's 1x1 filters."""
    for row in nearest(arithmetic, "fire_forward" if half else "forward", rows, columns, depth):
        if covers_columns(row.tile[1], columns) and half % row.tile[1] == 0:
            return Tile(*row.tile)
    return _tile(arithmetic, 64, 64, 64, 3, 2, 2, 4)


def backward_input(arithmetic: str, rows: int, columns: int, depth: int) -> Tile:
    """For the input gradient of the same kind."""
    for row in nearest(arithmetic, "backward_input", rows, columns, depth):
        if covers_columns(row.tile[1], columns):
            return Tile(*row.tile)
    return _tile(arithmetic, 128, 64, 64, 3, 4, 2, 2)


def halo(arithmetic: str, direction: str, rows: int, columns: int, channels: int, size: int) -> Tile:
    """For a 3x3 convolution with its pixels in shared memory, `size` bytes of a channel block."""
    for row in nearest(arithmetic, f"halo_{direction}", rows, columns, channels):
        tile = Tile(*row.tile)
        if tile.depth == size and covers_columns(tile.columns, columns):
            return tile
    return _tile(arithmetic, 128, 64 if columns > 32 else 32 if columns > 16 else 16, size, 2, 4, 1)


def prefers_halo(arithmetic: str, rows: int, columns: int, channels: int, depth: int) -> bool:
    """Whether an input gradient was faster with its pixels in shared memory, at the nearest measured shape."""
    near = next(nearest(arithmetic, "halo_backward_input", rows, columns, channels), None)
    plain = next(nearest(arithmetic, "backward_input", rows, columns, depth), None)
    return near is not None and plain is not None and near.pace < plain.pace


def measured_near(direction: str, rows: int, columns: int, depth: int) -> Row | None:
    """The nearest entry in bf16, unless its shape is too different."""
    row = next(nearest("bf16", direction, rows, columns, depth), None)
    return row if row is not None and row.distance(rows, columns, depth) <= FAR else None


def covers_columns(tile: int, columns: int) -> bool:
    """Whether tiles so wide compute few columns that are not there."""
    return -(-columns // tile) * tile <= max(WASTE * columns, 16)


def backward_weight(
    arithmetic: str, pixels: int, filters: int, depth: int, processors: int
) -> tuple[Tile, int]:
    """Tile, and into how many parts the pixels are split, for a gradient of ``filters x depth`` weights."""
    for row in nearest(arithmetic, "backward_weight", pixels, filters, depth):
        tile = Tile(*row.tile)
        if -(-filters // tile.rows) * tile.rows <= max(2 * filters, 16):
            splits = row.splits if row.distance(pixels, filters, depth) < 0.1 else 0
            return tile, splits or _splits(pixels, filters, depth, tile, processors)
    tile = _tile(arithmetic, 64, 128, 32, 3, 2, 4, 2)
    return tile, _splits(pixels, filters, depth, tile, processors)


def _splits(pixels: int, filters: int, depth: int, tile: Tile, processors: int) -> int:
    """Enough parts to fill the GPU twice, each with enough pixels."""
    across = -(-filters // tile.rows) * -(-depth // tile.columns)
    return max(1, min(2 * processors // across, pixels // MINIMUM_PIXELS))
