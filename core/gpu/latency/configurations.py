"""Block shapes of the small-batch kernels, the most promising first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from core.gpu.latency import fire_halo
from core.gpu.latency.block import VECTOR, BlockShape
from core.gpu.latency.conv_launches import Sides, added_sides, conv_sides, dense_sides, pooled_sides
from core.gpu.latency.expand_depthwise import fragments
from core.gpu.launch import blocks_of
from core.gpu.select import Case
from core.ops.window import read_window

CONV: Final = (
    (1, 1, 2, 3), (1, 1, 2, 4), (1, 1, 2, 6), (1, 1, 4, 1), (1, 1, 4, 2), (1, 1, 4, 3), (1, 1, 4, 4), (1, 2, 1, 1),
    (1, 2, 1, 4), (1, 2, 1, 8), (1, 2, 2, 3), (1, 2, 2, 4), (1, 2, 4, 1), (1, 2, 4, 2), (1, 2, 4, 4), (1, 4, 1, 1),
    (1, 4, 1, 8), (2, 1, 1, 2), (2, 1, 2, 1), (2, 1, 2, 4), (2, 1, 4, 1),
)  # fmt: skip
"""Numbers of `BlockShape` for convolutions."""
FIRE: Final = (
    (2, 2, 2, 5), (2, 2, 2, 6), (2, 2, 4, 2), (2, 2, 4, 3), (4, 2, 2, 2), (4, 2, 2, 3), (4, 2, 4, 3), (4, 4, 2, 5),
)  # fmt: skip
"""The same for both expand halves of a fire."""
EXPAND: Final = ((1, 4), (1, 8), (2, 8), (5, 4), (8, 8))
"""Most fragments of 16 pixels a warp, and warps, for an expansion and its depthwise convolution."""
LOADS: Final = 4
"""Chunks of depth in the time in which the sums of one more slice are added."""
COLUMN_WASTE: Final = 1.35
"""Filters computed over filters needed that a block may have."""


def conv_shapes(case: Case, sides: Callable[[Case], Sides] = conv_sides) -> tuple[BlockShape, ...]:
    """For a convolution, or what `sides` makes one of."""
    _, out, _, taps = sides(case)
    rows, vectors = case.frame.batch * out.height * out.width, taps.total // VECTOR

    def time_of(shape: BlockShape) -> float:
        blocks = blocks_of(rows, shape.size[0]) * blocks_of(out.padded, shape.size[1])
        chunks = shape.turns(vectors) * (2 * shape.rows + shape.columns)
        return blocks_of(blocks, case.frame.processors) * (chunks + LOADS * shape.slices)

    def suits(shape: BlockShape) -> bool:
        wide = blocks_of(out.padded, shape.size[1]) * shape.size[1]
        return wide <= max(COLUMN_WASTE * out.padded, 16) and shape.suits(vectors)

    return tuple(sorted((shape for shape in (BlockShape(*n) for n in CONV) if suits(shape)), key=time_of))


dense_shapes: Final = partial(conv_shapes, sides=dense_sides)
added_shapes: Final = partial(conv_shapes, sides=added_sides)


def pooled_shapes(case: Case) -> tuple[BlockShape, ...]:
    """Blocks without warps across, which would all compute the same pool."""
    return tuple(shape for shape in conv_shapes(case, pooled_sides) if shape.across == 1)


def fire_shapes(case: Case) -> tuple[BlockShape, ...]:
    """For both expand halves of a fire, whose halves begin at a block each."""
    frame, (one, three) = case.frame, case.steps
    x, half = frame.image(one.inputs[0]), one.output.shape[-1]
    columns = replace(frame.image(one.output), channels=half + three.output.shape[-1]).padded
    vectors = x.padded // VECTOR

    def suits(shape: BlockShape) -> bool:
        whole = columns % shape.size[1] == half % shape.size[1] == 0
        fits = fire_halo.shared_bytes(shape, x.width, vectors) <= frame.shared
        return whole and fits and fire_halo.suits(shape, 9 * vectors)

    def blocks_in_turn(shape: BlockShape) -> int:
        limit = frame.batch * (x.height + 1) * (x.width + 1)
        return blocks_of(blocks_of(limit, shape.size[0]) * blocks_of(columns, shape.size[1]), frame.processors)

    return tuple(sorted((shape for shape in (BlockShape(*n) for n in FIRE) if suits(shape)), key=blocks_in_turn))


def expand_shapes(case: Case) -> tuple[tuple[int, int], ...]:
    """Rows and warps of a block, rows as nearly equal as can be."""
    between, out = case.step.output.shape, case.steps[1].output.shape
    stride, found = read_window(case.steps[1].attributes).stride[0], []
    for most, warps in EXPAND:
        fitting = (t for t in range(out[0], 0, -1) if fragments(t, stride, between[0], between[1], warps) <= most)
        if tall := next(fitting, 0):
            found.append((blocks_of(out[0], blocks_of(out[0], tall)), warps))
    return tuple(dict.fromkeys(found))
