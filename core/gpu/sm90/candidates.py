"""Candidates that need compute capability 9.0 (TMA and `wgmma`, in bf16), and their tiles, the most promising first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from types import ModuleType
from typing import Final

from core.gpu.compilation.generations import HOPPER
from core.gpu.cost_model import rank_tiles
from core.gpu.launch import blocks_of
from core.gpu.ops.conv import launches
from core.gpu.ops.matmul.tensor_core import refuse as refuse_product
from core.gpu.parts.tile import Tile
from core.gpu.select import BACKWARD, BF16, FORWARD, INPUT, WEIGHT, Candidate, Case
from core.gpu.sm90 import halo, halo_resident, image, matmul_tma, pointwise, pointwise_forward, pointwise_gradients
from core.gpu.sm90.halo_tma import HaloShape
from core.gpu.sm90.row_weight_gradient import RowShape
from core.gpu.sm90.wgmma import PERIOD

SHARED, REGISTERS, PARTITIONS = 228 << 10, 65536, 4
"""Bytes and registers of a multiprocessor, and its partitions; each block takes 1 KiB in addition to its own."""
OTHER_REGISTERS: Final = 26
"""Registers that a thread needs in addition to its sums."""
MAX_STAGES: Final = 24

RESIDENT: Final = ((128, 64, 8, 2), (192, 64, 12, 1), (256, 64, 16, 1), (256, 128, 16, 1), (384, 64, 12, 1))
"""Pixels, filters, warps, blocks of 3x3 convolutions with filters in shared memory."""
FIRE: Final = ((2, 2), (3, 1), (4, 1))
"""Warpgroups, and 64 pixels of each, of the input gradient of a fire."""
K_BLOCKS: Final = (128, 192, 256, 320, 384)
"""Most pixels of a k block of a 3x3 weight gradient."""
LARGE_BATCH: Final = 128
"""Fewest images for the 3x3 weight gradient by rows: each block fills a multiprocessor, and at batch 32 they delayed
the input gradients on the other stream."""


def _stages(tile: Tile, module: ModuleType) -> Tile | None:
    """The tile with as many stages as shared memory has room for; None where not even two fit."""
    available = SHARED // tile.blocks - 1024
    fits = [n for n in range(2, MAX_STAGES + 1) if module.shared_bytes(tile._replace(stages=n)) <= available]
    return tile._replace(stages=fits[-1]) if fits else None


def _fitting(tiles: Iterable[tuple[Tile, int]], module: ModuleType) -> Iterator[Tile]:
    """The tiles of (tile, sums of a thread) whose blocks fit on a multiprocessor together."""
    for tile, sums in tiles:
        found, warps = _stages(tile, module), module.threads_of(tile) // 32 * tile.blocks
        available = REGISTERS // PARTITIONS // (32 * -(-warps // PARTITIONS)) // 8 * 8
        if found is not None and sums + OTHER_REGISTERS <= min(available, 255):
            yield found


def pointwise_forward_tiles(case: Case) -> tuple[Tile, ...]:
    """For a 1x1 convolution; the depth of the tiles is all channels."""
    frame, (x, out, _) = case.frame, case.sides()
    widths = sorted({c for c in (out.padded, 128, 64) if out.padded % c == 0 and c <= 256})
    found = ((Tile(64 * groups, columns, 2 * x.padded, 2, 4 * groups, 1, blocks), columns // 2)
             for groups, blocks, columns in product((2, 3, 4), (1, 2, 3), widths))  # fmt: skip
    rows = frame.batch * out.height * out.width
    return rank_tiles(_fitting(found, pointwise_forward), rows, out.padded, frame.processors)


def pointwise_gradients_tiles(case: Case) -> tuple[Tile, ...]:
    """For both gradients of a 1x1 convolution: warpgroups of 64 channels each, by all filters."""
    x, dy = case.gradient_sides()
    found = ((Tile(64, 64 * groups, 2 * dy.padded, 2, 4 * groups, 1, blocks), 32 + dy.padded // 2)
             for groups, blocks in product((1, 2, 3, 4), (4, 3, 2, 1)) if 64 * groups < x.padded + 64)  # fmt: skip
    return tuple(sorted(_fitting(found, pointwise_gradients), key=lambda tile: (-tile.columns, -tile.blocks)))


def resident_tiles(case: Case) -> tuple[Tile, ...]:
    """For the 3x3 convolution with filters in shared memory; the depth is all channels."""
    frame, (x, out, _) = case.frame, case.sides()
    if x.channels != x.padded or x.channels % 16 or x.channels > 64 or out.channels % 64:
        return ()
    found = [Tile(rows, columns, 2 * x.channels, 2, warps, 1, blocks) for rows, columns, warps, blocks in RESIDENT
             if out.channels % columns == 0]  # fmt: skip
    fitting = [tile for tile in found if halo_resident.shared_bytes(tile, x.width) * tile.blocks <= frame.shared]
    limit = frame.batch * (x.height + 1) * (x.width + 1)
    return rank_tiles(fitting, limit, out.channels, frame.processors)


def fire_shapes(case: Case) -> tuple[HaloShape, ...]:
    """For the input gradient of a fire: blocks of rows, all of its columns."""
    dy, dx = halo.fire_sides(case)
    if dx.padded not in (16, 32, 48, 64):
        return ()
    found = []
    for channels, (groups, tiles), stages in product((64, 32), FIRE, (4, 3)):
        if dy.padded % channels == 0:
            shape = HaloShape(dx.padded, channels, dy.padded // channels, 1, 1, groups, tiles, stages)
            shape = shape.fitted(dy.height, dy.width)
            if shape.suits(dy.height, dy.width) and shape.shared <= case.frame.shared:
                found.append(shape)
    return tuple(sorted(found, key=lambda s: -(-dy.height // s.rows) * s.pixels))


def row_shapes(case: Case) -> tuple[RowShape, ...]:
    """For the weight gradient of a 3x3 convolution: rows of a k block, and as many stages as fit."""
    frame, (x, dy) = case.frame, case.gradient_sides()
    channels = next((channels for channels in (64, 32, 16) if x.padded % channels == 0), 0)
    if not channels or dy.padded % 64 or frame.batch < LARGE_BATCH:
        return ()
    found = []
    for pixels in K_BLOCKS:
        k_blocks = blocks_of(dy.height, max(1, pixels // (dy.width + 1)))  # of nearly equal rows
        shape = RowShape(x.padded, channels, dy.width + 1, blocks_of(dy.height, k_blocks), 0)
        shape = shape._replace(stages=min(6, (frame.shared - PERIOD) // (shape.stage + 16)))
        if shape.suits(dy.height, dy.width):
            found.append(shape)
    return tuple(dict.fromkeys(found))


CANDIDATES: Final = (
    Candidate("tma", ("matmul",), FORWARD, matmul_tma.write, "one thread copies by TMA, warpgroups only multiply",
              "auto", 0.6, refuse_product, HOPPER, BF16),
    Candidate("resident_wgmma", ("conv2d",), FORWARD, halo.write_resident,
              "3x3 by wgmma, filters stay in shared memory",
              "auto", 0.4, launches.refuse_three, HOPPER, BF16, resident_tiles),
    Candidate("pointwise_tma", ("conv2d",), FORWARD, pointwise.write_forward, "1x1 by wgmma over TMA tiles",
              "auto", 0.4, pointwise.refuse_forward, HOPPER, BF16, pointwise_forward_tiles),
    Candidate("image_pool", ("conv2d", "max_pool"), FORWARD, image.write_forward,
              "convolution of the image and the max pool after it, by wgmma",
              "auto", 0.6, image.refuse_forward, HOPPER, BF16),
    Candidate("fire_tma", ("conv2d", "conv2d"), INPUT, halo.write_fire,
              "both halves of a fire by wgmma over TMA tiles",
              "auto", 0.6, halo.refuse_fire, HOPPER, BF16, fire_shapes),
    Candidate("rows_tma", ("conv2d",), WEIGHT, halo.write_rows, "3x3 by wgmma over TMA tiles of rows",
              "auto", 0.4, halo.refuse_rows, HOPPER, BF16, row_shapes),
    Candidate("pointwise_tma", ("conv2d",), BACKWARD, pointwise.write_gradients,
              "both gradients of a 1x1 convolution in one pass over TMA tiles",
              "auto", 0.6, pointwise.refuse_gradients, HOPPER, BF16, pointwise_gradients_tiles),
    Candidate("image_pool", ("conv2d", "max_pool"), BACKWARD, image.write_backward,
              "weight gradient of the image's convolution from the gradient after its max pool, by wgmma",
              "auto", 0.6, image.refuse_backward, HOPPER, BF16),
)  # fmt: skip
