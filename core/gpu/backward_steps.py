"""The backward launches of a program: the reverse walk, every gradient masked by its producer's activation."""

from __future__ import annotations

from dataclasses import replace
from typing import final

import numpy as np

from core.errors import KernelUnavailable
from core.gpu import convolution, tiles
from core.gpu import plain_launches as plain
from core.gpu.forward_steps import ends_in_head, is_fire, pack_dense, shared_activation, window_of
from core.gpu.frame import Frame
from core.gpu.kernels import batch_norm_fast, depthwise_fast, head_fast, pool_fast
from core.gpu.kernels.fragments import fast_divisor
from core.gpu.launch import Tensor, blocks_of
from core.gpu.plain_launches import (
    SUM_BLOCKS,
    THREADS,
    combine_launch,
    has_bias,
    lanes_of,
    places_of,
    pool_values,
    simple_launch,
)
from core.graph import PHOTO
from core.ops.window import Window, read_window
from core.program import Step, Value, wanted_buffers

POINT = Window((1, 1), (1, 1), (0, 0, 0, 0))


@final
class Backward:
    """The walk's state: which channels of which gradient are written, and which still lack their mask."""

    def __init__(self, frame: Frame, accumulate: bool) -> None:
        self.frame, self.accumulate = frame, accumulate
        self.wanted = wanted_buffers(frame.program, frame.trains)
        channels = {name: shape[-1] for name, shape in frame.program.buffers.items()}
        self._written = {name: np.zeros(count, bool) for name, count in channels.items()}
        self._unmasked: set[str] = set()

    def reached(self, step: Step) -> bool:
        return bool(self._written[step.output.buffer][self._span(step.output)].all())

    def wants(self, value: Value) -> bool:
        return value.buffer in self.wanted and value.buffer != PHOTO

    def _span(self, value: Value) -> slice:
        if len(value.shape) != len(self.frame.program.buffers[value.buffer]):
            return slice(None)
        return slice(value.channel, value.channel + value.shape[-1])

    def target(self, value: Value) -> tuple[Tensor | None, str, bool]:
        """(mask, its activation, whether to add) for a contribution to a value's gradient."""
        part = self._written[value.buffer][self._span(value)]
        accumulate = bool(part.any())
        if accumulate and not part.all():
            raise KernelUnavailable(f"The GPU cannot add gradients of overlapping parts of {value.buffer}.")
        part[:] = True
        activation = shared_activation(self.frame, value)
        if activation is None:
            self._unmasked.add(value.buffer)
            return None, "", accumulate
        return (self.frame.image(value) if activation else None), activation, accumulate

    def settle(self, step: Step) -> None:
        """Before a step's own backward: apply the mask that could not be applied before."""
        if step.output.buffer in self._unmasked and step.activation:
            dy, y = self.frame.image(step.output, True), self.frame.image(step.output)
            self.frame.add(
                combine_launch(self.frame, step.node, "backward_input", "sum", dy, None, dy, "", y, step.activation)
            )


def backward_launches(frame: Frame, accumulate: bool) -> None:
    """The loss and its gradient, then every step's, last first."""
    walk = Backward(frame, accumulate)
    steps = frame.program.steps
    _loss(walk)
    skip = 0
    for i in range(len(steps) - 1, -1, -1):
        step = steps[i]
        if skip:
            skip -= 1
            continue
        if step.op == "softmax_cross_entropy" or not walk.reached(step):
            continue
        if step.op == "global_avg_pool" and ends_in_head(frame, step):
            continue
        walk.settle(step)
        before = steps[i - 1] if i else None
        if before is not None and is_fire(before, step) and _both_reached(walk, before):
            walk.settle(before)
            _fire(walk, before, step)
            skip = 1
        else:
            _backward(walk, step)


def _both_reached(walk: Backward, other: Step) -> bool:
    return walk.reached(other)


def _loss(walk: Backward) -> None:
    frame, program = walk.frame, walk.frame.program
    producer = next((s for s in program.steps if s.output == program.output), None)
    value = program.output
    if producer is not None and producer.op == "global_avg_pool":
        value = producer.inputs[0]
        walk._written[program.output.buffer][:] = True
    gradient, mask = None, ""
    if walk.wants(value):
        _, mask, _ = walk.target(value)
        gradient = frame.image(value, True)
    frame.add(plain.head_launch(frame, gradient, mask))


