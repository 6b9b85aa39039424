"""The launch of the network's first convolution, by `image`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from core.gpu.frame import bias_of
from core.gpu.launch import RELU, Tensor, blocks_of, make_launch
from core.gpu.ops.conv import image, packing
from core.gpu.ops.conv.forward import add_forward, pack_rows, sides_of, taps_of
from core.gpu.ops.conv.geometry import reads_image, window_of
from core.gpu.ops.conv.packing import Taps
from core.gpu.select import Case
from core.ops.window import Window

BLOCK: Final = {2: (6, 2, (3, 2, 1)), 4: (8, 1, (4, 2, 1))}
"""By bytes of an element: warps, blocks a multiprocessor (as many as registers allow), and output rows of a group, the
most that fit: 3 rows of 112 pixels are 11 pairs of fragments for 6 warps."""


@final
@dataclass(frozen=True, slots=True)
class Group:
    """Output rows computed at a time, and the bytes of their image rows, with what is read past them, and in all."""

    rows: int
    bytes: int
    span: int
    shared: int


def group_of(x: Tensor, out: Tensor, window: Window, taps: Taps, limit: int) -> Group | None:
    """The largest group that fits into `limit` bytes of shared memory; None where the kernel does not suit."""
    right, row_bytes = window.stride[1] * x.pitch * x.element, x.row_pitch * x.element
    suits = out.padded % 32 == 0 and out.padded <= 128 and out.channels == out.padded
    if not suits or window.padding[:2] != (0, 0) or right % 16 or row_bytes % 16:
        return None
    (kh, _), steps, down = taps.kernel, taps.channels * x.element // 32, window.stride[0] * row_bytes
    for rows in BLOCK[x.element][2]:
        span = image.group_span(rows, blocks_of(out.width, 16), kh, steps, down, right, row_bytes)
        shared = image.shared_bytes(out.padded, kh, steps, span)
        if shared <= limit:
            return Group(rows, (rows - 1) * down + kh * row_bytes, span, shared)
    return None


def _group(case: Case) -> Group | None:
    x, out = sides_of(case)
    return group_of(x, out, window_of(case.frame, case.step), taps_of(case), case.frame.shared)


def refuse(case: Case) -> str:
    if not reads_image(case.step):
        return "It computes convolutions of the network's input."
    if _group(case) is None:
        return "It takes 32, 64, 96 or 128 filters that fit into shared memory, and windows 16 bytes apart."
    return ""


def forward(case: Case) -> None:
    frame, step, (x, out), group = case.frame, case.step, sides_of(case), _group(case)
    assert group is not None
    window, taps, (warps, resident, _) = window_of(frame, step), taps_of(case), BLOCK[x.element]
    groups, (kh, _), steps = blocks_of(out.height, group.rows), taps.kernel, taps.channels * x.element // 32
    values = {
        "x": x.address, "weight": pack_rows(frame, step, taps), "bias": bias_of(frame, step), "out": out.address,
        "total": frame.batch * groups, "groups": groups, "by_groups": groups, "rows": group.rows, "height": out.height,
        "width": out.width, "across": blocks_of(out.width, 16), "row_bytes": x.row_pitch * x.element,
        "group_bytes": group.bytes, "span": group.span, "down": window.stride[0] * x.row_pitch * x.element,
        "right": window.stride[1] * x.pitch * x.element,
        "filter_bytes": packing.padded_depth(taps.total, x.element) * x.element,
        "image_bytes": x.photo_pitch * x.element, "ldo": out.pitch, "activation": RELU[step.activation],
    }  # fmt: skip
    pixels = frame.batch * out.height * out.width
    made = ("ops.conv.image", "make_photo_convolution", (frame.arithmetic, out.padded, kh, steps, warps))
    launch = make_launch(
        step.node, "forward", "tensor_core", made, image.SIGNATURE, values,
        (min(frame.batch * groups, resident * frame.processors), 1, 1), (32 * warps, 1, 1), group.shared,
        x.element * (frame.batch * x.photo_pitch + pixels * out.padded), resident,
        flops=2 * pixels * out.padded * taps.total,
    )  # fmt: skip
    add_forward(case, launch)
