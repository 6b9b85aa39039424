"""Convolutions of few pixels, as one photo has them: alone, with the sum behind them, with the max pool in
front.

`kernels.convolution.few_pixels` computes them where the table of tiles says that it is the fastest, in predictions in
bf16.
"""

from __future__ import annotations

from core.gpu.compilation.compiler import Recipe
from core.gpu.frame import Frame, bias_of
from core.gpu.gradients import shared_activation
from core.gpu.kernels.convolution import few_pixels
from core.gpu.kernels.convolution.few_pixels import PART, Few
from core.gpu.kernels.parts.fragments import fast_divisor
from core.gpu.launch import RELU, Launch, Tensor, blocks_of
from core.gpu.ops.conv import packing
from core.gpu.ops.conv.forward import add_forward, pack_rows, sides_of
from core.gpu.ops.conv.geometry import reads_image
from core.gpu.ops.conv.packing import Taps
from core.gpu.ops.dense import launches as dense
from core.gpu.select import Case
from core.gpu.writers import tiles
from core.graph import PHOTO
from core.ops.window import POINT, Window, read_window
from core.program import Step


def few(
    layer: str, batch: int, x: Tensor, out: Tensor, window: Window, taps: Taps, weight: int, bias: int,
    activation: str, shape: Few, other: Tensor | None = None, pooled: bool = False,
) -> Launch:  # fmt: skip
    """The launch of ``activation(conv(x) + bias + other)``; `pooled`: a 1x1 one of x's max pool over `window`."""
    rows, columns, parts, within = batch * out.height * out.width, out.padded, taps.total // PART, taps.channels // PART
    values = (
        x.address, weight, bias, out.address, other.address if other else 0, rows, columns,
        packing.padded_depth(taps.total, 2), parts, *fast_divisor(out.height * out.width), *fast_divisor(out.width),
        *fast_divisor(within), out.height * out.width, out.width, within, x.height, x.width, x.pitch, x.row_pitch,
        x.photo_pitch, *window.stride, *window.padding[:2], out.pitch, other.pitch if other else 0, RELU[activation],
    )  # fmt: skip
    made = (shape.numbers, shape.turns(parts), taps.kernel[1], other is not None, *((True,) if pooled else ()))
    kinds = tuple(str(a) for a in few_pixels.ARGUMENTS)
    recipe = Recipe("convolution.few_pixels", "make_few_pixels", made, kinds, shape.threads)
    tall, wide = shape.size
    return Launch(
        layer, "forward", "tensor_core", recipe, (blocks_of(rows, tall), blocks_of(columns, wide), 1),
        (shape.threads, 1, 1), shape.shared, values, flops=2 * rows * columns * taps.total,
        bytes=2 * (batch * x.height * x.width * x.padded + rows * columns * (2 if other else 1)),
    )  # fmt: skip


def shape_of(frame: Frame, kind: str, out: Tensor, taps: Taps) -> Few | None:
    """The block that was measured fastest, if it is of this kernel; kinds are those of `tiles.few`."""
    if frame.arithmetic != "bf16" or frame.program.training:
        return None
    return tiles.few(kind, frame.batch * out.height * out.width, out.padded, taps.total)


def _alone(case: Case) -> tuple[Tensor, Tensor, Window, Taps, Few | None]:
    x, out = sides_of(case)
    window = read_window(case.step.attributes)
    taps = packing.taps_of(x, window, False)
    return x, out, window, taps, case.configuration or shape_of(case.frame, "forward", out, taps)


def refuse_alone(case: Case) -> str:
    if reads_image(case.step) or _alone(case)[4] is None:
        return "It computes predictions of few pixels, where it was measured the fastest."
    return ""


def alone(case: Case) -> None:
    """A convolution by itself."""
    frame, step, (x, out, window, taps, shape) = case.frame, case.step, _alone(case)
    assert shape is not None
    add_forward(
        case,
        few(
            step.node, frame.batch, x, out, window, taps, pack_rows(frame, step, taps), bias_of(frame, step),
            step.activation, shape,
        ),  # fmt: skip
    )