def _backward(walk: Backward, step: Step) -> None:
    if step.op in ("conv2d", "dense"):
        _weights(walk, step)
        if walk.wants(step.inputs[0]):
            _convolution_input(walk, step)
    elif step.op == "max_pool":
        _pool(walk, step)
    elif step.op == "batch_norm":
        _batch_norm(walk, step)
    elif step.op == "depthwise_conv2d":
        _depthwise(walk, step)
    elif step.op == "global_avg_pool":
        _average(walk, step)
    elif step.op == "dropout" and walk.wants(step.inputs[0]):
        mask, activation, add = walk.target(step.inputs[0])
        dy, dx = walk.frame.image(step.output, True), walk.frame.image(step.inputs[0], True)
        walk.frame.add(
            plain.dropout_launch(walk.frame, step, "backward_input", dy, dx, mask, activation, add)
        )
    elif step.op in ("add", "relu", "relu6", "sigmoid", "concat"):
        _combine(walk, step)


def _fire(walk: Backward, one: Step, three: Step) -> None:
    """Weight gradients of both expand layers, and one launch for their input's gradient."""
    frame, value = walk.frame, three.inputs[0]
    _weights(walk, three)
    _weights(walk, one)
    if not walk.wants(value):
        return
    mask, activation, add = walk.target(value)
    indices = [frame.indices(f"{s.node}.weight") for s in (three, one)]
    dy, dx, second = frame.image(three.output, True), frame.image(value, True), one.output.shape[-1]
    size = convolution.channel_bytes(dy.padded, frame.element, dx.padded)
    rows, depth = frame.batch * dx.height * dx.width, 9 * dy.padded + second
    if size and second == dy.padded and tiles.prefers_halo(frame.arithmetic, rows, dx.padded, dy.padded, depth):
        weight = frame.packed(
            f"halo backward:{three.node}", lambda: convolution.pack_halo(indices, size, frame.element, True)
        )
        launch = convolution.halo(
            three.node, "backward_input", frame.arithmetic, frame.batch, dy, dx, weight, 0, "", mask, activation, add,
            second, size,
        )  # fmt: skip
        if launch.shared <= frame.shared:
            frame.add(launch)
            return
    weight = frame.packed(f"backward:{three.node}", lambda: convolution.pack_backward(indices, frame.element))
    frame.add(
        convolution.backward_input(
            three.node, frame.arithmetic, frame.batch, dy, dx, read_window(three.attributes), weight, mask, activation,
            add, second=second,
        )
    )


def _convolution_input(walk: Backward, step: Step) -> None:
    frame, value = walk.frame, step.inputs[0]
    mask, activation, add = walk.target(value)
    dy, name = frame.image(step.output, True), f"{step.node}.weight"
    if step.op == "dense":
        dx, places = frame.flat(value, True)
        mask = frame.flat(value)[0] if mask is not None else None
        window = POINT
        weight = frame.packed(
            f"backward:{step.node}",
            lambda: convolution.pack_backward(
                [pack_dense(frame, step, places, dx.channels)], frame.element
            ),
        )
    else:
        dx, window = frame.image(value, True), read_window(step.attributes)
        weight = frame.packed(
            f"backward:{step.node}", lambda: convolution.pack_backward([frame.indices(name)], frame.element)
        )
    frame.add(
        convolution.backward_input(
            step.node, frame.arithmetic, frame.batch, dy, dx, window, weight, mask, activation, add
        )
    )


