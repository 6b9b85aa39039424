"""Which tile a convolution runs with: a measured table by shape, and a rule for shapes not in it."""

from __future__ import annotations

from typing import Final

from core.gpu.kernels.conv_tensor_core import Tile
from core.gpu.kernels.conv_weight_gradient import Tile as GradientTile

MINIMUM_PIXELS: Final = 256
"""A split of the weight gradient sums at least so many pixels: below, writing partial results costs more."""


def forward(arithmetic: str, rows: int, columns: int, total: int, half: int, kind: str) -> Tile:
    """For ``rows x columns`` outputs of a sum over `total`; the first `half` columns are a fire's 1x1 filters."""
    if columns <= 16:
        return Tile(128, 16, warp_rows=4, warp_columns=1)
    if columns <= 32:
        return Tile(128, 32, warp_rows=4, warp_columns=1)
    return Tile(128, 64)


def backward_input(arithmetic: str, rows: int, columns: int, total: int, kind: str) -> Tile:
    """For the input gradient of the same kind."""
    return forward(arithmetic, rows, columns, total, 0, kind)


def backward_weight(arithmetic: str, pixels: int, filters: int, total: int) -> GradientTile:
    """For a weight gradient of ``filters x total`` summed over `pixels`."""
    if filters <= 16:
        return GradientTile(16, 128, warp_rows=1, warp_columns=4)
    if filters <= 32:
        return GradientTile(32, 128, warp_rows=1, warp_columns=4)
    return GradientTile(64, 128)


def splits(pixels: int, across: int, tile: GradientTile, processors: int) -> int:
    """Partial results: enough blocks to fill the GPU twice, each with enough pixels."""
    return max(1, min(2 * processors // across, pixels // MINIMUM_PIXELS))
