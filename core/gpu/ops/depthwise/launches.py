"""Launches of depthwise convolutions: 3x3 in strips, between two batch norms or not, and any window directly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from core.gpu.frame import Frame, bias_of
from core.gpu.launch import (
    PLAIN,
    RELU,
    RESIDENT,
    SUM_BLOCKS,
    THREADS,
    Launch,
    Target,
    Tensor,
    blocks_of,
    make_launch,
    vectors_of,
    vectors_per_row,
)
from core.gpu.ops.conv.partial_sums import add_sum
from core.gpu.ops.depthwise import direct, strip_gradient, strips
from core.gpu.ops.norm.launches import place_sums, saved_of
from core.gpu.ops.norm.pairs import Between, between_norms, suits_strips
from core.gpu.select import Case
from core.ops.window import read_window
from core.program import Step

HALO: Final = 2
"""Rows that a strip reads beside its own, which is how much longer its work is."""


def refuse_norms(case: Case) -> str:
    found = between_norms(case.frame, case.step)
    return "" if found else "It trains 3x3 convolutions between two batch norms that are not frozen."


def refuse_direct(case: Case) -> str:
    return "Its input is stored before its batch norm." if between_norms(case.frame, case.step) else ""


def refuse_strips(case: Case) -> str:
    if not suits_strips(case.step):
        return "It computes 3x3 windows of stride 1 or 2 with a border of 1."
    return refuse_direct(case)


def pack(frame: Frame, step: Step, channels: int) -> np.ndarray:
    """Filters as ``(taps, channels up to 16 bytes)`` of places in the flat weights."""
    indices = frame.indices(f"{step.node}.weight")
    packed = np.full((indices[0].size, channels), -1, np.int32)
    packed[:, : len(indices)] = indices.reshape(len(indices), -1).T
    return packed


def _packed(frame: Frame, step: Step, channels: int) -> int:
    return frame.packed(f"{step.node}.weight", lambda: pack(frame, step, channels))


def _split_rows(images: int, rows: int, pairs: int, at_once: int) -> tuple[int, int]:
    """(strips an image, rows a strip): the shortest time where `at_once` strips are computed at a time."""

    def time_of(tall: int) -> int:
        return blocks_of(images * pairs * blocks_of(rows, tall), at_once) * (tall + HALO)

    tall = min(range(min(4, rows), rows + 1), key=lambda t: (time_of(t), -t))
    return blocks_of(rows, tall), tall


def _shape(
    frame: Frame, groups: int, rows: int, columns: int, threads: int, at_once: int
) -> tuple[tuple[int, int, int], int, dict[str, int]]:
    """Grid, threads, and the arguments that describe the strips; `at_once` blocks fit a multiprocessor."""
    pairs, wide = blocks_of(columns, 2), vectors_per_row(groups, threads)
    block, parts = threads // wide * wide, groups // wide
    blocks = max(1, threads * at_once // (blocks_of(block, 32) * 32) * frame.processors // parts)
    strips_, tall = _split_rows(frame.batch, rows, pairs, blocks * (block // wide))
    items = frame.batch * strips_ * pairs
    values = {
        "groups": groups, "wide": wide, "items": items, "pairs": pairs, "strips": strips_, "tall": tall,
        "by_pairs": pairs, "by_strips": strips_,
    }  # fmt: skip
    return (min(blocks, blocks_of(items, block // wide)), parts, 1), block, values


def forward_strips(case: Case) -> None:
    _forward(case, None)


def forward_norms(case: Case) -> None:
    _forward(case, between_norms(case.frame, case.step))


def _forward(case: Case, between: Between | None) -> None:
    """The output; with `between` also the sums of the batch norm behind."""
    frame, step = case.frame, case.step
    window, source = read_window(step.attributes), between.before.inputs[0] if between else step.inputs[0]
    x, out = frame.image(source), frame.image(step.output)
    at_once = strips.blocks(frame.element, window.stride[0], between is not None)
    grid, threads, values = _shape(
        frame, x.padded // strips.CHANNELS, out.height, out.width, strips.THREADS, at_once
    )  # fmt: skip
    saved = partial = 0
    if between:
        saved = saved_of(frame, between.before)
        partial = place_sums(frame, f"sums:{between.after.node}", grid[0], x)
    values |= {
        "x": x.address, "weight": _packed(frame, step, x.padded), "bias": bias_of(frame, step), "out": out.address,
        "saved": saved, "partial": partial, "control": frame.addresses.control, "height": x.height, "width": x.width,
        "ho": out.height, "wo": out.width, "ldx": x.pitch, "ldo": out.pitch, "activation": RELU[step.activation],
    }  # fmt: skip
    norm = RELU[between.before.activation] if between else -1
    made = ("ops.depthwise.strips", "make_depthwise_strips", (frame.element, window.stride[0], norm))
    launch = make_launch(
        step.node, "forward", "fused", made, strips.SIGNATURE, values, grid, (threads, 1, 1), resident=at_once,
        moved=frame.batch * frame.element * x.padded * (x.height * x.width + out.height * out.width),
    )  # fmt: skip
    frame.add(replace(launch, recipe=replace(launch.recipe, threads=strips.THREADS)))


def backward_norms(case: Case) -> None:
    """Both gradients, through the batch norm behind; the sums of the one before."""
    frame, step, between = case.frame, case.step, between_norms(case.frame, case.step)
    assert between is not None
    stride, at_once = read_window(step.attributes).stride[0], strip_gradient.BLOCKS[frame.element]
    x, y = frame.image(between.before.inputs[0]), frame.image(step.output)
    g, dx = frame.image(between.after.output, True), frame.image(between.before.output, True)
    grid, threads, values = _shape(
        frame, x.padded // strip_gradient.CHANNELS, blocks_of(x.height, stride), x.width, strip_gradient.THREADS,
        at_once,
    )  # fmt: skip
    size = 9 * x.padded
    partial = frame.use(f"partial:{step.node}", 4 * size * grid[0])
    values |= {
        "x": x.address, "y": y.address, "g": g.address, "weight": _packed(frame, step, x.padded), "dx": dx.address,
        "before": saved_of(frame, between.before), "after": saved_of(frame, between.after), "partial": partial,
        "sums": place_sums(frame, f"dsums:{between.before.node}", grid[0], x), "control": frame.addresses.control,
        "height": x.height, "width": x.width, "ho": y.height, "wo": y.width,
        "ldx": x.pitch, "ldy": y.pitch, "ldg": g.pitch, "ldd": dx.pitch,
    }  # fmt: skip
    case.backward.claim(step.inputs[0])
    constants = (frame.element, stride, RELU[between.before.activation])
    launch = make_launch(
        step.node, "backward_input", "fused", ("ops.depthwise.strip_gradient", "make_depthwise_gradient", constants),
        strip_gradient.SIGNATURE, values, grid, (threads, 1, 1), resident=at_once,
        moved=2 * frame.batch * frame.element * x.padded * (x.height * x.width + y.height * y.width),
    )  # fmt: skip
    frame.add(replace(launch, recipe=replace(launch.recipe, threads=strip_gradient.THREADS)))
    _add_sum(case, grid[0], size)


def _add_sum(case: Case, splits: int, size: int) -> None:
    """Add the partial weight gradients ``(splits, taps and perhaps a bias, channels)``."""
    channels, kh, kw, _ = case.frame.layout.offsets[f"{case.step.node}.weight"][1]
    padded, taps, own = case.frame.image(case.step.output).padded, kh * kw, np.arange(channels)
    weights = (np.arange(taps)[None, :] * padded + own[:, None]).reshape(-1)
    add_sum(
        case.backward, case.step, splits, size,
        lambda bias: np.concatenate([weights, taps * padded + own]) if bias else weights,
    )  # fmt: skip


def forward_direct(case: Case) -> None:
    frame, step = case.frame, case.step
    x, out = frame.image(step.inputs[0]), frame.image(step.output)
    values = {"bias": bias_of(frame, step), "activation": RELU[step.activation]}
    frame.add(_direct(frame, step, False, x, out, values, PLAIN))


def input_direct(case: Case) -> None:
    frame, step, value = case.frame, case.step, case.step.inputs[0]
    target = case.backward.target(value)
    dy, dx = frame.image(step.output, True), frame.image(value, True)
    frame.add(_direct(frame, step, True, dy, dx, {}, target))


def _direct(
    frame: Frame, step: Step, gradient: bool, read: Tensor, written: Tensor, more: dict[str, Any], target: Target
) -> Launch:
    """Forward, or the input's gradient; `more`: values of arguments that only one of them has."""
    window, vectors = read_window(step.attributes), vectors_of(written)
    total = frame.batch * written.height * written.width * vectors
    values = {
        "x": read.address, "weight": _packed(frame, step, written.padded), "bias": 0,
        "out": written.address, "total": total, "vectors": vectors, **target.values, "by_vectors": vectors,
        "by_area": written.height * written.width, "by_columns": written.width,
        "height": read.height, "width": read.width, "ho": written.height, "wo": written.width,
        "ldx": read.pitch, "ldo": written.pitch,
        "top": window.padding[0], "left": window.padding[1], "activation": 0, **more,
    }  # fmt: skip
    constants = (frame.element, gradient, (*window.kernel, *window.stride))
    moved = 16 * (total * target.passes + frame.batch * read.height * read.width * vectors)
    return make_launch(
        step.node, "backward_input" if gradient else "forward", "fused",
        ("ops.depthwise.direct", "make_depthwise", constants), direct.SIGNATURE, values,
        (blocks_of(total, THREADS), 1, 1), moved=moved,
    )  # fmt: skip


