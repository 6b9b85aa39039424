"""Tiles of the convolutions' products, the most promising first (`core.gpu.cost_model`).

The numbers of a tile are the fields of `Tile`: rows, columns, bytes of a row of a stage (for weight gradients pixels of
a stage), stages, warps along rows and columns, blocks per multiprocessor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from core.gpu.cost_model import rank_tiles, time_of
from core.gpu.frame import Frame
from core.gpu.launch import blocks_of
from core.gpu.ops.conv import implicit_gemm, weight_gradient
from core.gpu.ops.conv.operands import operands_of
from core.gpu.parts.tile import Tile
from core.gpu.select import FORWARD, Case

PRODUCT: Final = {
    "bf16": (
        (16, 16, 128, 4, 1, 2, 4), (16, 32, 128, 4, 1, 4, 4), (16, 64, 128, 4, 1, 4, 3), (32, 32, 128, 4, 2, 2, 4),
        (32, 64, 64, 4, 2, 2, 4), (64, 16, 128, 3, 4, 1, 4), (64, 32, 64, 3, 4, 1, 4), (64, 64, 64, 2, 2, 2, 6),
        (64, 64, 64, 3, 2, 2, 4), (64, 64, 64, 3, 2, 2, 6), (64, 64, 128, 3, 2, 2, 3), (64, 96, 64, 3, 2, 2, 4),
        (64, 128, 64, 2, 2, 2, 4), (64, 128, 64, 3, 2, 2, 4), (64, 128, 64, 3, 2, 4, 3), (64, 128, 128, 2, 2, 4, 3),
        (64, 160, 128, 2, 2, 2, 2), (128, 16, 64, 3, 4, 1, 4), (128, 16, 128, 3, 4, 1, 4), (128, 32, 64, 3, 4, 1, 4),
        (128, 48, 64, 3, 4, 1, 2), (128, 48, 128, 3, 4, 1, 2), (128, 64, 64, 2, 4, 2, 3), (128, 64, 64, 3, 2, 2, 3),
        (128, 64, 128, 3, 4, 2, 2), (128, 80, 64, 3, 4, 1, 3), (128, 96, 64, 3, 4, 2, 2), (128, 128, 64, 3, 2, 4, 2),
        (128, 128, 64, 3, 4, 2, 2), (128, 128, 128, 2, 4, 2, 2), (256, 16, 64, 3, 8, 1, 2), (256, 32, 64, 3, 4, 1, 2),
    ),
    "float32": (
        (16, 16, 128, 4, 1, 2, 4), (16, 32, 128, 4, 1, 2, 4), (16, 32, 128, 4, 1, 4, 4), (32, 16, 128, 4, 2, 2, 4),
        (32, 64, 64, 4, 2, 2, 4), (64, 32, 64, 3, 2, 2, 4), (64, 64, 64, 3, 2, 2, 3), (128, 16, 64, 3, 4, 1, 4),
        (128, 32, 64, 3, 4, 1, 3), (128, 64, 64, 3, 2, 2, 2), (128, 96, 64, 3, 2, 2, 2),
    ),
}  # fmt: skip
"""Tiles of the implicit product, forward and input gradient."""

WEIGHT: Final = {
    "bf16": (
        (16, 128, 32, 3, 1, 4, 4), (32, 128, 32, 3, 1, 4, 3), (32, 256, 32, 3, 1, 8, 2), (48, 128, 32, 3, 1, 4, 3),
        (64, 16, 64, 3, 4, 1, 6), (64, 32, 64, 3, 4, 1, 5), (64, 48, 32, 3, 4, 1, 4), (64, 48, 64, 3, 4, 1, 4),
        (64, 64, 32, 3, 2, 2, 3), (64, 64, 32, 3, 2, 2, 4), (64, 64, 64, 3, 2, 2, 3), (64, 64, 64, 3, 4, 2, 3),
        (64, 128, 64, 3, 2, 4, 2), (64, 144, 32, 3, 4, 1, 3), (64, 192, 32, 3, 2, 4, 2), (96, 128, 32, 3, 2, 4, 2),
        (96, 224, 64, 3, 6, 2, 1), (128, 32, 64, 3, 4, 1, 4), (128, 64, 32, 3, 4, 2, 2), (128, 128, 32, 4, 2, 4, 2),
        (128, 144, 32, 3, 4, 1, 2),
    ),
    "float32": (
        (16, 128, 32, 3, 1, 4, 4), (32, 32, 32, 4, 2, 2, 4), (32, 64, 32, 3, 2, 2, 4), (32, 128, 32, 3, 1, 4, 3),
        (48, 128, 32, 3, 1, 4, 2), (64, 32, 32, 3, 2, 2, 4), (64, 64, 16, 4, 2, 2, 3), (64, 64, 32, 3, 2, 2, 3),
        (64, 128, 16, 3, 2, 4, 2), (64, 128, 32, 3, 2, 4, 2), (96, 128, 32, 3, 2, 4, 1),
    ),
}  # fmt: skip
"""Tiles of the weight gradient."""

BLOCKS: Final = (1, 2, 3, 4, 8)
"""Blocks of a weight gradient per multiprocessor, into which its pixels are split."""
MINIMUM: Final = 64
"""Fewest pixels per block of a weight gradient: with fewer, writing partial sums costs more."""
STARTING: Final = 1
"""Stages in the time that a block of a weight gradient takes for its first loads and for writing its result."""
SUMS_FILLED: Final = 9
"""`core.gpu.cost_model.FILLED` of weight gradients."""
ADDED: Final = 2
"""Products in the time of writing and adding one partial sum of a weight. These three are fitted to
benchmarks/results/weight_tiles-nvidia-h200.json."""

FMA_FRAGMENTS: Final = 8
"""Most fragments of 16 x 8 sums per warp without tensor cores: more would spill."""
FMA_THREADS: Final = 256
"""Most threads per block with 255 registers each."""


def _without_tensor_cores(tile: Tile) -> Tile:
    """The tile with two stages, one block and more warps.

    The ring then fits into Turing's 64 KiB, which has no asynchronous copies, and the sums into the registers.
    """
    tile = tile._replace(stages=2, blocks=1)
    while tile.fragments[0] * tile.fragments[1] > FMA_FRAGMENTS:
        if tile.fragments[0] % 2 == 0:
            tile = tile._replace(warp_rows=2 * tile.warp_rows)
        else:
            tile = tile._replace(warp_columns=2 * tile.warp_columns)
    return tile


def _tiles(
    table: Mapping[str, tuple[tuple[int, ...], ...]], frame: Frame, shared_bytes: Callable[[Tile], int]
) -> list[Tile]:
    """The tiles for the frame's arithmetic that fit into shared memory."""
    found = [Tile(*numbers) for numbers in table["bf16" if frame.arithmetic == "bf16" else "float32"]]
    if frame.arithmetic == "fma":
        found = [tile for tile in map(_without_tensor_cores, found) if tile.threads <= FMA_THREADS]
    return [tile for tile in dict.fromkeys(found) if shared_bytes(tile) <= frame.shared]


