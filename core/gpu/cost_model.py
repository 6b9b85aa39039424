"""Estimated costs where nothing was measured: a roofline for candidates, and a ranking of tiles.

An estimate is the longer of arithmetic and memory traffic at the GPU's peak rates, divided by the candidate's
efficiency, plus one launch. A fused pattern saves its intermediate values and launches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from core.gpu.frame import Frame
from core.gpu.parts.tile import Tile
from core.ops.contract import volume
from core.program import Step

LAUNCH: Final = 2.0
"""Microseconds from one launch of a captured graph to the next."""

PRODUCTS: Final = {"forward": 1, "backward_input": 1, "backward_weight": 1, "backward": 2}
"""Products as large as that of the forward pass, by direction."""


def estimate(frame: Frame, steps: Sequence[Step], direction: str, efficiency: float) -> float:
    """Microseconds of the steps in one launch."""
    flops = frame.batch * sum(step.cost.flops for step in steps) * PRODUCTS[direction]
    inside = {step.output for step in steps[:-1]}
    read = {value for step in steps for value in step.inputs} - inside
    moved = frame.batch * sum(volume(value.shape) for value in (*read, steps[-1].output)) * PRODUCTS[direction]
    weights = sum(parameter.size for step in steps for parameter in step.parameters)
    floor = frame.hardware.floor(flops, (moved + weights) * frame.element, frame.arithmetic)
    return 1e6 * floor / efficiency + LAUNCH


WASTE: Final = 1.35
"""Largest ratio of computed to needed columns, if another tile fits better."""
FILLED: Final = 8
"""Warps of a multiprocessor that hide the latency of loads."""
LOADED: Final = 32
"""Products in the time of one element's copy to shared memory."""


def time_of(tile: Tile, blocks: int, processors: int, filled: int = FILLED) -> float:
    """Relative time of `blocks` blocks per unit of their depth: multiplications, and loads of rows and columns.

    A multiprocessor's time is that of its blocks. With fewer than `filled` warps it is proportionally longer.
    """
    each = -(-blocks // processors)
    warps = min(tile.blocks, each) * tile.threads // 32
    return each * (tile.rows * tile.columns + LOADED * (tile.rows + tile.columns)) / min(1.0, warps / filled)


def rank_tiles(tiles: Iterable[Tile], rows: int, columns: int, processors: int) -> tuple[Tile, ...]:
    """Tiles for ``rows x columns`` outputs, the most promising first, without those that waste many columns."""

    def padded(tile: Tile) -> int:
        return -(-columns // tile.columns) * tile.columns

    known = list(tiles)
    most = max(WASTE * columns, min(map(padded, known), default=0))
    return tuple(sorted(
        (tile for tile in known if padded(tile) <= most),
        key=lambda tile: time_of(tile, -(-rows // tile.rows) * -(-columns // tile.columns), processors),
    ))  # fmt: skip
