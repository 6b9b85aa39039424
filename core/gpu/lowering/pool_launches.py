"""Launches of the pools over windows, forward and backward: the largest value, and the mean."""

from __future__ import annotations

from core.gpu.compilation.compiler import Argument
from core.gpu.kernels.parts.fragments import fast_divisor
from core.gpu.kernels.passes import average_fast, pool_fast
from core.gpu.lowering.frame import Frame
from core.gpu.lowering.launch import RELU, Launch, Tensor, blocks_of
from core.gpu.lowering.plain_launches import THREADS, lanes_of, simple_launch
from core.ops.window import Window, read_window
from core.program import Step


def max_forward(frame: Frame, step: Step, activation: str) -> Launch:
    """`activation` is that of the input's producer; in training the winners' places are kept."""
    x, out, window = frame.image(step.inputs[0]), frame.image(step.output), read_window(step.attributes)
    places = places_of(frame, step, out) if frame.program.training else 0
    sizes = _sizes(frame, out, (out.height, out.width))
    values = (
        x.address, out.address, places, *sizes, *_sides(x, out), x.pitch, out.pitch, out.padded, *window.padding[:2],
        RELU[activation], 0,
    )
    arguments: tuple[Argument, ...] = (frame.element, _shape(window))
    factory = "make_max_pool"
    if frame.element == 2 and activation in ("relu", "relu6"):
        factory, arguments = "make_positive_max_pool", (_shape(window),)
    return _max_launch(step, "forward", factory, arguments, values, _max_bytes(frame, x, out), 4)


def max_backward(frame: Frame, step: Step, dy: Tensor, dx: Tensor, accumulate: bool) -> Launch:
    """A lane a block of stride x stride pixels of dx; the places know the producer's activation."""
    window = read_window(step.attributes)
    (top, left), (sy, sx) = window.padding[:2], window.stride
    sizes = _sizes(frame, dy, (blocks_of(dx.height + top, sy), blocks_of(dx.width + left, sx)))
    values = (
        dy.address, dx.address, places_of(frame, step, dy), *sizes, *_sides(dx, dy), dx.pitch, dy.pitch, dy.padded,
        top, left, 0, int(accumulate),
    )
    moved = _max_bytes(frame, dx, dy)
    if frame.element == 2:
        return _max_launch(
            step, "backward_input", "make_packed_max_pool_gradient", (_shape(window),), values, moved, 3
        )
    arguments = (frame.element, _shape(window))
    return _max_launch(step, "backward_input", "make_max_pool_gradient", arguments, values, moved, 2)


def _max_launch(
    step: Step, direction: str, factory: str, arguments: tuple[Argument, ...], values: tuple[int, ...], moved: int,
    blocks: int,
) -> Launch:  # fmt: skip
    return simple_launch(
        step.node, direction, "fused", "passes.pool_fast", factory, arguments, pool_fast.ARGUMENTS,
        (blocks_of(values[3], THREADS), 1, 1), (THREADS, 1, 1), values, moved=moved, blocks=blocks,
    )


def _max_bytes(frame: Frame, x: Tensor, out: Tensor) -> int:
    """Both sides once, and in training the winners' places."""
    return _bytes(frame, x, out) + frame.program.training * frame.batch * out.height * out.width * out.padded


def average_forward(frame: Frame, step: Step) -> Launch:
    """A lane an output pixel."""
    x, out, window = frame.image(step.inputs[0]), frame.image(step.output), read_window(step.attributes)
    sizes = _sizes(frame, out, (out.height, out.width))
    values = (x.address, out.address, 0, *sizes, *_sides(x, out), x.pitch, out.pitch, 0, *window.padding, 0, 0)
    return _average_launch(frame, step, "forward", "make_average_pool", values, _bytes(frame, x, out))


def average_backward(
    frame: Frame, step: Step, dy: Tensor, dx: Tensor, mask: Tensor | None, masking: str, accumulate: bool
) -> Launch:
    """A lane an input pixel, masked by the output of its producer."""
    sizes, padding = _sizes(frame, dx, (dx.height, dx.width)), read_window(step.attributes).padding
    values = (
        dy.address, dx.address, mask.address if mask else 0, *sizes, *_sides(dx, dy), dx.pitch, dy.pitch,
        mask.pitch if mask else 0, *padding, RELU[masking] if mask else 0, int(accumulate),
    )
    moved = _bytes(frame, dx, dy) + (int(accumulate) + bool(mask)) * _bytes(frame, dx, None)
    return _average_launch(frame, step, "backward_input", "make_average_pool_gradient", values, moved)


def _average_launch(
    frame: Frame, step: Step, direction: str, factory: str, values: tuple[int, ...], moved: int
) -> Launch:
    shape, include = _shape(read_window(step.attributes)), bool(step.attributes["count_include_pad"])
    return simple_launch(
        step.node, direction, "fused", "passes.average_fast", factory, (frame.element, shape, include),
        average_fast.ARGUMENTS, (blocks_of(values[3], THREADS), 1, 1), (THREADS, 1, 1), values, moved=moved,
    )


def _shape(window: Window) -> pool_fast.Shape:
    return (*window.kernel, *window.stride)


def _sizes(frame: Frame, t: Tensor, grid: tuple[int, int]) -> tuple[int, ...]:
    """The integers that say which pixel a lane's is; `grid` is (height, width) of what has one lane each."""
    lanes, (height, width) = lanes_of(t), grid
    return (
        frame.batch * height * width * lanes, lanes, *fast_divisor(lanes), *fast_divisor(height * width),
        *fast_divisor(width), height * width, width,
    )


def _sides(x: Tensor, out: Tensor) -> tuple[int, ...]:
    return x.height, x.width, out.height, out.width


def _bytes(frame: Frame, x: Tensor, out: Tensor | None) -> int:
    """Each once."""
    return frame.batch * sum(t.height * t.width * t.padded * t.element for t in (x, out) if t is not None)


def places_of(frame: Frame, step: Step, out: Tensor) -> int:
    """Where a max pool keeps its winners' places, a byte each."""
    return frame.use(f"places:{step.node}", frame.batch * out.height * out.width * out.padded)
