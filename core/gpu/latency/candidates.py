"""Candidates for predictions of one or two images, and their configurations, the most promising first."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from core.gpu.latency import fire_halo, launches
from core.gpu.latency.block import VECTOR, BlockShape
from core.gpu.latency.expand_depthwise import fragments
from core.gpu.launch import blocks_of
from core.gpu.ops.conv.operands import operands_of
from core.gpu.select import BF16, FORWARD, Candidate, Case
from core.ops.window import read_window

CONV: Final = (
    (1, 1, 2, 3), (1, 1, 2, 4), (1, 1, 2, 6), (1, 1, 4, 1), (1, 1, 4, 2), (1, 1, 4, 3), (1, 1, 4, 4), (1, 2, 1, 1),
    (1, 2, 1, 4), (1, 2, 1, 8), (1, 2, 2, 3), (1, 2, 2, 4), (1, 2, 4, 1), (1, 2, 4, 2), (1, 2, 4, 4), (1, 4, 1, 1),
    (1, 4, 1, 8), (2, 1, 1, 2), (2, 1, 2, 1), (2, 1, 2, 4), (2, 1, 4, 1),
)  # fmt: skip
"""`BlockShape` of convolutions."""
FIRE: Final = (
    (2, 2, 2, 5), (2, 2, 2, 6), (2, 2, 4, 2), (2, 2, 4, 3), (4, 2, 2, 2), (4, 2, 2, 3), (4, 2, 4, 3), (4, 4, 2, 5),
)  # fmt: skip
"""`BlockShape` of both expand halves of a fire."""
EXPAND: Final = ((1, 4), (1, 8), (2, 8), (5, 4), (8, 8))
"""Most fragments of 16 pixels per warp, and warps, of an expansion with its depthwise convolution."""
LOADS: Final = 4
"""Chunks of depth that take as long as adding the sums of one more slice."""
MAX_COLUMN_WASTE: Final = 1.35
"""Filters computed over filters needed, at most."""


def conv_shapes(case: Case) -> tuple[BlockShape, ...]:
    """For a convolution or dense layer, also with an addition after it."""
    out, vectors = case.frame.image(case.steps[-1].output), operands_of(case.frame, case.step).taps.total // VECTOR
    rows = case.frame.batch * out.height * out.width

    def time_of(shape: BlockShape) -> float:
        blocks = blocks_of(rows, shape.size[0]) * blocks_of(out.padded, shape.size[1])
        chunks = shape.chunks(vectors) * (2 * shape.rows + shape.columns)
        return blocks_of(blocks, case.frame.processors) * (chunks + LOADS * shape.slices)

    def suits(shape: BlockShape) -> bool:
        computed = blocks_of(out.padded, shape.size[1]) * shape.size[1]
        return computed <= max(MAX_COLUMN_WASTE * out.padded, 16) and shape.fits(vectors)

    return tuple(sorted((shape for shape in (BlockShape(*n) for n in CONV) if suits(shape)), key=time_of))


def fire_shapes(case: Case) -> tuple[BlockShape, ...]:
    """For both expand halves of a fire; each half begins at a new block."""
    frame, (one, three) = case.frame, case.steps
    x, half = frame.image(one.inputs[0]), one.output.shape[-1]
    columns = replace(frame.image(one.output), channels=half + three.output.shape[-1]).padded
    vectors = x.padded // VECTOR

    def suits(shape: BlockShape) -> bool:
        whole = columns % shape.size[1] == half % shape.size[1] == 0
        fits = fire_halo.shared_bytes(shape, x.width, vectors) <= frame.shared
        return whole and fits and fire_halo.fits(shape, 9 * vectors)

    def waves(shape: BlockShape) -> int:
        limit = frame.batch * (x.height + 1) * (x.width + 1)
        return blocks_of(blocks_of(limit, shape.size[0]) * blocks_of(columns, shape.size[1]), frame.processors)

    return tuple(sorted((shape for shape in (BlockShape(*n) for n in FIRE) if suits(shape)), key=waves))


def expand_shapes(case: Case) -> tuple[tuple[int, int], ...]:
    """Output rows and warps of a block, rows as nearly equal as possible."""
    between, out = case.step.output.shape, case.steps[1].output.shape
    stride, found = read_window(case.steps[1].attributes).stride[0], []
    for most, warps in EXPAND:
        fitting = (n for n in range(out[0], 0, -1) if fragments(n, stride, between[0], between[1], warps) <= most)
        if strip_rows := next(fitting, 0):
            found.append((blocks_of(out[0], blocks_of(out[0], strip_rows)), warps))
    return tuple(dict.fromkeys(found))


CANDIDATES: Final = (
    *(Candidate("low_latency", (op,), FORWARD, launches.write_conv,
                "a block issues all its loads at once, warps split the depth",
                "auto", 0.45, launches.refuse_conv, arithmetics=BF16, configurations=conv_shapes)
      for op in ("conv2d", "dense")),
    Candidate("low_latency_fire", ("conv2d", "conv2d"), FORWARD, launches.write_fire,
              "both expand layers of a fire, each pixel once in shared memory, warps split the depth",
              "auto", 0.55, launches.refuse_fire, arithmetics=BF16, configurations=fire_shapes),
    Candidate("low_latency_add", ("conv2d", "add"), FORWARD, launches.write_conv,
              "the addition after a convolution, computed before its output is stored",
              "auto", 0.5, launches.refuse_added, arithmetics=BF16, configurations=conv_shapes),
    Candidate("low_latency_expand", ("conv2d", "depthwise_conv2d"), FORWARD, launches.write_expand,
              "the expansion stays in shared memory for the next depthwise convolution",
              "auto", 0.6, launches.refuse_expand, arithmetics=BF16, configurations=expand_shapes),
)  # fmt: skip
