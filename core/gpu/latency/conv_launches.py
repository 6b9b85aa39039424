"""Launches of small-batch convolutions: alone, a dense layer, with the sum behind, with the max pool in front."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from core.gpu.frame import Frame, bias_of
from core.gpu.gradients import shared_activation
from core.gpu.latency import conv
from core.gpu.latency.block import VECTOR, BlockShape
from core.gpu.launch import RELU, Launch, Tensor, blocks_of, make_launch
from core.gpu.ops.conv import packing
from core.gpu.ops.conv.geometry import reads_image
from core.gpu.ops.conv.packing import Taps
from core.gpu.ops.conv.products import add_forward, pack_rows, sides_of
from core.gpu.ops.dense import launches as dense
from core.gpu.select import Case
from core.graph import PHOTO
from core.ops.window import POINT, Window, read_window
from core.program import Step

TRAINS: Final = "It only computes predictions."
FEW: Final = 4
"""Images up to which these kernels are considered: with more, a GPU is filled without them."""
MANY: Final = f"It computes up to {FEW} images."
READ: Final = "The value between the two steps is also read elsewhere, or is a part of a buffer."


def conv_launch(
    layer: str, batch: int, x: Tensor, out: Tensor, window: Window, taps: Taps, weight: int, bias: int,
    activation: str, shape: BlockShape, other: Tensor | None = None, pooled: bool = False,
) -> Launch:  # fmt: skip
    """The launch of ``activation(conv(x) + bias + other)``; `pooled`: a 1x1 one of x's max pool over `window`."""
    rows, columns, vectors = batch * out.height * out.width, out.padded, taps.total // VECTOR
    channel_vectors, (tall, wide) = taps.channels // VECTOR, shape.size
    values = {
        "x": x.address, "weight": weight, "bias": bias, "out": out.address, "other": other.address if other else 0,
        "rows": rows, "columns": columns, "depth": packing.padded_depth(taps.total, 2), "vectors": vectors,
        "by_area": out.height * out.width, "by_columns": out.width, "by_channels": channel_vectors,
        "area": out.height * out.width, "wo": out.width, "channel_vectors": channel_vectors,
        "height": x.height, "width": x.width, "ldx": x.pitch, "row_pitch": x.row_pitch, "image_pitch": x.image_pitch,
        "stride_y": window.stride[0], "stride_x": window.stride[1], "top": window.padding[0], "left": window.padding[1],
        "ldo": out.pitch, "lda": other.pitch if other else 0, "activation": RELU[activation],
    }  # fmt: skip
    constants = (shape.numbers, shape.turns(vectors), taps.kernel[1], other is not None, *((True,) if pooled else ()))
    return make_launch(
        layer, "forward", "tensor_core", ("latency.conv", "make_small_convolution", constants), conv.SIGNATURE, values,
        (blocks_of(rows, tall), blocks_of(columns, wide), 1), (shape.threads, 1, 1), shape.shared,
        2 * (batch * x.height * x.width * x.padded + rows * columns * (2 if other else 1)), 1,
        flops=2 * rows * columns * taps.total,
    )  # fmt: skip


def refuse_unless(case: Case, *conditions: tuple[str, Callable[[], bool]]) -> str:
    """The sentence of the first condition that does not hold; every candidate of this package predicts few images."""
    if case.frame.program.training:
        return TRAINS
    if case.frame.batch > FEW:
        return MANY
    return next((reason for reason, holds in conditions if not holds()), "")


Sides: TypeAlias = tuple[Tensor, Tensor, Window, Taps]
"""Input and output of a convolution, its window, and how its sum is laid out."""


def conv_sides(case: Case) -> Sides:
    (x, out), window = sides_of(case), read_window(case.step.attributes)
    return x, out, window, packing.taps_of(x, window, False)


def dense_sides(case: Case) -> Sides:
    x, out, taps = dense.sides_of(case)
    return x, out, POINT, taps


def refuse_conv(case: Case) -> str:
    return refuse_unless(case, ("It does not read the network's input.", lambda: not reads_image(case.step)))


def _launch(
    case: Case, step: Step, sides: Sides, activation: str, other: Tensor | None = None, pooled: bool = False
) -> Launch:
    """The launch of the convolution or dense layer `step`."""
    x, out, window, taps = sides
    weight = dense.pack_rows(case) if step.op == "dense" else pack_rows(case.frame, step, taps)
    return conv_launch(
        step.node, case.frame.batch, x, out, window, taps, weight, bias_of(case.frame, step), activation,
        case.configuration, other, pooled,
    )  # fmt: skip


def write_conv(case: Case) -> None:
    """A convolution by itself."""
    add_forward(case, _launch(case, case.step, conv_sides(case), case.step.activation))


def write_dense(case: Case) -> None:
    """A dense layer: a 1x1 convolution of one pixel an image."""
    case.frame.add(_launch(case, case.step, dense_sides(case), case.step.activation))


def added_sides(case: Case) -> Sides:
    step, following = case.steps
    x, window = case.frame.image(step.inputs[0]), read_window(step.attributes)
    return x, case.frame.image(following.output), window, packing.taps_of(x, window, False)


def refuse_added(case: Case) -> str:
    step, following = case.steps
    return refuse_unless(
        case,
        ("The convolution has an activation of its own.", lambda: not step.activation),
        (READ, lambda: is_read_once(case.frame, step, following)),
        ("It does not read the network's input.", lambda: PHOTO not in read_by(step) + read_by(following)),
        ("It adds two tensors.", lambda: len(following.inputs) == 2),
    )


def write_added(case: Case) -> None:
    """A convolution and the sum behind it."""
    frame, (step, following) = case.frame, case.steps
    other = frame.image(next(v for v in following.inputs if v != step.output))
    frame.add(_launch(case, step, added_sides(case), following.activation, other))


def pooled_sides(case: Case) -> Sides:
    """The window is the pool's."""
    x = case.frame.image(case.step.inputs[0])
    return x, case.frame.image(case.steps[1].output), read_window(case.step.attributes), Taps((1, 1), x.padded)


def refuse_pooled(case: Case) -> str:
    frame, (step, following) = case.frame, case.steps
    return refuse_unless(
        case,
        (READ, lambda: is_read_once(frame, step, following)),
        ("It does not read the network's input.", lambda: PHOTO not in read_by(step)),
        ("It computes 3x3 max pools.", lambda: read_window(step.attributes).kernel == (3, 3)),
        ("It computes 1x1 convolutions without groups.", lambda: following.attributes["groups"] == 1
            and read_window(following.attributes) == POINT),
        ("The values before the pool may be negative.",
            lambda: shared_activation(frame, step.inputs[0]) in ("relu", "relu6")),
    )  # fmt: skip


def write_pooled(case: Case) -> None:
    """A max pool and the 1x1 convolution behind it."""
    following = case.steps[1]
    case.frame.add(_launch(case, following, pooled_sides(case), following.activation, pooled=True))


def read_by(step: Step) -> list[str]:
    """Buffers that a step reads."""
    return [value.buffer for value in step.inputs]


def is_read_once(frame: Frame, step: Step, following: Step) -> bool:
    """Whether a step's output need not be in memory if the next step, its only reader, is in the same launch."""
    buffer, program = step.output.buffer, frame.program
    if frame.only_reader(step.output) is not following or read_by(following).count(buffer) > 1 or buffer in frame.kept:
        return False
    whole = program.buffers[buffer] == step.output.shape == following.inputs[read_by(following).index(buffer)].shape
    return whole and not frame.whole and program.output != step.output