def weights_direct(case: Case) -> None:
    """Partial weight gradients of any window, and their sum."""
    frame, step, window = case.frame, case.step, read_window(case.step.attributes)
    if not frame.trains(step, "weight"):
        return
    x, dy = frame.image(step.inputs[0]), frame.image(step.output, True)
    (kh, kw), pixels, vectors = window.kernel, frame.batch * dy.height * dy.width, vectors_of(dy)
    size, wide = (kh * kw + 1) * dy.padded, min(vectors, 32)
    across = blocks_of(vectors, wide) * kh
    split = max(64, blocks_of(pixels, max(1, 2 * SUM_BLOCKS * frame.processors // across)))
    splits = blocks_of(pixels, split)
    values = {
        "x": x.address, "dy": dy.address, "partial": frame.use(f"partial:{step.node}", 4 * size * splits),
        "pixels": pixels, "split": split, "vectors": vectors, "wide": wide, "by_area": dy.height * dy.width,
        "by_columns": dy.width, "height": x.height, "width": x.width, "ho": dy.height, "wo": dy.width,
        "ldx": x.pitch, "ldy": dy.pitch, "top": window.padding[0], "left": window.padding[1],
    }  # fmt: skip
    made = ("ops.depthwise.direct", "make_depthwise_weight", (frame.element, (*window.kernel, *window.stride)))
    frame.add(
        make_launch(
            step.node, "backward_weight", "fused", made, direct.WEIGHT_SIGNATURE, values,
            (blocks_of(vectors, wide), kh, splits), (direct.THREADS, 1, 1), stream=1,
            resident=RESIDENT if kw <= 3 else 2,  # the sums of a longer row of taps need more registers
        )
    )  # fmt: skip
    _add_sum(case, splits, size)
