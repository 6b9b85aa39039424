"""Candidates for predictions of up to four images: their configurations, the most promising first, and launches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from core.gpu.frame import bias_of
from core.gpu.latency import conv, expand_depthwise, fire_halo
from core.gpu.latency.block import CHUNK, VECTOR, BlockShape
from core.gpu.latency.expand_depthwise import fragments
from core.gpu.launch import RELU, Launch, Tensor, blocks_of, make_launch
from core.gpu.ops.conv import launches
from core.gpu.ops.conv.geometry import is_fire, reads_image, window_values
from core.gpu.ops.conv.operands import Taps, operands_of, padded_depth
from core.gpu.ops.depthwise.launches import pack_filters
from core.gpu.ops.norm.fusion import suits_strips
from core.gpu.select import BF16, FORWARD, Candidate, Case
from core.graph import PHOTO
from core.ops.window import POINT, Window, read_window

MAX_IMAGES: Final = 4
"""Images up to which these kernels are considered: with more, a GPU is filled without them."""
READ_ELSEWHERE: Final = "The value between the two steps is also read elsewhere, or is a part of a buffer."
READS_IMAGE: Final = "It does not read the network's input."
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
    out, vectors = case.frame.tensor(case.steps[-1].output), operands_of(case.frame, case.step).taps.total // VECTOR
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
    x, half = frame.tensor(one.inputs[0]), one.output.shape[-1]
    columns = replace(frame.tensor(one.output), channels=half + three.output.shape[-1]).padded
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


def refuse_unless(case: Case, *conditions: tuple[str, Callable[[], bool]]) -> str:
    """The sentence of the first condition that does not hold; every candidate of this package predicts few images."""
    if case.frame.program.training:
        return "It only computes predictions."
    if case.frame.batch > MAX_IMAGES:
        return f"It computes up to {MAX_IMAGES} images."
    return launches.refuse_groups(case) or next((reason for reason, holds in conditions if not holds()), "")


def conv_launch(
    layer: str, batch: int, x: Tensor, out: Tensor, window: Window, taps: Taps, weight: int, bias: int,
    activation: str, shape: BlockShape, addend: Tensor | None = None,
) -> Launch:  # fmt: skip
    """The launch of ``activation(conv(x) + bias + addend)``."""
    rows, columns, vectors = batch * out.height * out.width, out.padded, taps.total // VECTOR
    channel_vectors, (block_rows, block_columns) = taps.channels // VECTOR, shape.size
    values = {
        "x": x.address, "weight": weight, "bias": bias, "out": out.address, "addend": addend.address if addend else 0,
        "rows": rows, "columns": columns, "depth": padded_depth(taps.total, 2), "vectors": vectors,
        "by_channels": channel_vectors, "channel_vectors": channel_vectors,
        **window_values(x, out, window.stride, window.padding), "ldo": out.pitch,
        "lda": addend.pitch if addend else 0, "activation": RELU[activation],
    }  # fmt: skip
    constants = (shape, shape.chunks(vectors), taps.kernel[1], addend is not None)
    return make_launch(
        layer, "forward", conv.make_small_convolution, constants, conv.SIGNATURE, values,
        (blocks_of(rows, block_rows), blocks_of(columns, block_columns)), (shape.threads,), shape.shared,
        2 * (batch * x.height * x.width * x.padded + rows * columns * (2 if addend else 1)), 1,
        flops=2 * rows * columns * taps.total,
    )  # fmt: skip


def refuse_conv(case: Case) -> str:
    return refuse_unless(case, (READS_IMAGE, lambda: case.step.op == "dense" or not reads_image(case.step)))


def refuse_added(case: Case) -> str:
    step, following = case.steps
    return refuse_unless(
        case,
        ("The convolution has an activation of its own.", lambda: not step.activation),
        (READ_ELSEWHERE, lambda: case.frame.is_read_once(step, following)),
        (READS_IMAGE, lambda: all(value.buffer != PHOTO for value in (*step.inputs, *following.inputs))),
        ("It adds two tensors.", lambda: len(following.inputs) == 2),
    )


def write_conv(case: Case) -> None:
    """Convolution or dense layer, with the addition after it if the pattern has one."""
    frame, step, last, of = case.frame, case.step, case.steps[-1], operands_of(case.frame, case.step)
    addend = next(frame.tensor(v) for v in last.inputs if v != step.output) if last.op == "add" else None
    launch = conv_launch(
        step.node, frame.batch, of.x, frame.tensor(last.output), of.window, of.taps, of.pack_rows(frame, step),
        bias_of(frame, step), last.activation, case.configuration, addend,
    )  # fmt: skip
    launches.add_forward(case, launch)


MAX_FIRE_PIXELS: Final = 3100
"""Pixels up to which both halves of a fire are one launch: with more, two overlapping launches were measured faster."""


def fire_launch(
    layer: str, batch: int, x: Tensor, out: Tensor, taps: Taps, weight: int, bias: int, weight1: int,
    bias1: int, columns1: int, activation: str, shape: BlockShape,
) -> Launch:  # fmt: skip
    """The launch of both expand halves of a fire; the first `columns1` channels of out are those of the 1x1 half."""
    limit, columns = batch * (x.height + 1) * (x.width + 1), out.padded
    vectors, channel_vectors = taps.total // VECTOR, x.padded // VECTOR
    values = {
        "x": x.address, "weight": weight, "bias": bias, "out": out.address, "weight1": weight1, "bias1": bias1,
        "columns1": columns1, "depth1": padded_depth(taps.channels, 2), "limit": limit, "columns": columns,
        "depth": padded_depth(taps.total, 2), "vectors": vectors,
        "by_numbers": (x.height + 1) * (x.width + 1), "by_columns": x.width + 1, "by_channels": channel_vectors,
        "height": x.height, "width": x.width, "channel_vectors": channel_vectors,
        "vector_pitch": fire_halo.vector_pitch_of(shape, x.width), "ldx": x.pitch, "ldo": out.pitch,
        "activation": RELU[activation],
    }  # fmt: skip
    (block_rows, block_columns), rows = shape.size, batch * x.height * x.width
    return make_launch(
        layer, "forward", fire_halo.make_fire_halo, (shape, shape.chunks(vectors)), fire_halo.SIGNATURE,
        values, (blocks_of(limit, block_rows), blocks_of(columns, block_columns)), (shape.threads,),
        fire_halo.shared_bytes(shape, x.width, channel_vectors), 2 * rows * (x.padded + columns), 1,
        flops=2 * rows * ((columns - columns1) * taps.total + columns1 * taps.channels),
    )  # fmt: skip


def refuse_fire(case: Case) -> str:
    height, width, _ = case.step.output.shape
    few = case.frame.batch * height * width <= MAX_FIRE_PIXELS
    return refuse_unless(
        case, ("It computes both expand layers of a fire.", lambda: is_fire(*case.steps)),
        (f"It computes up to {MAX_FIRE_PIXELS} pixels.", lambda: few),
    )  # fmt: skip


def write_fire(case: Case) -> None:
    frame, (one, three) = case.frame, case.steps
    out = replace(frame.tensor(one.output), channels=one.output.shape[-1] + three.output.shape[-1])
    point, of = (operands_of(frame, step) for step in case.steps)
    frame.add(fire_launch(
        three.node, frame.batch, of.x, out, of.taps, of.pack_rows(frame, three), bias_of(frame, three),
        point.pack_rows(frame, one), bias_of(frame, one), one.output.shape[-1], three.activation, case.configuration,
    ))  # fmt: skip


def refuse_expand(case: Case) -> str:
    step, following = case.steps
    return refuse_unless(
        case,
        (READS_IMAGE, lambda: not reads_image(step)),
        ("Its depthwise convolution is 3x3 of stride 1 or 2 with a border of 1.", lambda: suits_strips(following)),
        (READ_ELSEWHERE, lambda: case.frame.is_read_once(step, following)),
        ("It computes 1x1 convolutions without groups.",
            lambda: read_window(step.attributes) == POINT and step.attributes["groups"] == 1),
        ("It takes a multiple of 16 channels.", lambda: step.output.shape[-1] % expand_depthwise.CHANNELS == 0),
    )  # fmt: skip


def write_expand(case: Case) -> None:
    frame, (step, following) = case.frame, case.steps
    (strip_rows, warps), stride = case.configuration, read_window(following.attributes).stride[0]
    of, out = operands_of(frame, step), frame.tensor(following.output)
    x, taps, channels, weight2 = of.x, of.taps, out.padded, pack_filters(frame, following, out.padded, True)
    vectors, tiles = taps.total // VECTOR, fragments(strip_rows, stride, x.height, x.width, warps)
    values = {
        "x": x.address, "weight": of.pack_rows(frame, step), "bias": bias_of(frame, step),
        "weight2": weight2, "bias2": bias_of(frame, following), "out": out.address,
        "depth": padded_depth(taps.total, 2), "vectors": vectors, "channels": channels,
        "strip_rows": strip_rows, "height": x.height, "width": x.width, "ho": out.height, "wo": out.width,
        "by_columns": out.width, "ldx": x.pitch, "ldo": out.pitch, "activation": RELU[step.activation],
        "activation2": RELU[following.activation],
    }  # fmt: skip
    frame.add(make_launch(
        following.node, "forward", expand_depthwise.make_expand_depthwise,
        (tiles, blocks_of(vectors, CHUNK), warps, stride), expand_depthwise.SIGNATURE, values,
        (blocks_of(out.height, strip_rows), channels // expand_depthwise.CHANNELS, frame.batch), (32 * warps,),
        expand_depthwise.shared_bytes(tiles, warps),
        2 * frame.batch * (x.height * x.width * x.padded + out.height * out.width * channels), 1,
        flops=2 * frame.batch * x.height * x.width * channels * taps.total,
    ))  # fmt: skip


CANDIDATES: Final = (
    *(Candidate("low_latency", (op,), FORWARD, write_conv,
                "a block issues all its loads at once, warps split the depth",
                "auto", 0.45, refuse_conv, arithmetics=BF16, configurations=conv_shapes)
      for op in ("conv2d", "dense")),
    Candidate("low_latency_fire", ("conv2d", "conv2d"), FORWARD, write_fire,
              "both expand layers of a fire, each pixel once in shared memory, warps split the depth",
              "auto", 0.55, refuse_fire, arithmetics=BF16, configurations=fire_shapes),
    Candidate("low_latency_add", ("conv2d", "add"), FORWARD, write_conv,
              "the addition after a convolution, computed before its output is stored",
              "auto", 0.5, refuse_added, arithmetics=BF16, configurations=conv_shapes),
    Candidate("low_latency_expand", ("conv2d", "depthwise_conv2d"), FORWARD, write_expand,
              "the expansion stays in shared memory for the next depthwise convolution",
              "auto", 0.6, refuse_expand, arithmetics=BF16, configurations=expand_shapes),
)  # fmt: skip