def _dense(case: Case) -> tuple[Tensor, Tensor, Taps, Few | None]:
    x, out, taps = dense.sides_of(case)
    return x, out, taps, case.configuration or shape_of(case.frame, "forward", out, taps)


def refuse_dense(case: Case) -> str:
    few_rows = _dense(case)[3] is not None
    return "" if few_rows else "It computes predictions of few images, where it was measured the fastest."


def dense_alone(case: Case) -> None:
    """A dense layer."""
    frame, step, (x, out, taps, shape) = case.frame, case.step, _dense(case)
    assert shape is not None
    made = (step.node, frame.batch, x, out, POINT, taps, dense.pack_rows(case), bias_of(frame, step), step.activation)
    frame.add(few(*made, shape))


def adds(frame: Frame, step: Step, following: Step) -> bool:
    """Whether the next step is a sum that this convolution can make while it writes, since nobody else reads it."""
    if step.op != "conv2d" or following.op != "add" or step.activation or not reads_alone(frame, step, following):
        return False
    if PHOTO in read_by(step) + read_by(following) or len(following.inputs) != 2:
        return False
    x, out = frame.image(step.inputs[0]), frame.image(following.output)
    return shape_of(frame, "added", out, packing.taps_of(x, read_window(step.attributes), False)) is not None


def forward_added(frame: Frame, step: Step, following: Step) -> Launch:
    """The launch of a convolution and the sum behind it."""
    other = next(value for value in following.inputs if value != step.output)
    x, out, window = frame.image(step.inputs[0]), frame.image(following.output), read_window(step.attributes)
    taps = packing.taps_of(x, window, False)
    shape = shape_of(frame, "added", out, taps)
    assert shape is not None
    return few(
        step.node, frame.batch, x, out, window, taps, pack_rows(frame, step, taps), bias_of(frame, step),
        following.activation, shape, frame.image(other),
    )  # fmt: skip


def pools_first(frame: Frame, step: Step, following: Step) -> bool:
    """Whether a max pool's only reader is a 1x1 convolution whose kernel can do it while it loads."""
    if step.op != "max_pool" or following.op != "conv2d" or not reads_alone(frame, step, following):
        return False
    if PHOTO in read_by(step) or read_window(step.attributes).kernel != (3, 3) or following.attributes["groups"] != 1:
        return False
    positive = shared_activation(frame, step.inputs[0]) in ("relu", "relu6")
    if not positive or read_window(following.attributes) != POINT:
        return False
    out, taps = frame.image(following.output), Taps((1, 1), frame.image(step.inputs[0]).padded)
    return shape_of(frame, "pooled", out, taps) is not None


def pooled_forward(frame: Frame, step: Step, following: Step) -> Launch:
    """The launch of a max pool and the 1x1 convolution behind it."""
    x, out, window = frame.image(step.inputs[0]), frame.image(following.output), read_window(step.attributes)
    taps = Taps((1, 1), x.padded)
    shape = shape_of(frame, "pooled", out, taps)
    assert shape is not None
    return few(
        following.node, frame.batch, x, out, window, taps, pack_rows(frame, following, taps), bias_of(frame, following),
        following.activation, shape, None, True,
    )  # fmt: skip


def read_by(step: Step) -> list[str]:
    """Buffers that a step reads."""
    return [value.buffer for value in step.inputs]


def reads_alone(frame: Frame, step: Step, following: Step) -> bool:
    """Whether what a step writes need not be in memory if the next step, its only reader, is in the same launch."""
    buffer, program = step.output.buffer, frame.program
    readers = [s for s in program.steps if buffer in read_by(s)]
    alone = readers == [following] and read_by(following).count(buffer) == 1 and buffer not in frame.kept
    whole = program.buffers[buffer] == step.output.shape == following.inputs[read_by(following).index(buffer)].shape
    return alone and whole and not frame.whole and not program.training and program.output != step.output
