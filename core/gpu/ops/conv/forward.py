"""Forward launches of convolutions, each with why it does not compute a case."""

from __future__ import annotations

from dataclasses import replace

from core.gpu.frame import Frame, bias_of
from core.gpu.launch import Launch, Tensor
from core.gpu.ops.conv import packing, products
from core.gpu.ops.conv.geometry import THREE, is_fire, reads_image, window_of
from core.gpu.ops.conv.packing import Taps
from core.gpu.ops.conv.products import Ending
from core.gpu.select import Case
from core.ops.window import read_window
from core.program import Step


def sides_of(case: Case) -> tuple[Tensor, Tensor]:
    """Input and output of a case's first step."""
    return case.frame.image(case.step.inputs[0]), case.frame.image(case.step.output)


def taps_of(case: Case) -> Taps:
    """How the sum over a window is laid out."""
    step = case.step
    return packing.taps_of(case.frame.image(step.inputs[0]), window_of(case.frame, step), reads_image(step))


def pack_rows(frame: Frame, step: Step, taps: Taps) -> int:
    """Address of a convolution's filters, row by row."""
    return frame.packed(f"{step.node}.weight", lambda: packing.pack_forward(frame.filters(step), taps, frame.element))


def add_forward(case: Case, launch: Launch) -> None:
    """Add the launch of a single convolution; the 1x1 half of a fire runs beside the 3x3 half."""
    if is_fire(case.step, case.frame.following(case.step)):
        case.frame.add(replace(launch, lane=1))
        case.frame.join_after_next()
    else:
        case.frame.add(launch)


def implicit_gemm(case: Case) -> None:
    frame, step, (x, out) = case.frame, case.step, sides_of(case)
    taps = taps_of(case)
    ending = Ending(bias_of(frame, step), step.activation)
    add_forward(
        case,
        products.forward(
            frame, step.node, x, out, window_of(frame, step), taps, pack_rows(frame, step, taps), ending,
            case.configuration,
        ),
    )  # fmt: skip


def refuse_three(case: Case) -> str:
    """The reason of kernels for 3x3 convolutions."""
    if reads_image(case.step) or read_window(case.step.attributes) != THREE:
        return "It computes 3x3 convolutions of stride 1 with a border of 1."
    return ""
