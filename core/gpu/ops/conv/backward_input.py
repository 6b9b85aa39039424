"""Launches of convolutions' input gradients: the forward product with rotated filters."""

from __future__ import annotations

from typing import Final

from core.gpu.launch import Tensor
from core.gpu.ops.conv import packing, products
from core.gpu.ops.conv.geometry import is_fire
from core.gpu.ops.conv.products import Ending
from core.gpu.select import Case
from core.ops.contract import Array
from core.ops.window import read_window

FIRE: Final = "It computes the expand layers of a fire."


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


def fire_sides(case: Case) -> tuple[list[Array], Tensor, Tensor, int]:
    """Filters of the 3x3 and the 1x1 half, gradient of the 3x3 half's output and of the input, filters of the 1x1."""
    frame, (one, three) = case.frame, case.steps
    filters = [frame.filters(step) for step in (three, one)]
    return filters, frame.image(three.output, True), frame.image(one.inputs[0], True), one.output.shape[-1]


def refuse_fire(case: Case) -> str:
    return "" if is_fire(*case.steps) else FIRE


def refuse_fire_halo(case: Case) -> str:
    if not is_fire(*case.steps):
        return FIRE
    _, dy, dx, second = fire_sides(case)
    suits = products.channel_bytes(dy, dx) and second == dy.padded
    return "" if suits else "It takes channels in blocks of 32 bytes, 16 or more, and halves of one size."


def fire_halo(case: Case) -> None:
    """One launch for both halves, pixels in shared memory: the 1x1 filters are a tenth tap."""
    frame, node, ending = case.frame, case.steps[1].node, gradient_ending(case)
    filters, dy, dx, _ = fire_sides(case)
    size = products.channel_bytes(dy, dx)
    weight = frame.packed(f"halo backward:{node}", lambda: packing.pack_halo(filters, size, frame.element))
    frame.add(products.halo_product(frame, node, dy, dx, weight, ending, case.configuration))
