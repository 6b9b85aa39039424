"""Depthwise convolution's launches: walks of 3x3 filters, fused with the batch norms around, or any window alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from core.gpu.frame import Frame, bias_of, has_bias
from core.gpu.gradients import Backward
from core.gpu.kernels.convolution import depthwise_fast, depthwise_gradient, depthwise_walk
from core.gpu.kernels.parts.fragments import fast_divisor
from core.gpu.kernels.parts.thread_rows import lanes_a_row
from core.gpu.launch import RELU, SUM_BLOCKS, THREADS, Launch, Tensor, blocks_of, lanes_of, simple_launch
from core.gpu.ops.conv.partial_sums import sum_launch
from core.gpu.ops.norm.launches import saved_of
from core.gpu.ops.norm.pairs import Between, between_norms, is_walkable
from core.ops.window import read_window
from core.program import Step

HALO: Final = 2
"""Rows that a strip reads beside its own, as many as its work is longer."""


def forward(frame: Frame, step: Step) -> None:
    """The output, and the sums of the batch norm behind where the one before is applied on the way."""
    between = between_norms(frame, step)
    if between is not None:
        frame.add(_walk_forward(frame, step, between))
    elif is_walkable(step):
        frame.add(_walk_forward(frame, step, None))
    else:
        x, out = frame.image(step.inputs[0]), frame.image(step.output)
        frame.add(_plain(frame, step, False, x, out, None, "", False))


def backward(walk: Backward, step: Step) -> None:
    """Gradients of the filters and of the input."""
    between = between_norms(walk.frame, step)
    if between is not None:
        _walk_backward(walk, between)
        return
    if walk.frame.trains(step, "weight"):
        _weights(walk, step)
    value = step.inputs[0]
    if walk.wants(value):
        mask, activation, add = walk.target(value)
        dy, dx = walk.frame.image(step.output, True), walk.frame.image(value, True)
        walk.frame.add(_plain(walk.frame, step, True, dy, dx, mask, activation, add))


def pack(frame: Frame, step: Step, channels: int) -> np.ndarray:
    """Filters as ``(taps, channels up to 16 bytes)`` of places in the flat weights."""
    indices = frame.indices(f"{step.node}.weight")
    packed = np.full((indices[0].size, channels), -1, np.int32)
    packed[:, : len(indices)] = indices.reshape(len(indices), -1).T
    return packed


def _strips(photos: int, rows: int, pairs: int, at_once: int) -> tuple[int, int]:
    """(strips a photo, rows a strip): the shortest time where `at_once` columns are walked at a time."""

    def time_of(tall: int) -> int:
        return blocks_of(photos * pairs * blocks_of(rows, tall), at_once) * (tall + HALO)

    tall = min(range(min(4, rows), rows + 1), key=lambda t: (time_of(t), -t))
    return blocks_of(rows, tall), tall


def _shape(frame: Frame, lanes: int, rows: int, pairs: int, threads: int, resident: int) -> tuple[int, ...]:
    """(lanes a block, threads, blocks, items, strips, rows a strip) of a walk; `resident` threads fit a processor."""
    wide = lanes_a_row(lanes, threads)
    block = threads // wide * wide
    parts = lanes // wide
    blocks = max(1, resident // (blocks_of(block, 32) * 32) * frame.processors // parts)
    strips, tall = _strips(frame.batch, rows, pairs, blocks * (block // wide))
    items = frame.batch * strips * pairs
    return wide, block, min(blocks, blocks_of(items, block // wide)), items, strips, tall


def _walk_forward(frame: Frame, step: Step, between: Between | None) -> Launch:
    window, kernel = read_window(step.attributes), depthwise_walk
    source = between.before.inputs[0] if between else step.inputs[0]
    x, out = frame.image(source), frame.image(step.output)
    lanes, pairs = x.padded // kernel.CHANNELS, blocks_of(out.width, 2)
    at_once = kernel.blocks(frame.element, window.stride[0], between is not None)
    resident = kernel.THREADS * at_once
    wide, threads, blocks, items, strips, tall = _shape(frame, lanes, out.height, pairs, kernel.THREADS, resident)
    saved = partial = 0
    if between:
        name = f"sums:{between.after.node}"
        saved, partial = saved_of(frame, between.before), frame.use(name, 8 * blocks * x.padded)
        frame.partials[name] = blocks
    weight = frame.packed(f"{step.node}.weight", lambda: pack(frame, step, x.padded))
    values = (
        x.address, weight, bias_of(frame, step), out.address, saved, partial, frame.places.control, lanes, wide, items,
        pairs, strips, tall, *fast_divisor(pairs), *fast_divisor(strips), x.height, x.width, out.height, out.width,
        x.pitch, out.pitch, RELU[step.activation],
    )
    norm = RELU[between.before.activation] if between else -1
    recipe = (frame.element, window.stride[0], norm)
    launch = simple_launch(
        step.node, "forward", "fused", "convolution.depthwise_walk", "make_depthwise_walk", recipe, kernel.ARGUMENTS,
        (blocks, lanes // wide, 1), (threads, 1, 1), values, blocks=at_once,
        moved=frame.batch * frame.element * x.padded * (x.height * x.width + out.height * out.width),
    )
    return replace(launch, recipe=replace(launch.recipe, threads=kernel.THREADS))


def _walk_backward(walk: Backward, between: Between) -> None:
    """Both gradients of the convolution, through the batch norm behind; the sums of the one before."""
    frame, step, kernel = walk.frame, between.convolution, depthwise_gradient
    stride = read_window(step.attributes).stride[0]
    x, y = frame.image(between.before.inputs[0]), frame.image(step.output)
    g, dx = frame.image(between.after.output, True), frame.image(between.before.output, True)
    lanes, pairs = x.padded // kernel.CHANNELS, blocks_of(x.width, 2)
    resident = kernel.THREADS * kernel.BLOCKS[frame.element]
    rows = blocks_of(x.height, stride)
    wide, threads, blocks, items, strips, tall = _shape(frame, lanes, rows, pairs, kernel.THREADS, resident)
    size, sums = 9 * x.padded, f"dsums:{between.before.node}"
    frame.partials[sums] = blocks
    partial = frame.use(f"partial:{step.node}", 4 * size * blocks)
    weight = frame.packed(f"{step.node}.weight", lambda: pack(frame, step, x.padded))
    values = (
        x.address, y.address, g.address, weight, dx.address, saved_of(frame, between.before),
        saved_of(frame, between.after), partial, frame.use(sums, 8 * blocks * x.padded), frame.places.control, lanes,
        wide, items, pairs, strips, tall, *fast_divisor(pairs), *fast_divisor(strips), x.height, x.width, y.height,
        y.width, x.pitch, y.pitch, g.pitch, dx.pitch,
    )
    walk.claim(step.inputs[0])
    recipe = (frame.element, stride, RELU[between.before.activation])
    moved = 2 * frame.batch * frame.element * x.padded * (x.height * x.width + y.height * y.width)
    launch = simple_launch(
        step.node, "backward_input", "fused", "convolution.depthwise_gradient", "make_depthwise_gradient", recipe,
        kernel.ARGUMENTS, (blocks, lanes // wide, 1), (threads, 1, 1), values,
        blocks=kernel.BLOCKS[frame.element], moved=moved,
    )
    frame.add(replace(launch, recipe=replace(launch.recipe, threads=kernel.THREADS)))
    _reduce(walk, step, blocks, size)


def _reduce(walk: Backward, step: Step, splits: int, size: int) -> None:
    """Add the partial filter gradients ``(splits, taps and perhaps a bias, channels)``."""
    frame, name, bias = walk.frame, f"{step.node}.weight", has_bias(step)
    channels, kh, kw, _ = frame.layout.offsets[name][1]
    padded, weights = frame.image(step.output).padded, channels * kh * kw
    places = np.arange(kh * kw)[None, :] * padded + np.arange(channels)[:, None]
    biases = kh * kw * padded + np.arange(channels)
    table = frame.table(
        f"gradient:{step.node}", lambda: np.concatenate([places.reshape(-1), biases if bias else biases[:0]])
    )
    frame.add(
        sum_launch(
            step.node, frame.use(f"partial:{step.node}", 4 * size * splits), table, frame.gradient_of(name),
            frame.gradient_of(f"{step.node}.bias") if bias else 0, splits, size, weights,
            weights + (channels if bias else 0), walk.accumulate,
        )
    )


def _plain(
    frame: Frame, step: Step, gradient: bool, read: Tensor, written: Tensor, mask: Tensor | None, masking: str,
    accumulate: bool,
) -> Launch:  # fmt: skip
    """Forward, or the input's gradient, of any window."""
    window = read_window(step.attributes)
    lanes = lanes_of(written)
    total = frame.batch * written.height * written.width * lanes
    weight = frame.packed(f"{step.node}.weight", lambda: pack(frame, step, written.padded))
    values = (
        read.address, weight, 0 if gradient else bias_of(frame, step), mask.address if mask else 0, written.address,
        total, lanes, *fast_divisor(lanes), *fast_divisor(written.height * written.width), *fast_divisor(written.width),
        read.height, read.width, written.height, written.width, read.pitch, written.pitch, mask.pitch if mask else 0,
        *window.padding[:2], 0 if gradient else RELU[step.activation],
        RELU[masking] if mask else 0, int(accumulate),
    )
    return simple_launch(
        step.node, "backward_input" if gradient else "forward", "fused", "convolution.depthwise_fast", "make_depthwise",
        (frame.element, gradient, (*window.kernel, *window.stride)),
        depthwise_fast.ARGUMENTS, (blocks_of(total, THREADS), 1, 1), (THREADS, 1, 1), values,
        moved=16 * (total * (1 + bool(mask) + int(accumulate)) + frame.batch * read.height * read.width * lanes),
    )


