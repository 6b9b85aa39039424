"""Launches of depthwise convolutions: 3x3 in strips, between two batch norms or not, and any window directly.

The average pool is one of the latter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from core.gpu.arguments import KernelSignature
from core.gpu.frame import Frame, bias_of
from core.gpu.launch import RELU, RESIDENT, SUM_BLOCKS, THREADS, Tensor, blocks_of, make_launch, vectors_per_row
from core.gpu.ops.conv.backward_weight import add_sum
from core.gpu.ops.depthwise import direct, strip_gradient, strips
from core.gpu.ops.norm.fusion import between_norms, suits_strips
from core.gpu.ops.norm.launches import place_sums, saved_of
from core.gpu.select import FORWARD, INPUT, Case
from core.ops.window import read_window
from core.program import Step

HALO: Final = 2
"""Rows that a strip reads beside its own."""
MOST_SUMS: Final = 36
"""Sums of taps in the registers of a thread: those of 3x3 in float32."""
MOST_ROWS: Final = 32
"""Rows of threads of a block that sums the weight gradient: their sums are added one after the other."""
WIDTHS: Final = range(48, 15, -1)
"""Widths of these rows of which the first that divides a pixel's vectors is taken."""
UNMASKED: Final = {"mask": 0, "masking": 0, "accumulate": 0}
"""A result that is written as it is; its mask has the pitch of the result."""


def refuse_norms(case: Case) -> str:
    found = between_norms(case.frame, case.step)
    return "" if found else "It trains 3x3 convolutions between two batch norms that are not frozen."


def refuse_direct(case: Case) -> str:
    return "Its input is stored before its batch norm." if between_norms(case.frame, case.step) else ""


def refuse_strips(case: Case) -> str:
    if not suits_strips(case.step):
        return "It computes 3x3 windows of stride 1 or 2 with a border of 1."
    return refuse_direct(case)


def refuse_gradient_strips(case: Case) -> str:
    if read_window(case.step.attributes).stride != (1, 1):
        return "It computes the input gradient of stride 1."
    return refuse_strips(case)


def pack_filters(frame: Frame, step: Step, channels: int, by_tap: bool = False) -> int:
    """Address of the filters as ``(channels up to 16 bytes, taps)``, or as ``(taps, channels)``."""
    indices = frame.indices(f"{step.node}.weight")
    filters = np.pad(indices.reshape(len(indices), -1), ((0, channels - len(indices)), (0, 0)), constant_values=-1)
    name = f"{'taps:' if by_tap else ''}{step.node}.weight"
    return frame.packed(name, lambda: filters.T if by_tap else filters)


def _best_rows(images: int, rows: int, pairs: int, at_once: int) -> int:
    """Rows per strip for the shortest time, where `at_once` strips are computed at the same time."""

    def time_of(count: int) -> int:
        return blocks_of(images * pairs * blocks_of(rows, count), at_once) * (count + HALO)

    return min(range(1, rows + 1), key=lambda count: (time_of(count), -count))


