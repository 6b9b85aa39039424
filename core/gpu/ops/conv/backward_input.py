"""Launches of convolutions' input gradients: the forward product with rotated filters."""

from __future__ import annotations

from core.gpu.ops.conv import packing, products
from core.gpu.ops.conv.products import Ending
from core.gpu.select import Case
from core.ops.window import read_window


def gradient_ending(case: Case) -> Ending:
    """Mask and sum of the gradient of the first step's input; notes that it is written."""
    return Ending(target=case.backward.target(case.step.inputs[0]))


def implicit_gemm(case: Case) -> None:
    frame, step, ending = case.frame, case.step, gradient_ending(case)
    dy, dx = frame.image(step.output, True), frame.image(step.inputs[0], True)
    weight = frame.packed(
        f"backward:{step.node}", lambda: packing.pack_backward(frame.filters(step), frame.element)
    )
    window = read_window(step.attributes)
    frame.add(products.backward_input(frame, step.node, dy, dx, window, weight, ending, case.configuration))