def _weights(walk: Backward, step: Step) -> None:
    """Partial filter gradients of any window, and their sum."""
    frame, window = walk.frame, read_window(step.attributes)
    x, dy = frame.image(step.inputs[0]), frame.image(step.output, True)
    (kh, kw), pixels, lanes = window.kernel, frame.batch * dy.height * dy.width, lanes_of(dy)
    size, wide = (kh * kw + 1) * dy.padded, min(lanes, 32)
    across = blocks_of(lanes, wide) * kh
    split = max(64, blocks_of(pixels, max(1, 2 * SUM_BLOCKS * frame.processors // across)))
    splits = blocks_of(pixels, split)
    values = (
        x.address, dy.address, frame.use(f"partial:{step.node}", 4 * size * splits), pixels, split, lanes, wide,
        *fast_divisor(dy.height * dy.width), *fast_divisor(dy.width), x.height, x.width, dy.height, dy.width, x.pitch,
        dy.pitch, *window.padding[:2],
    )
    launch = simple_launch(
        step.node, "backward_weight", "fused", "convolution.depthwise_fast", "make_depthwise_weight",
        (frame.element, (*window.kernel, *window.stride)), depthwise_fast.WEIGHT_ARGUMENTS,
        (blocks_of(lanes, wide), kh, splits), (depthwise_fast.THREADS, 1, 1), values,
    )
    frame.add(replace(launch, lane=1))
    _reduce(walk, step, splits, size)
