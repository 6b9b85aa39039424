"""Backward launches that no family of `core.gpu.ops` has taken over yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from core.gpu.frame import Frame
from core.gpu.gradients import Backward
from core.gpu.kernels.passes import head_fast
from core.gpu.launch import RELU, Launch, Tensor, lanes_of
from core.gpu.ops.pool.launches import max_backward
from core.gpu.select import INPUT, Case
from core.gpu.writers import convolution, packing, tiles
from core.gpu.writers.forward_steps import pack_dense, window_of
from core.gpu.writers.hopper import point_steps as hopper_points
from core.gpu.writers.hopper import window_steps as hopper_windows
from core.gpu.writers.plain_launches import has_bias, head_launch, simple_launch, softmax_gradient_launch
from core.graph import PHOTO
from core.ops.contract import Array
from core.ops.window import POINT, Window, read_window
from core.program import Step


def loss(walk: Backward) -> None:
    frame, program = walk.frame, walk.frame.program
    producer = next((s for s in program.steps if s.output == program.output), None)
    value = program.output
    if producer is not None and producer.op == "global_avg_pool":
        value = producer.inputs[0]
        walk.claim(program.output)
    gradient, mask = None, ""
    if walk.wants(value):
        _, mask, _ = walk.target(value)
        gradient = frame.image(value, True)
    frame.add(head_launch(frame, gradient, mask))


def fire_input(walk: Backward, one: Step, three: Step) -> None:
    """One launch for the gradient of the input of both expand layers of a fire."""
    frame, value = walk.frame, three.inputs[0]
    mask, activation, add = walk.target(value)
    indices = [frame.filters(s) for s in (three, one)]
    dy, dx, second = frame.image(three.output, True), frame.image(value, True), one.output.shape[-1]
    found = hopper_windows.fire_backward(frame, three, indices, dy, dx, mask, activation, add, second)
    if found is not None:
        frame.add(found)
        return
    size = convolution.channel_bytes(dy.padded, frame.element, dx.padded)
    rows, depth = frame.batch * dx.height * dx.width, 9 * dy.padded + second
    if size and second == dy.padded and tiles.prefers_halo(frame.arithmetic, rows, dx.padded, dy.padded, depth):
        weight = frame.packed(
            f"halo backward:{three.node}", lambda: packing.pack_halo(indices, size, frame.element, True)
        )
        launch = convolution.halo(
            three.node, "backward_input", frame.arithmetic, frame.batch, dy, dx, weight, 0, "", mask, activation, add,
            second, size,
        )  # fmt: skip
        if launch.shared <= frame.shared:
            frame.add(launch)
            return
    weight = frame.packed(f"backward:{three.node}", lambda: packing.pack_backward(indices, frame.element))
    frame.add(
        convolution.backward_input(
            three.node, frame.arithmetic, frame.batch, dy, dx, read_window(three.attributes), weight, mask, activation,
            add, second=second,
        )
    )


def photo_pool(walk: Backward, step: Step, pool: Step) -> None:
    """Weight gradients of the photo's convolution from what is behind its pool; in between only to be looked at."""
    if walk.frame.whole:
        max_backward(Case(walk.frame, (pool,), INPUT, walk))
    else:
        walk.claim(pool.inputs[0])
    weights(walk, step, pool)


def convolution_input(walk: Backward, step: Step) -> None:
    frame, value = walk.frame, step.inputs[0]
    mask, activation, add = walk.target(value)
    dy = frame.image(step.output, True)
    if step.op == "dense":
        dx, places = frame.flat(value, True)
        mask = frame.flat(value)[0] if mask is not None else None
        window = POINT
        weight = frame.packed(
            f"backward:{step.node}",
            lambda: packing.pack_backward(
                [pack_dense(frame, step, places, dx.channels)], frame.element
            ),
        )
    else:
        dx, window = frame.image(value, True), read_window(step.attributes)
        weight = frame.packed(
            f"backward:{step.node}", lambda: packing.pack_backward([frame.filters(step)], frame.element)
        )
    frame.add(
        convolution.backward_input(
            step.node, frame.arithmetic, frame.batch, dy, dx, window, weight, mask, activation, add
        )
    )


def both_gradients(walk: Backward, step: Step) -> None:
    """One launch for the gradients of a 1x1 convolution's input and filters."""
    frame, value = walk.frame, step.inputs[0]
    tile = hopper_points.gradients_tile(frame, step)
    assert tile is not None
    mask, activation, _ = walk.target(value)
    weights(walk, step, both=hopper_points.gradients(frame, step, activation if mask else "", tile))


