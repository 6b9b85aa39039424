"""Launches of 1x1 convolutions between a wide and a narrow feature map, fused with the batch norms beside them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from core.gpu.frame import Frame
from core.gpu.launch import RELU, KernelSignature, Launch, Tensor, blocks_of, make_launch
from core.gpu.ops.conv import packing
from core.gpu.ops.conv.partial_sums import add_sum
from core.gpu.ops.norm import pointwise_narrow, pointwise_wide
from core.gpu.ops.norm.launches import place_sums, saved_of
from core.gpu.ops.norm.pairs import expands, norm_before, norm_behind, projects
from core.gpu.ops.norm.pointwise_tiles import MAX_FILTERS, Shape, shape_to_narrow, shape_to_wide
from core.gpu.select import Case
from core.ops.contract import Array
from core.program import Step

NARROW: Final = "ops.norm.pointwise_narrow"
WIDE: Final = "ops.norm.pointwise_wide"

RESIDENT: Final = {
    "expand": {32: 4, 96: 4, 144: 2, 192: 3},
    "project": {32: 6, 96: 3, 144: 1, 192: 2},
    "expand_backward": {32: 3, 96: 2, 144: 1, 192: 2},
    "project_backward": {32: 4, 96: 2, 144: 1, 192: 2},
}
"""Blocks a multiprocessor by wide channels, as many as the registers allow."""


def expand(case: Case) -> None:
    """From few channels to many, with the sums of the next batch norm."""
    frame, step = case.frame, case.step
    x, out, norm = frame.image(step.inputs[0]), frame.image(step.output), norm_behind(frame, step)
    assert norm is not None
    shape = shape_to_wide(out.padded, x.padded)
    blocks = _blocks(frame, x, shape, "expand")
    values = {
        "source": x.address, "weight": _packed(frame, step, x, False), "out": out.address, "x": 0, "saved": 0,
        "partial": 0, "sums": place_sums(frame, f"sums:{norm.node}", blocks, out), **_common(frame, x), "lds": x.pitch,
        "ldo": out.pitch, "ldx": 0,
    }  # fmt: skip
    shared = pointwise_wide.shared_bytes(out.padded, x.padded, False)
    made = (WIDE, "make_wide", (out.padded, x.padded, False, -1))
    frame.add(_launch(case, "expand", made, pointwise_wide.WIDE, shape, blocks, values, shared, x, out, 1, 1))


def project(case: Case) -> None:
    """From many channels, as they were before their batch norm, to few; with the sums of the next batch norm."""
    frame, step = case.frame, case.step
    before, behind = norm_before(frame, step), norm_behind(frame, step)
    assert before is not None
    assert behind is not None
    x, out = frame.image(before.inputs[0]), frame.image(step.output)
    shape = shape_to_narrow(x.padded, out.padded)
    blocks = _blocks(frame, x, shape, "project")
    values = {
        "x": x.address, "saved": saved_of(frame, before), "weight": _packed(frame, step, x, False), "out": out.address,
        "partial": place_sums(frame, f"sums:{behind.node}", blocks, out), **_common(frame, x), "ldx": x.pitch,
        "ldo": out.pitch,
    }  # fmt: skip
    shared = pointwise_narrow.forward_shared(x.padded, out.padded)
    made = (NARROW, "make_projection", (x.padded, out.padded, RELU[before.activation]))
    frame.add(_launch(case, "project", made, pointwise_narrow.FORWARD, shape, blocks, values, shared, out, x, 1, 1))


def expand_backward(case: Case) -> None:
    """Both gradients from that of the batch norm behind."""
    frame, step, norm = case.frame, case.step, norm_behind(case.frame, case.step)
    assert norm is not None
    _, _, add = case.backward.target(step.inputs[0])
    x, source = frame.image(step.output), frame.image(step.inputs[0])
    g, out = frame.image(norm.output, True), frame.image(step.inputs[0], True)
    shape = shape_to_narrow(x.padded, source.padded)
    blocks, size = _blocks(frame, x, shape, "expand_backward"), x.padded * source.padded
    values = {
        "x": x.address, "g": g.address, "saved": saved_of(frame, norm), "weight": _packed(frame, step, source, True),
        "source": source.address, "out": out.address, "partial": frame.use(f"partial:{step.node}", 4 * size * blocks),
        **_common(frame, x), "ldx": x.pitch, "ldg": g.pitch, "lds": source.pitch, "ldo": out.pitch,
        "accumulate": int(add),
    }  # fmt: skip
    shared = pointwise_narrow.gradient_shared(x.padded, source.padded)
    made = (NARROW, "make_expansion_gradient", (x.padded, source.padded))
    signature = pointwise_narrow.GRADIENT
    frame.add(
        _launch(case, "expand_backward", made, signature, shape, blocks, values, shared, source, x, 2 + add, 2)
    )
    filters, _, _, depth = frame.layout.offsets[f"{step.node}.weight"][1]
    places = np.arange(filters)[:, None] * source.padded + np.arange(depth)
    add_sum(case.backward, step, blocks, size, lambda bias: places)


def project_backward(case: Case) -> None:
    """Both gradients, that of the input masked by its activation and with the sums of its batch norm."""
    frame, step, norm = case.frame, case.step, norm_before(case.frame, case.step)
    assert norm is not None
    case.backward.claim(step.inputs[0])
    x, source, out = frame.image(norm.inputs[0]), frame.image(step.output, True), frame.image(norm.output, True)
    shape = shape_to_wide(x.padded, source.padded)
    blocks, size = _blocks(frame, x, shape, "project_backward"), x.padded * source.padded
    values = {
        "source": source.address, "weight": _packed(frame, step, source, True), "out": out.address, "x": x.address,
        "saved": saved_of(frame, norm), "partial": frame.use(f"partial:{step.node}", 4 * size * blocks),
        "sums": place_sums(frame, f"dsums:{norm.node}", blocks, x), **_common(frame, x, source), "lds": source.pitch,
        "ldo": out.pitch, "ldx": x.pitch,
    }  # fmt: skip
    shared = pointwise_wide.shared_bytes(x.padded, source.padded, True)
    made = (WIDE, "make_wide", (x.padded, source.padded, True, RELU[norm.activation]))
    signature = pointwise_wide.WIDE
    frame.add(_launch(case, "project_backward", made, signature, shape, blocks, values, shared, source, x, 1, 2))
    filters, _, _, depth = frame.layout.offsets[f"{step.node}.weight"][1]
    places = np.arange(depth)[None, :] * source.padded + np.arange(filters)[:, None]
    add_sum(case.backward, step, blocks, size, lambda bias: places)


def refuse_expand(case: Case) -> str:
    suits = expands(case.frame, case.step)
    return "" if suits else "It trains 1x1 convolutions to many channels before a batch norm."


def refuse_project(case: Case) -> str:
    suits = projects(case.frame, case.step)
    return "" if suits else "It trains 1x1 convolutions to few channels between batch norms."


def _common(frame: Frame, x: Tensor, depth: Tensor | None = None) -> dict[str, int]:
    """Arguments of all four; `depth`: the tensor whose channels the product adds, where it is not x."""
    pixels, hw = _pixels(frame, x)
    depth_of = packing.padded_depth((depth or x).padded, 2)
    return {"control": frame.addresses.control, "pixels": pixels, "hw": hw, "depth": depth_of}


def _pixels(frame: Frame, x: Tensor) -> tuple[int, int]:
    """Pixels in all, and of a photo."""
    return frame.batch * x.height * x.width, x.height * x.width


def _blocks(frame: Frame, x: Tensor, shape: Shape, kind: str) -> int:
    """As many as run at once; each computes its share of the tiles."""
    return min(_resident(kind, shape) * frame.processors, blocks_of(_pixels(frame, x)[0], shape.pixels))


def _resident(kind: str, shape: Shape) -> int:
    """Blocks a multiprocessor; those with the most filter gradients are alone."""
    alone = kind.endswith("backward") and shape.wide * shape.narrow == MAX_FILTERS
    return 1 if alone else RESIDENT[kind][shape.wide]


def _packed(frame: Frame, step: Step, read: Tensor, backward: bool) -> int:
    """Address of the packed filters; forward their rows are the output's channels, backward the input's."""
    indices = frame.indices(f"{step.node}.weight")

    def make() -> Array:
        if backward:
            return packing.pack_backward(indices, frame.element)
        return packing.pack_forward(indices, packing.Taps((1, 1), read.padded), frame.element)

    return frame.packed(f"backward:{step.node}" if backward else f"{step.node}.weight", make)


def _launch(
    case: Case, kind: str, made: tuple[str, str, tuple[Any, ...]], signature: KernelSignature, shape: Shape,
    blocks: int, values: dict[str, int], shared: int, narrow: Tensor, wide: Tensor, narrow_times: int, products: int,
) -> Launch:  # fmt: skip
    """One of the four; the wide side is touched `products` times, the narrow one `narrow_times`."""
    pixels = _pixels(case.frame, wide)[0]
    return make_launch(
        case.step.node, "backward_input" if kind.endswith("backward") else "forward", "tensor_core", made, signature,
        values, (blocks, 1, 1), (shape.threads, 1, 1), shared, resident=_resident(kind, shape),
        moved=2 * pixels * (narrow.padded * narrow_times + wide.padded * products),
        flops=2 * products * pixels * narrow.padded * wide.padded,
    )  # fmt: skip
