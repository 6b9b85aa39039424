"""Tiles and shapes of the kernels for Hopper, the most promising first: as many stages as there is room for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product
from types import ModuleType
from typing import Final

from core.gpu.cost_model import rank_tiles
from core.gpu.ops.conv import products
from core.gpu.parts.tile import Tile
from core.gpu.select import Case
from core.gpu.sm90 import halo_resident, pointwise_forward, pointwise_gradients
from core.gpu.sm90.halo import fire_sides
from core.gpu.sm90.halo_tma import HaloShape
from core.gpu.sm90.row_weight_gradient import RowShape

SHARED, REGISTERS, PARTITIONS = 228 << 10, 65536, 4
"""Bytes and registers of a multiprocessor, and the parts that it is in; a block takes 1 KiB beside its own."""
BESIDE_SUMS: Final = 26
"""Registers that a thread needs beside its sums."""
MOST_STAGES: Final = 24

RESIDENT: Final = ((128, 64, 8, 2), (192, 64, 12, 1), (256, 64, 16, 1), (256, 128, 16, 1), (384, 64, 12, 1))
"""Pixels, filters, warps, blocks of 3x3 convolutions with filters in shared memory."""
FIRE: Final = ((2, 2), (3, 1), (4, 1))
"""Warpgroups, and 64 pixels of each, of the input gradient of a fire."""
TURN: Final = (128, 192, 256, 320, 384)
"""Pixels that a 3x3 weight gradient sums in a turn, at most."""
LARGE_BATCH: Final = 128
"""Images from which on the 3x3 weight gradient by rows suits: its blocks fill a multiprocessor each, and at batch 32
they held up the input gradients beside them."""


def _stages(tile: Tile, module: ModuleType) -> Tile | None:
    """The tile with as many stages as fit beside the other blocks; None where not even two do."""
    room = SHARED // tile.blocks - 1024
    fits = [n for n in range(2, MOST_STAGES + 1) if module.shared_bytes(replace(tile, stages=n)) <= room]
    return replace(tile, stages=fits[-1]) if fits else None


def _fitting(tiles: Iterable[tuple[Tile, int]], module: ModuleType) -> Iterator[Tile]:
    """Those of (tile, sums of a thread) that leave registers for as many blocks as they ask for."""
    for tile, sums in tiles:
        found, warps = _stages(tile, module), module.threads_of(tile) // 32 * tile.blocks
        available = REGISTERS // PARTITIONS // (32 * -(-warps // PARTITIONS)) // 8 * 8
        if found is not None and sums + BESIDE_SUMS <= min(available, 255):
            yield found


def pointwise_forward_tiles(case: Case) -> tuple[Tile, ...]:
    """For a 1x1 convolution: warpgroups, filters and blocks; the depth are all channels."""
    frame, (x, out) = case.frame, products.sides_of(case)
    widths = sorted({c for c in (out.padded, 128, 64) if out.padded % c == 0 and c <= 256})
    found = ((Tile(64 * groups, columns, 2 * x.padded, 2, 4 * groups, 1, blocks), columns // 2)
             for groups, blocks, columns in product((2, 3, 4), (1, 2, 3), widths))  # fmt: skip
    rows = frame.batch * out.height * out.width
    return rank_tiles(_fitting(found, pointwise_forward), rows, out.padded, frame.processors)


def pointwise_gradients_tiles(case: Case) -> tuple[Tile, ...]:
    """For both gradients of a 1x1 convolution in one launch: warpgroups of 64 channels each, by all filters."""
    x, dy = case.frame.image(case.step.inputs[0]), case.frame.image(case.step.output, True)
    found = ((Tile(64, 64 * groups, 2 * dy.padded, 2, 4 * groups, 1, blocks), 32 + dy.padded // 2)
             for groups, blocks in product((1, 2, 3, 4), (4, 3, 2, 1)) if 64 * groups < x.padded + 64)  # fmt: skip
    return tuple(sorted(_fitting(found, pointwise_gradients), key=lambda tile: (-tile.columns, -tile.blocks)))


def resident_tiles(case: Case) -> tuple[Tile, ...]:
    """For the 3x3 convolution with filters in shared memory; the depth are all channels."""
    frame, (x, out) = case.frame, products.sides_of(case)
    if x.channels != x.padded or x.channels % 16 or x.channels > 64 or out.channels % 64:
        return ()
    found = [Tile(rows, columns, 2 * x.channels, 2, warps, 1, blocks) for rows, columns, warps, blocks in RESIDENT
             if out.channels % columns == 0]  # fmt: skip
    fitting = [tile for tile in found if halo_resident.shared_bytes(tile, x.width) * tile.blocks <= frame.shared]
    limit = frame.batch * (x.height + 1) * (x.width + 1)
    return rank_tiles(fitting, limit, out.channels, frame.processors)


def fire_shapes(case: Case) -> tuple[HaloShape, ...]:
    """For the input gradient of a fire: blocks of rows, all of its columns."""
    dy, dx, _ = fire_sides(case)
    if dx.padded not in (16, 32, 48, 64):
        return ()
    found = []
    for line, (groups, tiles), stages in product((64, 32), FIRE, (4, 3)):
        if dy.padded % line == 0:
            shape = HaloShape(dx.padded, line, dy.padded // line, 1, 1, groups, tiles, stages)
            shape = shape.fitted(dy.height, dy.width)
            if shape.suits(dy.height, dy.width) and shape.shared <= case.frame.shared:
                found.append(shape)
    return tuple(sorted(found, key=lambda s: -(-dy.height // s.rows) * s.pixels))


def row_shapes(case: Case) -> tuple[RowShape, ...]:
    """For the weight gradient of a 3x3 convolution: rows of a turn, and as many stages as fit."""
    frame = case.frame
    x, dy = frame.image(case.step.inputs[0]), frame.image(case.step.output, True)
    line = next((line for line in (64, 32, 16) if x.padded % line == 0), 0)
    if not line or dy.padded % 64 or frame.batch < LARGE_BATCH:
        return ()
    found = []
    for pixels in TURN:
        rows = max(1, pixels // (dy.width + 1))
        shape = RowShape(x.padded, line, dy.width + 1, rows, 1, 6).fitted(dy.height, dy.width)
        if shape.suits(dy.height, dy.width) and shape.shared <= frame.shared:
            found.append(shape)
    return tuple(dict.fromkeys(found))
