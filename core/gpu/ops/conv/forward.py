"""Forward launches of convolutions, each with why it does not compute a case."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from core.gpu.frame import Frame, bias_of
from core.gpu.launch import Launch, Tensor
from core.gpu.ops.conv import packing
from core.gpu.ops.conv.geometry import THREE, batch_norm_behind, is_fire, reads_image, window_of
from core.gpu.ops.conv.packing import Taps
from core.gpu.select import Case
from core.gpu.writers import convolution
from core.ops.window import read_window
from core.program import Step

MERGED_PIXELS: Final = 6000
"""Up to so many pixels both halves of a fire's expand are one launch (13 x 13, batch 32: 18 us against 22)."""

MERGED_ON_HOPPER: Final = 3100
"""The same where the 3x3 half has a kernel with `wgmma` (13 x 13, batch 32: 11 us beside the 1x1 half, merged 24)."""


def sides_of(case: Case) -> tuple[Tensor, Tensor]:
    """Input and output of a case's first step."""
    return case.frame.image(case.step.inputs[0]), case.frame.image(case.step.output)


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
    _product(case, None)


def batch_norm_sums(case: Case) -> None:
    _product(case, batch_norm_behind(case.frame, case.step))


def _product(case: Case, counting: Step | None) -> None:
    """The implicit product, with the sums of the batch norm `counting` if there is one."""
    frame, step, (x, out) = case.frame, case.step, sides_of(case)
    window = window_of(frame, step)
    taps = packing.taps_of(x, window, reads_image(step))
    launch = convolution.forward(
        step.node, frame.arithmetic, frame.batch, x, out, window, taps, pack_rows(frame, step, taps),
        bias_of(frame, step), step.activation, statistics=int(counting is not None), photos=frame.places.control,
        tile=case.configuration,
    )  # fmt: skip
    if counting is not None:
        name = f"sums:{counting.node}"
        frame.partials[name] = launch.grid[0]
        values = list(launch.values)
        values[convolution.STATISTICS] = frame.use(name, 8 * launch.grid[0] * out.padded)
        launch = replace(launch, values=tuple(values))
    add_forward(case, launch)


def refuse_sums(case: Case) -> str:
    found = batch_norm_behind(case.frame, case.step)
    return "" if found else "It trains convolutions before a batch norm that is not frozen."


def _image_launch(case: Case, weight: int, bias: int) -> Launch | None:
    frame, step, (x, out) = case.frame, case.step, sides_of(case)
    window = window_of(frame, step)
    return convolution.forward_photo(
        step.node, frame.arithmetic, frame.batch, x, out, window, packing.taps_of(x, window, True), weight, bias,
        step.activation, frame.processors, frame.shared,
    )  # fmt: skip


def refuse_image(case: Case) -> str:
    if not reads_image(case.step):
        return "It computes convolutions of the network's input."
    if _image_launch(case, 0, 0) is None:
        return "It takes 32, 64, 96 or 128 filters that fit into shared memory, and windows 16 bytes apart."
    return ""


def image(case: Case) -> None:
    taps = packing.taps_of(sides_of(case)[0], window_of(case.frame, case.step), True)
    launch = _image_launch(case, pack_rows(case.frame, case.step, taps), bias_of(case.frame, case.step))
    assert launch is not None
    add_forward(case, launch)


def refuse_three(case: Case) -> str:
    """The reason of kernels for 3x3 convolutions."""
    if reads_image(case.step) or read_window(case.step.attributes) != THREE:
        return "It computes 3x3 convolutions of stride 1 with a border of 1."
    return ""


def _halo_launch(case: Case, weight: int, bias: int, size: int) -> Launch:
    frame, step, (x, out) = case.frame, case.step, sides_of(case)
    return convolution.halo(
        step.node, "forward", frame.arithmetic, frame.batch, x, out, weight, bias, step.activation, None, "", False, 0,
        size, case.configuration,
    )  # fmt: skip


def refuse_halo(case: Case) -> str:
    frame = case.frame
    if reason := refuse_three(case):
        return reason
    x, out = sides_of(case)
    size = convolution.channel_bytes(x.padded, frame.element, out.padded)
    if not size:
        return "It takes channels in blocks of 32 bytes, and 16 filters or more."
    fits = _halo_launch(case, 0, 0, size).shared <= frame.shared
    return "" if fits else "The image's rows do not fit into shared memory."


def halo(case: Case) -> None:
    frame, step, (x, out) = case.frame, case.step, sides_of(case)
    size = convolution.channel_bytes(x.padded, frame.element, out.padded)
    weight = frame.packed(
        f"halo:{step.node}.weight",
        lambda: packing.pack_halo([frame.filters(step)], size, frame.element, False),
    )
    add_forward(case, _halo_launch(case, weight, bias_of(frame, step), size))


def refuse_fire(case: Case) -> str:
    """Few pixels leave the GPU waiting for launches, not for work."""
    frame = case.frame
    if not is_fire(*case.steps):
        return "It computes both expand layers of a fire."
    height, width, _ = case.step.output.shape
    limit = MERGED_ON_HOPPER if frame.hopper and frame.arithmetic == "bf16" else MERGED_PIXELS
    many = frame.batch * height * width > limit
    return f"Both expand layers beside each other were measured faster above {limit} pixels." if many else ""


def fire_arguments(case: Case) -> tuple[Tensor, Tensor, Taps, int, convolution.Half]:
    """x, both outputs as one, the 3x3 filters' taps and packed rows, and the 1x1 half."""
    frame, (one, three) = case.frame, case.steps
    x, out = frame.image(one.inputs[0]), frame.image(one.output)
    out = replace(out, channels=one.output.shape[-1] + three.output.shape[-1])
    point, taps = (packing.taps_of(x, read_window(s.attributes), False) for s in case.steps)
    first, second = (pack_rows(frame, s, t) for s, t in ((one, point), (three, taps)))
    depth = packing.padded_depth(point.total, frame.element)
    return x, out, taps, second, convolution.Half(first, bias_of(frame, one), one.output.shape[-1], depth)


def fire(case: Case) -> None:
    frame, three = case.frame, case.steps[1]
    x, out, taps, weight, half = fire_arguments(case)
    frame.add(
        convolution.forward(
            three.node,
            frame.arithmetic,
            frame.batch,
            x,
            out,
            THREE,
            taps,
            weight,
            bias_of(frame, three),
            three.activation,
            half,
            tile=case.configuration,
        )
    )