def _weights(walk: Backward, step: Step) -> None:
    """Partial weight gradients, and their sum."""
    frame, name = walk.frame, f"{step.node}.weight"
    bias = has_bias(step) and frame.trains(step, "bias")
    if not frame.trains(step, "weight"):
        return
    dy = frame.image(step.output, True)
    shape = frame.layout.offsets[name][1]
    if step.op == "dense":
        x, places = frame.flat(step.inputs[0])
        window = POINT
        taps = convolution.taps_of(x, window, False)

        def make() -> np.ndarray:
            rows = np.arange(shape[0])[:, None] * taps.total + places
            biases = dy.padded * taps.total + np.arange(shape[0])
            return np.concatenate([rows.reshape(-1), biases if bias else biases[:0]])
    else:
        x, window = frame.image(step.inputs[0]), window_of(frame, step)
        taps = convolution.taps_of(x, window, step.inputs[0].buffer == PHOTO)

        def make() -> np.ndarray:
            return convolution.gradient_places(shape, taps, dy.padded, bias)

    size = convolution.partial_size(dy.padded, taps)
    probe, splits = convolution.backward_weight(
        step.node, frame.arithmetic, frame.batch, x, dy, window, taps, 0, frame.processors
    )
    partial = frame.use(f"partial:{step.node}", 4 * size * splits)
    frame.add(replace(probe, values=(*probe.values[:2], partial, *probe.values[3:]), lane=1))
    partial = frame.use(f"partial:{step.node}", 4 * size * splits)
    weights = int(np.prod(shape))
    table = frame.table(f"gradient:{step.node}", make)
    target = frame.gradient_of(f"{step.node}.bias") if bias else 0
    frame.add(
        convolution.reduction(
            step.node, partial, table, frame.gradient_of(name), target, splits, size, weights,
            weights + (shape[0] if bias else 0), walk.accumulate,
        )
    )


def _pool(walk: Backward, step: Step) -> None:
    frame, value = walk.frame, step.inputs[0]
    if not walk.wants(value):
        return
    _, activation, add = walk.target(value)
    dy, dx, window = frame.image(step.output, True), frame.image(value, True), read_window(step.attributes)
    (top, left), (sy, sx) = window.padding[:2], window.stride
    grid = (blocks_of(dx.height + top, sy), blocks_of(dx.width + left, sx))
    values = pool_values(frame, dx, dy, window, grid, 0, int(add))
    frame.add(
        simple_launch(
            step.node, "backward_input", "fused", "pool_fast", "make_max_pool_gradient",
            (frame.element, (*window.kernel, *window.stride)),
            pool_fast.ARGUMENTS, (blocks_of(values[0], THREADS), 1, 1), (THREADS, 1, 1),
            (dy.address, dx.address, places_of(frame, step, dy), *values),
            moved=plain.pool_bytes(frame, dx, dy), blocks=2,
        )
    )


def _batch_norm(walk: Backward, step: Step) -> None:
    frame, value = walk.frame, step.inputs[0]
    x, dy = frame.image(value), frame.image(step.output, True)
    saved = frame.use(f"saved:{step.node}", 4 * 5 * x.padded)
    moving = not step.attributes["frozen"]
    if moving:
        hw = x.height * x.width
        partial, blocks = plain.sums_launch(frame, step, "backward_weight", f"dsums:{step.node}", x, dy, saved)
        values = (
            partial, frame.weight(f"{step.node}.weight"), 0, 0, 0, saved, frame.gradient_of(f"{step.node}.weight"),
            frame.gradient_of(f"{step.node}.bias"), frame.places.control, blocks, x.channels, x.padded, hw,
            int(walk.accumulate), 0.0, 0.0,
        )
        frame.add(
            simple_launch(
                step.node, "backward_weight", "statistics", "batch_norm_fast", "make_finish", (True,),
                batch_norm_fast.FINISH_ARGUMENTS, (blocks_of(x.padded, 8), 1, 1),
                (*batch_norm_fast.FINISH_BLOCK, 1), values,
            )
        )
    if walk.wants(value):
        mask, activation, add = walk.target(value)
        dx = frame.image(value, True)
        saved = frame.use(f"saved:{step.node}", 4 * 5 * x.padded)
        frame.add(
            plain.apply_launch(
                frame, step, "backward_input", frame.image(value), frame.image(step.output, True), mask, activation, dx,
                saved, moving, add,
            )
        )


