"""Launches of convolutions' input gradients: the forward product with rotated filters."""

from __future__ import annotations

from typing import Final

from core.gpu.launch import Tensor
from core.gpu.ops.conv import packing
from core.gpu.ops.conv.geometry import is_fire
from core.gpu.select import Case
from core.gpu.writers import convolution, tiles
from core.ops.contract import Array
from core.ops.window import read_window

FIRE: Final = "It computes the expand layers of a fire."


def implicit_gemm(case: Case) -> None:
    frame, step, value = case.frame, case.step, case.step.inputs[0]
    mask, activation, add = case.backward.target(value)
    dy, dx = frame.image(step.output, True), frame.image(value, True)
    weight = frame.packed(f"backward:{step.node}", lambda: packing.pack_backward([frame.filters(step)], frame.element))
    frame.add(
        convolution.backward_input(
            step.node,
            frame.arithmetic,
            frame.batch,
            dy,
            dx,
            read_window(step.attributes),
            weight,
            mask,
            activation,
            add,
            tile=case.configuration,
        )
    )


def fire_sides(case: Case) -> tuple[list[Array], Tensor, Tensor, int]:
    """Filters of the 3x3 and the 1x1 half, gradient of the 3x3 half's output and of the input, filters of the 1x1."""
    frame, (one, three) = case.frame, case.steps
    filters = [frame.filters(step) for step in (three, one)]
    return filters, frame.image(three.output, True), frame.image(one.inputs[0], True), one.output.shape[-1]


def refuse_fire(case: Case) -> str:
    return "" if is_fire(*case.steps) else FIRE


def fire(case: Case) -> None:
    """One launch for both halves: the 1x1 filters are more depth of the sum."""
    frame, three = case.frame, case.steps[1]
    mask, activation, add = case.backward.target(three.inputs[0])
    filters, dy, dx, second = fire_sides(case)
    weight = frame.packed(f"backward:{three.node}", lambda: packing.pack_backward(filters, frame.element))
    frame.add(
        convolution.backward_input(
            three.node,
            frame.arithmetic,
            frame.batch,
            dy,
            dx,
            read_window(three.attributes),
            weight,
            mask,
            activation,
            add,
            second,
            case.configuration,
        )
    )


def refuse_fire_halo(case: Case) -> str:
    if not is_fire(*case.steps):
        return FIRE
    frame, (_, dy, dx, second) = case.frame, fire_sides(case)
    size = convolution.channel_bytes(dy.padded, frame.element, dx.padded)
    if not size or second != dy.padded:
        return "It takes channels in blocks of 32 bytes, 16 or more, and halves of one size."
    rows, depth = frame.batch * dx.height * dx.width, 9 * dy.padded + second
    if not tiles.prefers_halo(frame.arithmetic, rows, dx.padded, dy.padded, depth):
        return "It was measured slower than the implicit product."
    launch = convolution.halo(
        "", "backward_input", frame.arithmetic, frame.batch, dy, dx, 0, 0, "", None, "", False, second, size,
        case.configuration,
    )  # fmt: skip
    return "" if launch.shared <= frame.shared else "The image's rows do not fit into shared memory."


def fire_halo(case: Case) -> None:
    """The same with its pixels in shared memory: the 1x1 filters are a tenth tap."""
    frame, three = case.frame, case.steps[1]
    mask, activation, add = case.backward.target(three.inputs[0])
    filters, dy, dx, second = fire_sides(case)
    size = convolution.channel_bytes(dy.padded, frame.element, dx.padded)
    weight = frame.packed(f"halo backward:{three.node}", lambda: packing.pack_halo(filters, size, frame.element, True))
    frame.add(
        convolution.halo(
            three.node,
            "backward_input",
            frame.arithmetic,
            frame.batch,
            dy,
            dx,
            weight,
            0,
            "",
            mask,
            activation,
            add,
            second,
            size,
            case.configuration,
        )
    )
