"""Launches of the implicit product: convolutions and dense layers forward, and their input gradients."""

from __future__ import annotations

from dataclasses import replace

from core.gpu.frame import bias_of
from core.gpu.launch import PLAIN, RELU, Launch, Tensor, blocks_of, make_launch
from core.gpu.ops.conv import implicit_gemm
from core.gpu.ops.conv.geometry import THREE, is_fire, reads_image, slices_of, window_values
from core.gpu.ops.conv.operands import operands_of, pack_backward, padded_depth
from core.gpu.select import Case
from core.ops.window import POINT, read_window


def add_forward(case: Case, launch: Launch) -> None:
    """Add the launch of a single convolution; the 1x1 half of a fire runs beside the 3x3 half."""
    if is_fire(case.step, case.frame.following(case.step)):
        case.frame.add(replace(launch, stream=1))
        case.frame.join_after_next()
    else:
        case.frame.add(launch)


def refuse_groups(case: Case) -> str:
    return "It has no groups." if any(slices_of(case.frame, step) > 1 for step in case.steps) else ""


def refuse_three(case: Case) -> str:
    if reads_image(case.step) or read_window(case.step.attributes) != THREE:
        return "It computes 3x3 convolutions of stride 1 with a border of 1."
    return refuse_groups(case)


def refuse_phases(case: Case) -> str:
    """Why the input gradient with a large stride refuses: the third axis of a grid has at most 65,535 blocks."""
    (sy, sx), slices = read_window(case.step.attributes).stride, slices_of(case.frame, case.step)
    return "It computes at most 65,535 phases." if slices * sy * sx > 65535 else ""


def write_forward(case: Case) -> None:
    """x and out are the first of the slices."""
    frame, step, of = case.frame, case.step, operands_of(case.frame, case.step)
    x, out, window, taps = of.x, frame.tensor(step.output).first_of(of.slices), of.window, of.taps
    rows = frame.batch * out.height * out.width
    kind = "point" if window.kernel == POINT.kernel and window.padding == POINT.padding else "window"
    values = {
        "total": taps.total, "channels": taps.channels, "kernel_height": taps.kernel[0], "kernel_width": taps.kernel[1],
        "bias": bias_of(frame, step), "activation": RELU[step.activation],
        **window_values(x, out, window.stride, window.padding), **PLAIN.values,
    }  # fmt: skip
    launch = _product(
        case, kind, x, out, of.pack_rows(frame, step), taps.total, values, of.slices,
        flops=2 * rows * out.padded * taps.total,
        moved=x.element * (frame.batch * x.height * x.width * x.padded + rows * out.padded),
    )  # fmt: skip
    add_forward(case, launch)


def write_input(case: Case) -> None:
    """dx from dy with rotated filters; that of a strided convolution in as many phases as the stride has pixels."""
    frame, step, of = case.frame, case.step, operands_of(case.frame, case.step, True)
    dy, dx, slices, window = frame.tensor(step.output, True).first_of(of.slices), of.x, of.slices, of.window
    (kh, kw), (sy, sx), (top, left, _, _) = window.kernel, window.stride, window.padding
    phases, target = sy * sx, case.backward.target(step.inputs[0])
    if phases > 1:
        across, area = blocks_of(dx.width, sx), blocks_of(dx.height, sy) * blocks_of(dx.width, sx)
        windows = window_values(dy, dx, (sy, sx), (top, left))
        windows |= {"by_area": area, "area": area, "by_across": across, "across": across}
    else:
        windows = window_values(dy, dx, (1, 1), (kh - 1 - top, kw - 1 - left))
    values = {
        "total": blocks_of(kh, sy) * blocks_of(kw, sx) * dy.padded, "channels": dy.padded, "kernel_height": kh,
        "kernel_width": kw, "bias": 0, "activation": 0, **windows, **target.values,
    }  # fmt: skip
    if of.shares_filters(frame.batch):
        kind, weight, depth = "crossed", of.pack_rows(frame, step), of.taps.total
    else:
        kind, depth = "phases" if phases > 1 else "point" if (kh, kw) == POINT.kernel else "window", values["total"]
        weight = frame.packed(f"backward:{step.node}",
                              lambda: pack_backward(of.filters(), window, frame.element, slices))  # fmt: skip
    pixels = frame.batch * dy.height * dy.width
    frame.add(_product(
        case, kind, dy, dx, weight, depth, values, slices, phases, flops=2 * pixels * kh * kw * dy.padded * dx.padded,
        moved=dy.element * (pixels * dy.padded + frame.batch * dx.height * dx.width * dx.padded * target.passes),
    ))  # fmt: skip


def _product(
    case: Case, kind: str, x: Tensor, out: Tensor, weight: int, depth: int, values: dict[str, int], slices: int,
    phases: int = 1, *, flops: int, moved: int,
) -> Launch:  # fmt: skip
    """The implicit product; `kind`: how windows and filters are read; depth: elements of a packed filter without those
    at its end. `flops` and `moved`: of a slice."""
    frame, tile, rows, columns = case.frame, case.configuration, case.frame.batch * values["area"], out.padded
    shared = implicit_gemm.shared_bytes(tile, x.element, kind == "crossed")
    values |= {
        "x": x.address, "weight": weight, "out": out.address, "rows": rows, "columns": columns,
        "depth": padded_depth(depth, x.element), "ldo": out.pitch, "out_height": out.height,
        "out_width": out.width,
    }  # fmt: skip
    constants = (frame.arithmetic, tile, kind, *((True,) if slices > 1 else ()))
    grid = blocks_of(rows, tile.rows), blocks_of(columns, tile.columns), slices * phases
    return make_launch(
        case.step.node, case.direction, implicit_gemm.make_convolution, constants,
        implicit_gemm.SIGNATURE, values, grid, (tile.threads,), shared, slices * moved, tile.blocks,
        flops=slices * flops,
    )  # fmt: skip
