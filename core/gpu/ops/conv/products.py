"""Launches of the implicit product: convolutions forward, and their input gradients with rotated filters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from core.gpu.frame import Frame, bias_of
from core.gpu.launch import PLAIN, RELU, Launch, Target, Tensor, blocks_of, make_launch
from core.gpu.ops.conv import implicit_gemm, packing
from core.gpu.ops.conv.geometry import THREE, is_fire, reads_image, slices_of, window_of, window_values
from core.gpu.ops.conv.packing import Taps, padded_depth
from core.gpu.parts.tile import Tile
from core.gpu.select import Case
from core.ops.window import POINT, Window, read_window
from core.program import Step


def sides_of(case: Case) -> tuple[Tensor, Tensor]:
    """Input and output of a case's first step."""
    return case.frame.image(case.step.inputs[0]), case.frame.image(case.step.output)


def pack_rows(frame: Frame, step: Step, taps: Taps, slices: int = 1) -> int:
    """Address of a convolution's filters, row by row."""
    return frame.packed(
        f"{step.node}.weight", lambda: packing.pack_forward(frame.filters(step, slices), taps, frame.element)
    )


def add_forward(case: Case, launch: Launch) -> None:
    """Add the launch of a single convolution; the 1x1 half of a fire runs beside the 3x3 half."""
    if is_fire(case.step, case.frame.following(case.step)):
        case.frame.add(replace(launch, stream=1))
        case.frame.join_after_next()
    else:
        case.frame.add(launch)


def write_forward(case: Case) -> None:
    frame, step, slices = case.frame, case.step, slices_of(case.frame, case.step)
    x, out = (side.first_of(slices) for side in sides_of(case))
    ending, window = Ending(bias_of(frame, step), step.activation), window_of(frame, step)
    taps = packing.taps_of(x, window, reads_image(step))
    weight = pack_rows(frame, step, taps, slices)
    add_forward(case, forward(frame, step.node, x, out, window, taps, weight, ending, case.configuration, slices))


def refuse_groups(case: Case) -> str:
    """Why kernels without groups refuse."""
    return "It has no groups." if any(slices_of(case.frame, step) > 1 for step in case.steps) else ""


def refuse_three(case: Case) -> str:
    """Why kernels for 3x3 convolutions refuse."""
    if reads_image(case.step) or read_window(case.step.attributes) != THREE:
        return "It computes 3x3 convolutions of stride 1 with a border of 1."
    return ""


def gradient_ending(case: Case) -> Ending:
    """Mask and sum of the gradient of the first step's input; notes that it is written."""
    return Ending(target=case.backward.target(case.step.inputs[0]))


def write_input(case: Case) -> None:
    frame, step, ending, slices = case.frame, case.step, gradient_ending(case), slices_of(case.frame, case.step)
    dy, dx = (frame.image(value, True).first_of(slices) for value in (step.output, step.inputs[0]))
    weight = frame.packed(
        f"backward:{step.node}",
        lambda: packing.pack_backward(frame.filters(step, slices), frame.element, slices),
    )
    window = read_window(step.attributes)
    frame.add(backward_input(frame, step.node, dy, dx, window, weight, ending, case.configuration, slices))


@final
@dataclass(frozen=True, slots=True)
class Ending:
    """The epilogue of a product: bias and activation, or mask and sum of a gradient."""

    bias: int = 0
    activation: str = ""
    target: Target = PLAIN

    @property
    def values(self) -> dict[str, int]:
        """As arguments of kernels."""
        return {"bias": self.bias, "activation": RELU[self.activation], **self.target.values}


def forward(
    frame: Frame, layer: str, x: Tensor, out: Tensor, window: Window, taps: Taps, weight: int, ending: Ending,
    tile: Tile, slices: int = 1,
) -> Launch:  # fmt: skip
    """The implicit product; x and out are the first of `slices`."""
    rows = frame.batch * out.height * out.width
    kind = "point" if window.kernel == POINT.kernel and window.padding == POINT.padding else "window"
    values = {
        "total": taps.total, "channels": taps.channels, "kernel_width": taps.kernel[1],
        **window_values(x, out, window.stride, window.padding),
    }  # fmt: skip
    return _product(
        frame, layer, "forward", kind, tile, x, out, weight, ending, values, slices,
        flops=2 * rows * out.padded * taps.total,
        moved=x.element * (frame.batch * x.height * x.width * x.padded + rows * out.padded),
    )  # fmt: skip


def backward_input(
    frame: Frame, layer: str, dy: Tensor, dx: Tensor, window: Window, weight: int, ending: Ending, tile: Tile,
    slices: int = 1,
) -> Launch:  # fmt: skip
    """dx from dy with rotated filters. A strided convolution's gradient reads every stride-th position ("spread")."""
    (kh, kw), (sy, sx), (top, left, _, _) = window.kernel, window.stride, window.padding
    rows, total = frame.batch * dx.height * dx.width, kh * kw * dy.padded
    kind = "spread" if (sy, sx) != (1, 1) else "point" if (kh, kw) == (1, 1) else "window"
    values = {
        "total": total, "channels": dy.padded, "kernel_width": kw,
        **window_values(dy, dx, (1, 1), (kh - 1 - top, kw - 1 - left)),
    }  # fmt: skip
    if kind == "spread":
        values |= {"height": sy << 16 | dy.height, "width": sx << 16 | dy.width}
    read = frame.batch * dy.height * dy.width * dy.padded
    return _product(
        frame, layer, "backward_input", kind, tile, dy, dx, weight, ending, values, slices,
        flops=2 * rows * dx.padded * total, moved=dy.element * (read + rows * dx.padded * ending.target.passes),
    )  # fmt: skip


def _product(
    frame: Frame, layer: str, direction: str, kind: str, tile: Tile, x: Tensor, out: Tensor, weight: int,
    ending: Ending, values: dict[str, int], slices: int, *, flops: int, moved: int,
) -> Launch:  # fmt: skip
    """The implicit product; `kind`: how windows are read. `flops` and `moved`: of a slice."""
    rows, columns = frame.batch * out.height * out.width, out.padded
    values |= {
        "x": x.address, "weight": weight, "out": out.address, "rows": rows, "columns": columns,
        "depth": padded_depth(values["total"], x.element), "ldo": out.pitch, **ending.values,
    }  # fmt: skip
    constants = (frame.arithmetic, tile.numbers, kind, *((True,) if slices > 1 else ()))
    made = ("ops.conv.implicit_gemm", "make_convolution", constants)
    return make_launch(
        layer, direction, "tensor_core", made, implicit_gemm.SIGNATURE, values,
        (blocks_of(rows, tile.rows), blocks_of(columns, tile.columns), slices), (tile.threads, 1, 1),
        implicit_gemm.shared_bytes(tile, x.element), slices * moved, tile.blocks, flops=slices * flops,
    )  # fmt: skip
