"""Launches of weight gradients: partial results of blocks, then their sum in a fixed order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from core.gpu.frame import has_bias
from core.gpu.launch import Launch, Tensor
from core.gpu.ops.conv import packing
from core.gpu.ops.conv.geometry import reads_image, window_of
from core.gpu.select import Case
from core.gpu.writers import convolution
from core.ops.contract import Array
from core.ops.window import Window


@final
@dataclass(frozen=True, slots=True)
class Reading:
    """How the gradient of a layer's weights reads its input; `places`: where the sums are in a partial result.

    `places` takes the filters up to 16 bytes, and whether there is a bias.
    """

    x: Tensor
    window: Window
    taps: packing.Taps
    places: Callable[[int, bool], Array]


def read_input(case: Case) -> Reading:
    """A convolution reads windows of its input."""
    frame, step = case.frame, case.step
    x, window, shape = (
        frame.image(step.inputs[0]),
        window_of(frame, step),
        frame.layout.offsets[f"{step.node}.weight"][1],
    )
    taps = packing.taps_of(x, window, reads_image(step))
    groups = int(step.attributes["groups"])  # type: ignore[arg-type]
    return Reading(x, window, taps, lambda filters, bias: packing.gradient_places(shape, taps, filters, bias, groups))


def split_pixels(case: Case, read: Callable[[Case], Reading] = read_input) -> None:
    """Every block sums its own range of pixels."""
    frame, step, reading = case.frame, case.step, read(case)
    dy = frame.image(step.output, True)
    launch, splits = convolution.backward_weight(
        step.node, frame.arithmetic, frame.batch, reading.x, dy, reading.window, reading.taps, 0, frame.processors
    )
    add_partials(
        case, reading, dy, splits,
        lambda at: replace(launch, values=(*launch.values[:2], at, *launch.values[3:])),
    )  # fmt: skip


def add_partials(
    case: Case, reading: Reading, dy: Tensor, splits: int, make: Callable[[int], Launch], lane: int = 1
) -> None:
    """Add the launch that writes so many partial results, and that of their sum, into the first step's gradients.

    `make` gives the launch for the partial results' address; `lane` 0 where the next step waits for it.
    """
    frame, step, name = case.frame, case.step, f"{case.step.node}.weight"
    if not frame.trains(step, "weight"):
        return
    bias, shape = has_bias(step) and frame.trains(step, "bias"), frame.layout.offsets[name][1]
    size, count = convolution.partial_size(dy.padded, reading.taps), int(np.prod(shape))

    def use() -> int:
        return frame.use(f"partial:{step.node}", 4 * size * splits)

    frame.add(replace(make(use()), lane=lane))
    table = frame.table(f"gradient:{step.node}", lambda: reading.places(dy.padded, bias))
    frame.add(
        convolution.reduction(
            step.node,
            use(),
            table,
            frame.gradient_of(name),
            frame.gradient_of(f"{step.node}.bias") if bias else 0,
            splits,
            size,
            count,
            count + (shape[0] if bias else 0),
            case.backward.accumulate,
        )
    )
