"""What the products of a convolution read: its input, its window and its filters.

A dense layer is a 1x1 convolution of one pixel, whose features may have gaps between them in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from core.gpu.frame import Frame
from core.gpu.launch import Tensor
from core.gpu.ops.conv import packing
from core.gpu.ops.conv.geometry import reads_image, slices_of, window_of
from core.ops.contract import Array
from core.ops.window import POINT, Window
from core.program import Step


@final
@dataclass(frozen=True, slots=True)
class Operands:
    """Input (or its gradient), window, the layout of the sum over it, and the filters.

    `filters` returns the index of each weight in the flat weights, OHWI over the channels in memory, or -1. `x` is the
    first of `slices` of the groups (`core.gpu.ops.conv.geometry.slices_of`).
    """

    x: Tensor
    window: Window
    taps: packing.Taps
    filters: Callable[[], Array]
    slices: int = 1

    def pack_rows(self, frame: Frame, step: Step) -> int:
        """Address of the filters, row by row."""
        return frame.packed(
            f"{step.node}.weight", lambda: packing.pack_forward(self.filters(), self.taps, frame.element)
        )

    def gradient_positions(self, element: int, bias: bool) -> Array:
        """Index in a partial result of each weight, then of each bias where it is trained.

        A partial result has the weights and biases of each slice in turn.
        """
        filters = self.filters()
        packed = packing.pack_forward(filters, self.taps, element)[:, : self.taps.total]
        weights, every, own = packing.positions_of(packed), np.arange(len(filters)), len(packed) // self.slices
        weights += weights // (own * self.taps.total) * own
        return np.concatenate([weights, (every // own + 1) * own * self.taps.total + every]) if bias else weights


def operands_of(frame: Frame, step: Step, gradient: bool = False) -> Operands:
    """The operands of a convolution or dense layer."""
    value = step.inputs[0]
    if step.op == "dense":
        x, positions = frame.flat(value, gradient)

        def filters() -> Array:
            indices = frame.indices(f"{step.node}.weight")
            wide = np.full((len(indices), 1, 1, x.channels), -1, np.int32)
            wide[:, 0, 0, positions] = indices
            return wide

        return Operands(x, POINT, packing.taps_of(x, POINT, False), filters)
    slices, window = slices_of(frame, step), window_of(frame, step)
    x = frame.image(value, gradient).first_of(slices)
    taps = packing.taps_of(x, window, reads_image(step))
    return Operands(x, window, taps, lambda: frame.filters(step, slices), slices)
