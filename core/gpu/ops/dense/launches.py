"""Launches of dense layers: 1x1 convolutions of one pixel, whose features may have gaps between them in memory."""

from __future__ import annotations

import numpy as np

from core.gpu.frame import Frame, bias_of
from core.gpu.launch import Tensor
from core.gpu.ops.conv import backward_weight, packing, products
from core.gpu.ops.conv.packing import Taps
from core.gpu.ops.conv.products import Ending, gradient_ending
from core.gpu.select import Case
from core.ops.contract import Array
from core.ops.window import POINT
from core.program import Step


def pack_filters(frame: Frame, step: Step, positions: Array, length: int) -> Array:
    """Weights as 1x1 filters ``(units, 1, 1, length)``, with features at their positions in memory."""
    indices = frame.indices(f"{step.node}.weight")
    wide = np.full((len(indices), 1, 1, length), -1, np.int32)
    wide[:, 0, 0, positions] = indices
    return wide


def sides_of(case: Case) -> tuple[Tensor, Tensor, Taps]:
    """Input as one pixel, output, and the sum's layout."""
    x, _ = case.frame.flat(case.step.inputs[0])
    return x, case.frame.image(case.step.output), packing.taps_of(x, POINT, False)


def pack_rows(case: Case) -> int:
    """Address of the weights, row by row."""
    frame, step = case.frame, case.step
    x, places = frame.flat(step.inputs[0])
    taps = packing.taps_of(x, POINT, False)
    return frame.packed(
        f"{step.node}.weight",
        lambda: packing.pack_forward(pack_filters(frame, step, places, x.channels), taps, frame.element),
    )


def forward(case: Case) -> None:
    frame, step, (x, out, taps) = case.frame, case.step, sides_of(case)
    ending = Ending(bias_of(frame, step), step.activation)
    weight = pack_rows(case)
    frame.add(products.forward(frame, step.node, x, out, POINT, taps, weight, ending, case.configuration))


def backward_input(case: Case) -> None:
    frame, step, value = case.frame, case.step, case.step.inputs[0]
    ending, dy, (dx, places) = gradient_ending(case), frame.image(step.output, True), frame.flat(value, True)
    weight = frame.packed(
        f"backward:{step.node}",
        lambda: packing.pack_backward(pack_filters(frame, step, places, dx.channels), frame.element),
    )
    frame.add(products.backward_input(frame, step.node, dy, dx, POINT, weight, ending, case.configuration))


def read_input(case: Case) -> backward_weight.Reading:
    """A dense layer reads features at their positions in memory."""
    frame, step = case.frame, case.step
    x, places = frame.flat(step.inputs[0])
    taps, units = packing.taps_of(x, POINT, False), frame.layout.offsets[f"{step.node}.weight"][1][0]

    def find(filters: int, bias: bool) -> Array:
        rows = np.arange(units)[:, None] * taps.total + places
        biases = filters * taps.total + np.arange(units)
        return np.concatenate([rows.reshape(-1), biases if bias else biases[:0]])

    return backward_weight.Reading(x, POINT, taps, find)


def weights(case: Case) -> None:
    backward_weight.split_pixels(case, read_input)