def product_tiles(case: Case) -> tuple[Tile, ...]:
    frame, backward = case.frame, case.direction != FORWARD
    of = operands_of(frame, case.step, backward)
    out = of.x if backward else frame.tensor(case.step.output).first_of(of.slices)
    crossed = backward and of.shares_filters(frame.batch)
    found = _tiles(PRODUCT, frame, lambda tile: implicit_gemm.shared_bytes(tile, frame.element, crossed))
    return rank_tiles(found, of.slices * frame.batch * out.height * out.width, out.padded, frame.processors)


def split_of(tile: Tile, blocks: int, pixels: int, tiles: int, processors: int) -> int:
    """Pixels per split for about `blocks` blocks per multiprocessor; whole stages, and `MINIMUM` pixels or more.

    `tiles`: of the weights.
    """
    splits = max(1, min(blocks * processors // tiles, pixels // MINIMUM))
    return blocks_of(blocks_of(pixels, splits), tile.depth) * tile.depth


def weight_tiles(case: Case) -> tuple[tuple[Tile, int], ...]:
    """Configurations of the weight gradient: a tile, and blocks per multiprocessor, the most promising first."""
    frame, of = case.frame, operands_of(case.frame, case.step)
    dy = frame.tensor(case.step.output, True).first_of(of.slices)
    pixels, found = frame.batch * dy.height * dy.width, []
    for tile in _tiles(WEIGHT, frame, lambda tile: weight_gradient.shared_bytes(tile, frame.element)):
        tiles = of.slices * blocks_of(dy.padded, tile.rows) * blocks_of(of.taps.total, tile.columns)
        weights = of.slices * dy.padded * of.taps.total
        for blocks in BLOCKS:
            split = split_of(tile, blocks, pixels, tiles, frame.processors)
            stages, splits = split // tile.depth + STARTING, blocks_of(pixels, split)
            time = stages * tile.depth * time_of(tile, tiles * splits, frame.processors, SUMS_FILLED)
            time += ADDED * splits * weights if splits > 1 else 0
            found.append((time, (tile, blocks)))
    return tuple(configuration for _, configuration in sorted(found))