def _add_strips(
    case: Case, direction: str, factory: Callable[..., Any], constants: tuple[int, ...], signature: KernelSignature,
    x: Tensor, out: Tensor, rows: int, columns: int, channels: int, at_once: int, passes: int, values: dict[str, Any],
) -> int:  # fmt: skip
    """Add a launch over strips of `rows` x `columns`; returns its blocks along the strips, each with partial sums.

    A thread computes `channels` channels; `at_once` blocks fit on a multiprocessor. `values` that depend on the blocks
    are functions of their number.
    """
    frame, groups, pairs = case.frame, x.padded // channels, blocks_of(columns, 2)
    wide = vectors_per_row(groups, strips.THREADS)
    threads, across = strips.THREADS // wide * wide, groups // wide
    blocks = max(1, strips.THREADS * at_once // (blocks_of(threads, 32) * 32) * frame.processors // across)
    best = _best_rows(frame.batch, rows, pairs, blocks * (threads // wide))
    per_image = blocks_of(rows, best)
    items = frame.batch * per_image * pairs
    blocks = min(blocks, blocks_of(items, threads // wide))
    given = {name: value(blocks) if callable(value) else value for name, value in values.items()}
    given |= {
        "control": frame.block("control"), "x": x.address,
        "ldx": x.pitch, "groups": groups, "wide": wide, "items": items, "pairs": pairs, "per_image": per_image,
        "rows": best, "by_pairs": pairs, "by_per_image": per_image,
        "height": x.height, "width": x.width, "ho": out.height, "wo": out.width,
    }  # fmt: skip
    pixels = frame.batch * (x.height * x.width + out.height * out.width)
    launch = make_launch(
        case.step.node, direction, factory, constants, signature, given, (blocks, across), (threads,),
        resident=at_once, moved=passes * frame.element * x.padded * pixels,
    )  # fmt: skip
    # One kernel for every count of channels: it is compiled for the most threads.
    frame.add(replace(launch, recipe=replace(launch.recipe, threads=strips.THREADS)))
    return blocks


def forward_strips(case: Case) -> None:
    """The output; between batch norms also the sums of the one after."""
    frame, step, between = case.frame, case.step, between_norms(case.frame, case.step)
    stride, norm = read_window(step.attributes).stride[0], strips.PLAIN
    x, out = frame.tensor(between[0].inputs[0] if between else step.inputs[0]), frame.tensor(step.output)
    values: dict[str, Any] = {
        "weight": pack_filters(frame, step, x.padded), "bias": bias_of(frame, step), "out": out.address,
        "ldo": out.pitch, "activation": RELU[step.activation], "saved": 0, "partial": 0, **UNMASKED,
    }  # fmt: skip
    if between:
        before, after = between
        norm, values["saved"] = RELU[before.activation], saved_of(frame, before)
        values["partial"] = lambda blocks: place_sums(frame, f"sums:{after.node}", blocks, x)
    at_once = strips.blocks(frame.element, stride, norm)
    _add_strips(
        case, "forward", strips.make_depthwise_strips, (frame.element, stride, norm), strips.SIGNATURE, x, out,
        out.height, out.width, strips.CHANNELS, at_once, 1, values,
    )  # fmt: skip


def backward_strips(case: Case) -> None:
    """The input's gradient: the forward kernel on dy, which rotates the filters."""
    frame, (dy, dx, target) = case.frame, case.sides()
    values = {
        "weight": pack_filters(frame, case.step, dy.padded), "bias": 0, "out": dx.address, "ldo": dx.pitch,
        "activation": 0, "saved": 0, "partial": 0, **{name: target.values[name] for name in UNMASKED},
    }  # fmt: skip
    _add_strips(
        case, INPUT, strips.make_depthwise_strips, (frame.element, 1, strips.GRADIENT), strips.SIGNATURE, dy, dx,
        dx.height, dx.width, strips.CHANNELS, strips.blocks(frame.element, 1, strips.GRADIENT), 1, values,
    )  # fmt: skip


def backward_norms(case: Case) -> None:
    """Both gradients, through the batch norm after the convolution; the sums of the one before."""
    frame, step, between = case.frame, case.step, between_norms(case.frame, case.step)
    assert between is not None
    before, after = between
    stride = read_window(step.attributes).stride[0]
    x, y = frame.tensor(before.inputs[0]), frame.tensor(step.output)
    g, dx = frame.tensor(after.output, True), frame.tensor(before.output, True)
    size = 9 * x.padded
    values = {
        "partial": lambda blocks: frame.use(f"partial:{step.node}", 4 * size * blocks),
        "weight": pack_filters(frame, step, x.padded), "y": y.address, "g": g.address, "dx": dx.address,
        "ldy": y.pitch, "ldg": g.pitch, "ldd": dx.pitch,
        "before": saved_of(frame, before), "after": saved_of(frame, after),
        "sums": lambda blocks: place_sums(frame, f"dsums:{before.node}", blocks, x),
    }  # fmt: skip
    case.backward.claim(step.inputs[0])
    constants = (frame.element, stride, RELU[before.activation])
    blocks = _add_strips(
        case, "backward_input", strip_gradient.make_depthwise_gradient, constants, strip_gradient.SIGNATURE, x, y,
        blocks_of(x.height, stride), x.width, strip_gradient.CHANNELS, strip_gradient.BLOCKS[frame.element], 2, values,
    )  # fmt: skip
    _add_sum(case, blocks, size)


def _add_sum(case: Case, splits: int, size: int) -> None:
    """Add the partial weight gradients ``(splits, taps and perhaps a bias, channels)``."""
    channels, kh, kw, _ = case.frame.layout.offsets[f"{case.step.node}.weight"][1]
    padded, taps, own = case.frame.tensor(case.step.output).padded, kh * kw, np.arange(channels)
    weights = (np.arange(taps)[None, :] * padded + own[:, None]).reshape(-1)
    add_sum(
        case.backward, case.step, splits, size,
        lambda bias: np.concatenate([weights, taps * padded + own]) if bias else weights,
    )  # fmt: skip


def write_direct(case: Case) -> None:
    """A convolution or an average forward, or the input's gradient, which reads dy."""
    frame, step, window, (x, out, target) = case.frame, case.step, read_window(case.step.attributes), case.sides()
    forward, vectors, convolves = case.direction == FORWARD, out.vectors, step.op == "depthwise_conv2d"
    values = {
        "x": x.address, "weight": pack_filters(frame, step, out.padded, True) if convolves else 0,
        "bias": bias_of(frame, step) if forward else 0, "out": out.address, **target.values,
        **out.pixel_values(frame.batch), **x.side_values(out),
        **dict(zip(("top", "left", "bottom", "right"), window.padding, strict=True)),
        "activation": RELU[step.activation] if forward else 0,
    }  # fmt: skip
    kind = direct.FILTERS if convolves else direct.PADDED_MEAN if step.attributes["count_include_pad"] else direct.MEAN
    constants = (frame.element, not forward, (*window.kernel, *window.stride), kind)
    moved = 16 * (values["total"] * target.passes + frame.batch * x.height * x.width * vectors)
    frame.add(make_launch(
        step.node, case.direction, direct.make_depthwise, constants, direct.SIGNATURE, values,
        (blocks_of(values["total"], THREADS),), moved=moved,
    ))  # fmt: skip


def weights_direct(case: Case) -> None:
    """Partial weight gradients of any window, and their sum."""
    frame, step, window = case.frame, case.step, read_window(case.step.attributes)
    if not frame.trains(step, "weight"):
        return
    x, dy = case.gradient_sides()
    (kh, kw), vectors, runs = window.kernel, dy.vectors, replace(dy, width=blocks_of(dy.width, direct.RUN))
    size, tap_rows = (kh * kw + 1) * dy.padded, kh if kh * kw * dy.vector <= MOST_SUMS else 1
    wide = next((w for w in WIDTHS if vectors % w == 0), min(vectors, 32))
    across, count = blocks_of(vectors, wide) * (kh // tap_rows), frame.batch * runs.height * runs.width
    rows = min(THREADS // wide, MOST_ROWS)
    split = max(64 // direct.RUN, blocks_of(count, max(1, 2 * SUM_BLOCKS * frame.processors // across)))
    splits = blocks_of(count, split)
    values = {
        "x": x.address, "dy": dy.address, "partial": frame.use(f"partial:{step.node}", 4 * size * splits),
        "split": split, "wide": wide, "top": window.padding[0], "left": window.padding[1],
        **runs.pixel_values(frame.batch), **x.side_values(dy),
    }  # fmt: skip
    constants = (frame.element, (*window.kernel, *window.stride), tap_rows)
    frame.add(make_launch(
        step.node, "backward_weight", direct.make_depthwise_weight, constants, direct.WEIGHT_SIGNATURE,
        values, (blocks_of(vectors, wide), kh // tap_rows, splits), (rows * wide,), stream=1,
        resident=RESIDENT if kw + window.stride[1] <= 4 else 2,  # a longer row of taps needs more registers
    ))  # fmt: skip
    _add_sum(case, splits, size)
