"""Block shapes that were measured fastest; None where nothing similar was measured or a common kernel was faster."""

from __future__ import annotations

from core.gpu.latency.block import VECTOR, BlockShape
from core.gpu.latency.expand_depthwise import fragments
from core.gpu.latency.fire_halo import suits as suits_halo
from core.gpu.writers.tiles import covers_columns, measured_near
from core.graph import Shape


def conv(kind: str, rows: int, columns: int, depth: int) -> BlockShape | None:
    """For a convolution; `kind`: "forward", "added" (with the sum behind it) or "pooled" (with the pool in front)."""
    entry = measured_near(f"few_{kind}", rows, columns, depth)
    shape = BlockShape(*entry.tile) if entry is not None and entry.tile else None
    return shape if shape and covers_columns(shape.size[1], columns) and shape.suits(depth // VECTOR) else None


def fire(pixels: int, columns: int, channels: int, half: int) -> BlockShape | None:
    """For both expand halves of a fire; the first `half` columns are 1x1 filters."""
    entry = measured_near("few_fire", pixels, columns, channels)
    shape = BlockShape(*entry.tile) if entry is not None and entry.tile else None
    suits = shape and columns % shape.size[1] == half % shape.size[1] == 0 and suits_halo(shape, 9 * channels // VECTOR)
    return shape if suits else None


def depthwise(pixels: int, channels: int, stride: int) -> bool:
    """Whether a depthwise convolution was faster with a thread for each output."""
    entry = measured_near(f"few_depthwise{stride}", pixels, channels, 9)
    return entry is not None and bool(entry.tile)


def expand(batch: int, between: Shape, out: Shape, channels: int, stride: int) -> tuple[int, int] | None:
    """Rows and warps of a block for an expansion of so many channels and the depthwise convolution behind it.

    The table has fragments and warps.
    """
    entry = measured_near(f"few_expand{stride}", batch * out[0] * out[1], out[2], channels)
    if entry is None or not entry.tile:
        return None
    most, warps = entry.tile
    fitting = (t for t in range(out[0], 0, -1) if fragments(t, stride, between[0], between[1], warps) <= most)
    tall = next(fitting, 0)
    return (-(-out[0] // -(-out[0] // tall)), warps) if tall else None
