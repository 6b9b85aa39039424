"""Which tile or shape a kernel of this package runs with: that of the nearest measured shape (`writers.tiles`).

None where nothing fits, or where another kernel was faster at the nearest measured shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from core.gpu.kernels.parts.tile import Tile
from core.gpu.sm90.halo_tma import HaloShape
from core.gpu.sm90.row_weight_gradient import RowShape
from core.gpu.writers.tiles import Row, nearest

MEASURED_BATCH: Final = 256
"""Images of the measured weight gradients by rows, whose shape follows from the size of a map."""

SLOWER: Final = "Another kernel was measured faster for this shape, or it was not measured."


def halo_resident(rows: int, columns: int, channels: int) -> Tile | None:
    """For the 3x3 convolution with filters in shared memory; `rows` are pixels."""
    found = (Tile(*row.tile) for row in nearest("bf16", "resident_forward", rows, columns, channels))
    return next((tile for tile in found if tile.depth == 2 * channels and columns % tile.columns == 0), None)


def halo_wgmma(rows: int, columns: int, channels: int) -> Tile | None:
    """For the input gradient of a fire; `rows` are pixels, channels those of one half of the fire."""
    row = next(nearest("bf16", "parts_backward_input", rows, columns, channels))
    others = (
        next(nearest("bf16", "halo_backward_input", rows, columns, channels)),
        next(nearest("bf16", "backward_input", rows, columns, 10 * channels)),
    )
    tile = Tile(*row.tile)
    suits = 2 * channels % tile.depth == 0 and columns == tile.columns
    return tile if suits and all(row.pace < o.pace for o in others) else None


def halo_tma(batch: int, height: int, width: int, columns: int, channels: int) -> HaloShape | None:
    """For the same by TMA; columns are the input's channels, channels one half's.

    None for less than half as many pixels as measured.
    """
    pixels = batch * height * width
    near = nearest("bf16", "halo_boxes_backward_input", pixels, columns, channels)
    found = [r for r in near if (r.columns, r.depth) == (columns, channels)]
    row = min(found, key=lambda r: HaloShape(*r.tile).pitch != width + 1, default=None)  # rather one of this width
    if row is None or 2 * pixels < row.rows:
        return None
    shape, depths = HaloShape(*row.tile).fitted(height, width), {"backward_input": 10 * channels}
    directions = ("parts_backward_input", "halo_backward_input", "backward_input")
    others = [(direction, columns, depths.get(direction, channels)) for direction in directions]
    suits = shape.suits(height, width)
    return shape if suits and all(_is_faster(row, [other], pixels) for other in others) else None


def row_weight_gradient(batch: int, height: int, width: int, filters: int, channels: int) -> RowShape | None:
    """For the weight gradient of a 3x3 convolution of maps of this size, measured at batch 256.

    None for less than half as many pixels: at batch 32 blocks that fill a multiprocessor each held up the input
    gradients beside them.
    """
    pixels, depth = MEASURED_BATCH * height * width, 9 * channels
    row = next(nearest("bf16", "row_boxes_backward_weight", pixels, filters, depth), None)
    if row is None or row.depth != depth or 2 * batch * height * width < row.rows:
        return None
    shape = RowShape(*row.tile).fitted(height, width)
    suits = filters % (64 * shape.tiles) == 0 and shape.suits(height, width)
    return shape if suits and _is_faster(row, [("backward_weight", filters, depth)], pixels) else None


def pointwise_forward(rows: int, columns: int, channels: int) -> Tile | None:
    """For a 1x1 convolution of so many pixels."""
    return _faster("boxes_forward", rows, columns, channels, [("forward", columns, channels)])


def pointwise_gradients(rows: int, channels: int, filters: int) -> Tile | None:
    """For both gradients of a 1x1 convolution in one launch; the alternative is one launch for each."""
    others = [("backward_input", channels, filters), ("backward_weight", filters, channels)]
    return _faster("boxes_gradients", rows, channels, filters, others)


def pointwise_weight_gradient(rows: int, filters: int, channels: int) -> Tile | None:
    """For the weight gradient of a 1x1 convolution of few channels."""
    return _faster("boxes_filters", rows, filters, channels, [("backward_weight", filters, channels)])


def _faster(
    direction: str, rows: int, columns: int, depth: int, others: Sequence[tuple[str, int, int]]
) -> Tile | None:
    """The tile measured for these columns and depth, if it took less time than the `others` together."""
    near = nearest("bf16", direction, rows, columns, depth)
    row = next((r for r in near if (r.columns, r.depth) == (columns, depth)), None)
    return Tile(*row.tile) if row is not None and _is_faster(row, others, rows) else None


def _is_faster(row: Row, others: Sequence[tuple[str, int, int]], rows: int) -> bool:
    """Whether it took less time a pixel than the `others` together; each a direction, its columns and depth."""
    return row.pace < sum(next(nearest("bf16", direction, rows, *shape)).pace for direction, *shape in others)