@final
@dataclass(frozen=True, slots=True)
class _Reading:
    """How the gradient of a layer's weights reads its input; `make`: the places of the sums in a partial result."""

    x: Tensor
    window: Window
    taps: packing.Taps
    make: Callable[[], Array]


def weights(walk: Backward, step: Step, pool: Step | None = None, both: tuple[Launch, int] | None = None) -> None:
    """Partial weight gradients, and their sum; of a photo's convolution from what is behind its `pool`, if given.

    `both` is the launch that makes them beside the input's gradient, and how many there are.
    """
    frame, name = walk.frame, f"{step.node}.weight"
    bias = has_bias(step) and frame.trains(step, "bias")
    if not frame.trains(step, "weight"):
        return
    dy, shape = frame.image((pool or step).output, True), frame.layout.offsets[name][1]
    reading = _read_input(frame, step, dy.padded, bias)
    size = convolution.partial_size(dy.padded, reading.taps)
    probe, splits = both or _partial_gradients(frame, step, pool, reading, dy)
    partial = frame.use(f"partial:{step.node}", 4 * size * splits)
    lane = 0 if both else 1  # what the next step waits for comes first
    frame.add(replace(probe, values=(*probe.values[:2], partial, *probe.values[3:]), lane=lane))
    partial = frame.use(f"partial:{step.node}", 4 * size * splits)  # the sum's launch uses it too
    count = int(np.prod(shape))
    table = frame.table(f"gradient:{step.node}", reading.make)
    target = frame.gradient_of(f"{step.node}.bias") if bias else 0
    frame.add(
        convolution.reduction(
            step.node, partial, table, frame.gradient_of(name), target, splits, size, count,
            count + (shape[0] if bias else 0), walk.accumulate,
        )
    )


def _read_input(frame: Frame, step: Step, filters: int, bias: bool) -> _Reading:
    shape = frame.layout.offsets[f"{step.node}.weight"][1]
    if step.op == "dense":
        x, places = frame.flat(step.inputs[0])
        taps = packing.taps_of(x, POINT, False)

        def make_dense() -> Array:
            rows = np.arange(shape[0])[:, None] * taps.total + places
            biases = filters * taps.total + np.arange(shape[0])
            return np.concatenate([rows.reshape(-1), biases if bias else biases[:0]])

        return _Reading(x, POINT, taps, make_dense)
    x, window = frame.image(step.inputs[0]), window_of(frame, step)
    taps = packing.taps_of(x, window, step.inputs[0].buffer == PHOTO)
    groups = int(step.attributes["groups"])  # type: ignore[arg-type]
    return _Reading(x, window, taps, lambda: packing.gradient_places(shape, taps, filters, bias, groups))


def _partial_gradients(
    frame: Frame, step: Step, pool: Step | None, reading: _Reading, dy: Tensor
) -> tuple[Launch, int]:
    """The launch of the partial gradients by the kernel that is the fastest here, and how many it writes."""
    if pool is not None:
        return hopper_windows.gradient_pooled(frame, step, pool)
    return (
        hopper_points.filter_gradients(frame, step, reading.x, dy)
        or hopper_windows.row_gradient(frame, step, reading.x, dy)
        or convolution.backward_weight(
            step.node, frame.arithmetic, frame.batch, reading.x, dy, reading.window, reading.taps, 0, frame.processors
        )
    )


def softmax(walk: Backward, step: Step) -> None:
    frame, value = walk.frame, step.inputs[0]
    if walk.wants(value):
        mask, activation, add = walk.target(value)
        frame.add(softmax_gradient_launch(frame, step, frame.image(value, True), mask, activation, add))


def average(walk: Backward, step: Step) -> None:
    frame, value = walk.frame, step.inputs[0]
    if not walk.wants(value):
        return
    mask, activation, add = walk.target(value)
    dy, dx = frame.image(step.output, True), frame.image(value, True)
    hw, lanes = dx.height * dx.width, lanes_of(dx)
    values = (
        dy.address, dx.address, mask.address if mask else 0, hw, lanes, dy.pitch, dx.pitch, mask.pitch if mask else 0,
        RELU[activation] if mask else 0, int(add), 1 / hw,
    )
    frame.add(
        simple_launch(
            step.node, "backward_input", "fused", "passes.head_fast", "make_average_gradient", (frame.element,),
            head_fast.POOL_ARGUMENTS, (frame.batch, 1, 1), (head_fast.THREADS, 1, 1), values,
        )
    )