def _depthwise(walk: Backward, step: Step) -> None:
    frame, value, name = walk.frame, step.inputs[0], f"{step.node}.weight"
    x, dy, window = frame.image(value), frame.image(step.output, True), read_window(step.attributes)
    if frame.trains(step, "weight"):
        (kh, kw), pixels, lanes = window.kernel, frame.batch * dy.height * dy.width, lanes_of(dy)
        size, wide = (kh * kw + 1) * dy.padded, min(lanes, 32)
        across = blocks_of(lanes, wide) * kh
        split = max(64, blocks_of(pixels, max(1, 2 * SUM_BLOCKS * frame.processors // across)))
        splits = blocks_of(pixels, split)
        partial = frame.use(f"partial:{step.node}", 4 * size * splits)
        values = (
            x.address, dy.address, partial, pixels, split, lanes, wide, *fast_divisor(dy.height * dy.width),
            *fast_divisor(dy.width), x.height, x.width, dy.height, dy.width, x.pitch, dy.pitch, *window.padding[:2],
        )
        launch = simple_launch(
            step.node, "backward_weight", "fused", "depthwise_fast", "make_depthwise_weight",
            (frame.element, (*window.kernel, *window.stride)), depthwise_fast.WEIGHT_ARGUMENTS,
            (blocks_of(lanes, wide), kh, splits), (depthwise_fast.THREADS, 1, 1), values,
        )
        frame.add(replace(launch, lane=1))
        partial = frame.use(f"partial:{step.node}", 4 * size * splits)
        channels, bias = x.channels, has_bias(step)
        places = np.arange(kh * kw)[None, :] * dy.padded + np.arange(channels)[:, None]
        biases = kh * kw * dy.padded + np.arange(channels)
        table = frame.table(
            f"gradient:{step.node}", lambda: np.concatenate([places.reshape(-1), biases if bias else biases[:0]])
        )
        weights = channels * kh * kw
        frame.add(
            convolution.reduction(
                step.node, partial, table, frame.gradient_of(name),
                frame.gradient_of(f"{step.node}.bias") if bias else 0, splits, size, weights,
                weights + (channels if bias else 0), walk.accumulate,
            )
        )
    if walk.wants(value):
        mask, activation, add = walk.target(value)
        dx = frame.image(value, True)
        dy = frame.image(step.output, True)
        frame.add(plain.depthwise_launch(frame, step, True, dy, dx, mask, activation, add))


def _average(walk: Backward, step: Step) -> None:
    frame, value = walk.frame, step.inputs[0]
    if not walk.wants(value):
        return
    mask, activation, add = walk.target(value)
    dy, dx = frame.image(step.output, True), frame.image(value, True)
    hw, lanes = dx.height * dx.width, lanes_of(dx)
    values = (
        dy.address, dx.address, mask.address if mask else 0, hw, lanes, dy.pitch, dx.pitch, mask.pitch if mask else 0,
        convolution.RELU[activation] if mask else 0, int(add), 1 / hw,
    )
    frame.add(
        simple_launch(
            step.node, "backward_input", "fused", "head_fast", "make_average_gradient", (frame.element,),
            head_fast.POOL_ARGUMENTS, (frame.batch, 1, 1), (head_fast.THREADS, 1, 1), values,
        )
    )


def _combine(walk: Backward, step: Step) -> None:
    frame, channel = walk.frame, 0
    for value in step.inputs:
        source = step.output
        if step.op == "concat":
            source = Value(step.output.buffer, value.shape, step.output.channel + channel)
            channel += value.shape[-1]
        if not walk.wants(value):
            continue
        mask, activation, add = walk.target(value)
        dy, dx = frame.image(source, True), frame.image(value, True)
        if step.op == "sigmoid":
            launch = combine_launch(
                frame, step.node, "backward_input", "sigmoid_gradient", dy, frame.image(step.output), dx, "", mask,
                activation, add,
            )
        elif step.op in ("relu", "relu6"):
            if mask is not None:
                raise KernelUnavailable(f"The GPU cannot take two activations in a row ({step.node}).")
            launch = combine_launch(
                frame, step.node, "backward_input", "sum", dy, None, dx, "", frame.image(step.output), step.op, add
            )
        else:
            launch = combine_launch(
                frame, step.node, "backward_input", "sum", dy, None, dx, "", mask, activation, add
            )
        frame.add(launch)
