"""The image's convolution and the max pool behind it: launches, and why they do not compute a case."""

from __future__ import annotations

from core.gpu.frame import Frame, bias_of
from core.gpu.launch import RELU, Launch, Tensor, blocks_of, make_launch
from core.gpu.ops.conv import backward_weight
from core.gpu.ops.conv.geometry import reads_image, window_of
from core.gpu.ops.conv.packing import Taps, partial_size, taps_of
from core.gpu.ops.pool.max_pool import max_backward, places_of
from core.gpu.select import INPUT, Case
from core.gpu.sm90 import image_pool, image_pool_gradient
from core.gpu.sm90.filters import pack_image
from core.graph import Shape
from core.ops.window import Window, read_window
from core.program import Step


def _columns(filters: int) -> int:
    """Filters of a block: half of many, so that two blocks share a multiprocessor."""
    return filters // 2 if filters > 64 else filters


def _suits_image(x: Tensor, window: Window, out: Shape, training: bool, limit: int) -> bool:
    """Whether the kernels compute an image's convolution: windows 16 bytes apart, memory suffices."""
    (kernel, width), (_, wide, filters) = window.kernel, out
    dense = (x.element, x.pitch) == (2, 4) and x.row_pitch % 8 == 0 and x.image_pitch == x.height * x.row_pitch
    if not dense or window.stride != (2, 2) or window.padding[:2] != (0, 0) or kernel not in (3, 5, 7) or width > 8:
        return False
    if filters not in (32, 64, 96, 128) or wide > x.row_pitch // 8:
        return False
    room, steps = x.row_pitch // 8, taps_of(x, window, True).channels // 16
    shared = image_pool.shared_bytes(kernel, steps, _columns(filters), room)
    if training:
        gradient = image_pool_gradient.shared_bytes(room, 2 * steps, blocks_of(wide, 16), filters, wide // 2)
        shared = max(shared, gradient)
    return shared <= limit


def _strips(batch: int, turns: int, resident: int) -> tuple[int, int]:
    """(strips of an image, turns of a strip) with the least work for the busiest of so many resident blocks."""

    def turns_in_all(strips: int) -> float:
        """Half a turn goes to a strip's first row."""
        return blocks_of(batch * strips, resident) * (blocks_of(turns, strips) + 0.5)

    each = blocks_of(turns, min(range(1, turns + 1), key=turns_in_all))
    return blocks_of(turns, each), each


def pool_launch(
    layer: str, batch: int, x: Tensor, whole: Tensor, out: Tensor, places: int | None, window: Window, taps: Taps,
    weight: int, bias: int, activation: str, processors: int,
) -> Launch:  # fmt: skip
    """An image's convolution and the 3x3 pool of stride 2 behind it.

    `whole` is the convolution's output, at address 0 where nobody looks at it; `places` None keeps no winners.
    """
    room, steps, filters = x.row_pitch // 8, taps.channels // 16, whole.channels
    columns = _columns(filters)
    groups, parts = 4 if columns <= 48 else 3, filters // columns  # as many warpgroups as registers allow, two blocks
    strips, turns = _strips(batch, blocks_of(out.height, 2), 2 * processors // parts)
    values = {
        "x": x.address, "weight": weight, "bias": bias, "out": out.address, "marks": places or 0,
        "whole": whole.address, "strips": strips, "turns": turns, "all_turns": blocks_of(out.height, 2),
        "filters": filters, "by_strips": strips, "ho": whole.height, "wo": whole.width, "hp": out.height,
        "wp": out.width, "rows": x.height, "places": room, "image_size": x.image_pitch * 2, "by_places": room,
        "ldo": out.pitch, "ldp": out.padded, "activation": RELU[activation],
    }  # fmt: skip
    shape = (window.kernel[0], steps, columns, groups, places is not None)
    total, pooled = batch * whole.height * whole.width, batch * out.height * out.width * out.padded
    return make_launch(
        layer, "forward", "tensor_core", ("sm90.image_pool", "make_photo_pool", shape), image_pool.SIGNATURE, values,
        (batch * strips, parts, 1), (128 * groups, 1, 1),
        image_pool.shared_bytes(window.kernel[0], steps, columns, room),
        2 * batch * x.image_pitch + pooled * (2 + (places is not None)), 2, flops=2 * total * filters * taps.total,
    )  # fmt: skip


def gradient_launch(
    layer: str, batch: int, x: Tensor, between: Shape, dy: Tensor, partial: int, places: int, window: Window,
    taps: Taps, processors: int,
) -> Launch:  # fmt: skip
    """The partial weight gradients of an image's convolution, one for each block.

    `dy` is the gradient behind the 3x3 pool of stride 2, `between` the shape of what is between them.
    """
    (height, width, filters), room = between, x.row_pitch // 8
    steps, parts, turns = blocks_of(width, 16), taps.channels // 8, blocks_of(height, image_pool_gradient.ROWS)
    each = blocks_of(batch * turns, processors)
    splits, size, pixels = blocks_of(batch * turns, each), partial_size(filters, taps), batch * height * width
    values = {
        "x": x.address, "dy": dy.address, "partial": partial, "marks": places, "total": batch * turns, "each": each,
        "turns": turns, "by_turns": turns, "hp": dy.height, "wp": dy.width, "rows": x.height, "places": room,
        "image_size": x.image_pitch * 2, "channels": taps.channels, "depth": taps.total, "size": size,
    }  # fmt: skip
    made = ("sm90.image_pool_gradient", "make_photo_gradient", (window.kernel[0], parts, steps, filters, 3))
    return make_launch(
        layer, "backward_weight", "tensor_core", made, image_pool_gradient.SIGNATURE, values, (splits, 1, 1),
        (128 * parts, 1, 1), image_pool_gradient.shared_bytes(room, parts, steps, filters, dy.width),
        2 * batch * x.image_pitch + 3 * batch * dy.height * dy.width * dy.padded + 4 * splits * size, 1,
        flops=2 * pixels * filters * taps.total,
    )  # fmt: skip


def _refuse_pair(frame: Frame, step: Step, following: Step) -> str:
    if not reads_image(step) or step.attributes["groups"] != 1 or step.activation not in ("relu", "relu6"):
        return "It computes the image's convolution with a ReLU."
    pool = read_window(following.attributes)
    shape = (pool.kernel, pool.stride, pool.padding[:2])
    if following.inputs != (step.output,) or shape != ((3, 3), (2, 2), (0, 0)):
        return "It computes a 3x3 max pool of stride 2 behind the convolution."
    buffers = frame.program.buffers
    alone = frame.only_reader(step.output) is following and buffers[step.output.buffer] == step.output.shape
    if not alone or buffers[following.output.buffer] != following.output.shape:
        return "Another step uses what is between, or an output is part of a concatenation."
    x, window = frame.image(step.inputs[0]), window_of(frame, step)
    if not _suits_image(x, window, step.output.shape, frame.program.training, frame.shared):
        return "It takes windows of 3, 5 or 7 rows, stride 2, and 32, 64, 96 or 128 filters, as shared memory allows."
    return ""


def refuse_forward(case: Case) -> str:
    return _refuse_pair(case.frame, *case.steps)


def refuse_backward(case: Case) -> str:
    if not case.frame.wants(case.steps[1].inputs[0]):
        return "No parameter before the pool is trained."
    return _refuse_pair(case.frame, *case.steps)


def _between(frame: Frame, step: Step) -> Tensor:
    """The convolution's output, which is in memory only if somebody looks at it."""
    if frame.whole or step.output.buffer in frame.kept:
        return frame.image(step.output)
    height, width, channels = step.output.shape
    return Tensor(0, height, width, channels, channels, frame.element)


def write_forward(case: Case) -> None:
    frame, (step, following) = case.frame, case.steps
    x, out, window = frame.image(step.inputs[0]), frame.image(following.output), window_of(frame, step)
    taps = taps_of(x, window, True)
    weight = frame.packed(f"parts:{step.node}.weight", lambda: pack_image(frame.filters(step), taps))
    places = places_of(frame, following, out) if frame.program.training else None
    frame.add(
        pool_launch(
            step.node, frame.batch, x, _between(frame, step), out, places, window, taps, weight, bias_of(frame, step),
            step.activation, frame.processors,
        )
    )  # fmt: skip


def write_backward(case: Case) -> None:
    """Weight gradients of the image's convolution from what is behind its pool; in between only to be looked at."""
    frame, (step, pool) = case.frame, case.steps
    if frame.whole:
        max_backward(Case(frame, (pool,), INPUT, case.traversal))
    else:
        case.backward.claim(pool.inputs[0])
    reading, dy = backward_weight.read_input(case), frame.image(pool.output, True)

    def make(partial: int) -> Launch:
        return gradient_launch(
            step.node, frame.batch, reading.x, step.output.shape, dy, partial, places_of(frame, pool, dy),
            reading.window, reading.taps, frame.processors,
        )  # fmt: skip

    backward_weight.add_partials(case, reading, dy, make(0).grid[0], make)
