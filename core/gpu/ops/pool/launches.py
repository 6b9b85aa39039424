"""Launches of the pools over windows, forward and backward: the largest value, and the mean."""

from __future__ import annotations

from core.gpu.compilation.compiler import Argument
from core.gpu.frame import Frame
from core.gpu.gradients import shared_activation
from core.gpu.kernels.parts.winners import Shape
from core.gpu.launch import PLAIN, RELU, THREADS, Target, Tensor, blocks_of, lanes_of, make_launch
from core.gpu.ops.pool import average_pool, global_average, max_pool
from core.gpu.select import Case
from core.ops.window import Window, read_window
from core.program import Step


def max_forward(case: Case) -> None:
    """In training the winners' places are kept; they know the activation of the input's producer."""
    frame, step = case.frame, case.step
    x, out, window = frame.image(step.inputs[0]), frame.image(step.output), read_window(step.attributes)
    activation = shared_activation(frame, step.inputs[0]) or ""
    places = places_of(frame, step, out) if frame.program.training else 0
    values = {
        "x": x.address, "out": out.address, "places": places, **_where(frame, out, (out.height, out.width)),
        **_sides(x, out), "ldp": out.padded, "top": window.padding[0], "left": window.padding[1],
        "activation": RELU[activation],
    }  # fmt: skip
    made: tuple[str, tuple[Argument, ...]] = ("make_max_pool", (frame.element, _shape(window)))
    if frame.element == 2 and activation in ("relu", "relu6"):
        made = ("make_positive_max_pool", (_shape(window),))
    frame.add(
        make_launch(
            step.node, "forward", "fused", ("ops.pool.max_pool", *made), max_pool.FORWARD, values,
            (blocks_of(values["total"], THREADS), 1, 1), moved=_max_bytes(frame, x, out), resident=4,
        )
    )


def max_backward(case: Case) -> None:
    """A thread a block of stride x stride pixels of dx; the places know the producer's activation."""
    frame, step, value = case.frame, case.step, case.step.inputs[0]
    target = case.backward.target(value, reads=False)
    dy, dx = frame.image(step.output, True), frame.image(value, True)
    window = read_window(step.attributes)
    (top, left), (sy, sx) = window.padding[:2], window.stride
    values = {
        "dy": dy.address, "dx": dx.address, "places": places_of(frame, step, dy),
        **_where(frame, dy, (blocks_of(dx.height + top, sy), blocks_of(dx.width + left, sx))),
        **_sides(dx, dy), "ldp": dy.padded, "top": top, "left": left, "accumulate": int(target.accumulate),
    }  # fmt: skip
    made: tuple[str, tuple[Argument, ...]] = ("make_max_pool_gradient", (frame.element, _shape(window)))
    if frame.element == 2:
        made = ("make_packed_max_pool_gradient", (_shape(window),))
    frame.add(
        make_launch(
            step.node, "backward_input", "fused", ("ops.pool.max_pool", *made), max_pool.GRADIENT, values,
            (blocks_of(values["total"], THREADS), 1, 1), moved=_max_bytes(frame, dx, dy),
            resident=3 if frame.element == 2 else 2,
        )
    )


def _max_bytes(frame: Frame, x: Tensor, out: Tensor) -> int:
    """Both sides once, and in training the winners' places."""
    return _bytes(frame, x, out) + frame.program.training * frame.batch * out.height * out.width * out.padded


def average_forward(case: Case) -> None:
    frame, step = case.frame, case.step
    _average(case, "forward", frame.image(step.inputs[0]), frame.image(step.output))


def average_backward(case: Case) -> None:
    """Masked by the output of its producer."""
    frame, value = case.frame, case.step.inputs[0]
    dy, dx = frame.image(case.step.output, True), frame.image(value, True)
    _average(case, "backward_input", dy, dx, case.backward.target(value))


def _average(case: Case, direction: str, x: Tensor, out: Tensor, target: Target = PLAIN) -> None:
    """A thread for each vector of `out`, which reads windows of `x`."""
    frame, step = case.frame, case.step
    values = {
        "x": x.address, "out": out.address, **_where(frame, out, (out.height, out.width)), **_sides(x, out),
        **_padding(step), **target.values,
    }  # fmt: skip
    shape, include = _shape(read_window(step.attributes)), bool(step.attributes["count_include_pad"])
    made = ("ops.pool.average_pool", "make_average_pool", (frame.element, shape, include, direction != "forward"))
    frame.add(
        make_launch(
            step.node, direction, "fused", made, average_pool.SIGNATURE, values,
            (blocks_of(values["total"], THREADS), 1, 1),
            moved=_bytes(frame, x, None) + target.passes * _bytes(frame, out, None),
        )
    )  # fmt: skip


def global_forward(case: Case) -> None:
    """A block 32 vectors of an image."""
    frame, step = case.frame, case.step
    x, out = frame.image(step.inputs[0]), frame.image(step.output)
    lanes, hw = lanes_of(x), x.height * x.width
    values = {
        "x": x.address, "out": out.address, "hw": hw, "lanes": lanes, "ldx": x.pitch, "ldo": out.pitch,
        "factor": 1 / hw,
    }  # fmt: skip
    made = ("ops.pool.global_average", "make_average", (frame.element,))
    frame.add(
        make_launch(
            step.node, "forward", "fused", made, global_average.FORWARD, values,
            (blocks_of(lanes, 32), frame.batch, 1), (32, 8, 1),
        )
    )  # fmt: skip


def global_backward(case: Case) -> None:
    """A block an image."""
    frame, step, value = case.frame, case.step, case.step.inputs[0]
    dy, dx = frame.image(step.output, True), frame.image(value, True)
    hw = dx.height * dx.width
    values = {
        "x": dy.address, "out": dx.address, "hw": hw, "lanes": lanes_of(dx), "ldx": dy.pitch, "ldo": dx.pitch,
        **case.backward.target(value).values, "factor": 1 / hw,
    }  # fmt: skip
    made = ("ops.pool.global_average", "make_average_gradient", (frame.element,))
    frame.add(
        make_launch(
            step.node, "backward_input", "fused", made, global_average.GRADIENT, values, (frame.batch, 1, 1),
            (global_average.THREADS, 1, 1),
        )
    )  # fmt: skip


def _shape(window: Window) -> Shape:
    return (*window.kernel, *window.stride)


def _padding(step: Step) -> dict[str, int]:
    return dict(zip(("top", "left", "bottom", "right"), read_window(step.attributes).padding, strict=True))


def _where(frame: Frame, t: Tensor, grid: tuple[int, int]) -> dict[str, int]:
    """What says which pixel a thread's is; `grid` is (height, width) of what has one thread for each vector."""
    lanes, (height, width) = lanes_of(t), grid
    return {
        "total": frame.batch * height * width * lanes, "lanes": lanes, "by_lanes": lanes, "by_area": height * width,
        "by_columns": width, "area": height * width, "columns": width,
    }  # fmt: skip


def _sides(x: Tensor, out: Tensor) -> dict[str, int]:
    return {
        "height": x.height, "width": x.width, "ho": out.height, "wo": out.width, "ldx": x.pitch, "ldo": out.pitch,
    }  # fmt: skip


def _bytes(frame: Frame, x: Tensor, out: Tensor | None) -> int:
    """Each once."""
    return frame.batch * sum(t.height * t.width * t.padded * t.element for t in (x, out) if t is not None)


def places_of(frame: Frame, step: Step, out: Tensor) -> int:
    """Where a max pool keeps its winners' places, a byte each."""
    return frame.use(f"places:{step.node}", frame.batch * out.height * out.width * out.padded)
