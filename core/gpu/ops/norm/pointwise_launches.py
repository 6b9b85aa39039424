"""Launches of 1x1 convolutions between a wide and a narrow feature map, fused with the batch norms around them."""

from __future__ import annotations

from typing import Final

import numpy as np

from core.gpu.launch import PLAIN, RELU, Target, Tensor, blocks_of, make_launch
from core.gpu.ops.conv.backward_weight import add_sum
from core.gpu.ops.conv.operands import Taps, pack_backward, pack_forward, padded_depth
from core.gpu.ops.norm import pointwise_narrow, pointwise_wide
from core.gpu.ops.norm.fusion import expands, norm_after, norm_before, projects
from core.gpu.ops.norm.launches import place_sums, saved_of
from core.gpu.ops.norm.pointwise_tiles import MAX_FILTERS, SIGNATURE, shape_to_narrow, shape_to_wide
from core.gpu.select import Case
from core.ops.window import POINT
from core.program import Step

RESIDENT: Final = {
    "expand": {32: 4, 96: 4, 144: 2, 192: 3},
    "project": {32: 6, 96: 3, 144: 1, 192: 2},
    "expand_backward": {32: 3, 96: 2, 144: 1, 192: 2},
    "project_backward": {32: 4, 96: 2, 144: 1, 192: 2},
}
"""Blocks per multiprocessor by wide channels, limited by the registers."""

WIDE: Final = (pointwise_wide.make_wide, shape_to_wide, pointwise_wide.shared_bytes)
NARROW: Final = (pointwise_narrow.make_narrow, shape_to_narrow, pointwise_narrow.shared_bytes)
"""Factory, shape of a block and bytes of shared memory."""


def expand(case: Case) -> None:
    frame, step, norm = case.frame, case.step, norm_after(case.frame, case.step)
    assert norm is not None
    x, out = frame.tensor(step.inputs[0]), frame.tensor(step.output)
    _add(case, "expand", {"source": x, "out": out}, None, (f"sums:{norm.node}", out))


def project(case: Case) -> None:
    """From many channels, read before their batch norm, to few; with the sums of the next batch norm."""
    frame, step = case.frame, case.step
    before, after = norm_before(frame, step), norm_after(frame, step)
    assert before is not None
    assert after is not None
    x, out = frame.tensor(before.inputs[0]), frame.tensor(step.output)
    _add(case, "project", {"x": x, "out": out}, before, (f"sums:{after.node}", out))


def expand_backward(case: Case) -> None:
    frame, step, norm = case.frame, case.step, norm_after(case.frame, case.step)
    assert norm is not None
    value, target = step.inputs[0], case.backward.target(step.inputs[0])
    sides = {
        "x": frame.tensor(step.output), "g": frame.tensor(norm.output, True), "source": frame.tensor(value),
        "out": frame.tensor(value, True),
    }  # fmt: skip
    _add(case, "expand_backward", sides, norm, None, target)


def project_backward(case: Case) -> None:
    """Both gradients; that of the input is masked by its activation and has the sums of its batch norm."""
    frame, step, norm = case.frame, case.step, norm_before(case.frame, case.step)
    assert norm is not None
    case.backward.claim(step.inputs[0])
    x, source, out = frame.tensor(norm.inputs[0]), frame.tensor(step.output, True), frame.tensor(norm.output, True)
    _add(case, "project_backward", {"x": x, "source": source, "out": out}, norm, (f"dsums:{norm.node}", x))


def refuse_expand(case: Case) -> str:
    suits = expands(case.frame, case.step)
    return "" if suits else "It trains 1x1 convolutions to many channels before a batch norm."


def refuse_project(case: Case) -> str:
    suits = projects(case.frame, case.step)
    return "" if suits else "It trains 1x1 convolutions to few channels between batch norms."


def _add(
    case: Case, kind: str, sides: dict[str, Tensor], norm: Step | None, sums: tuple[str, Tensor] | None,
    target: Target = PLAIN,
) -> None:  # fmt: skip
    """Add a launch, and for a gradient the sum of the blocks' filter gradients.

    `sides`: x, g, source and out, where there are such; `norm`: the batch norm of x; `sums`: name of the sums that the
    kernel computes for a batch norm, and what is summed.
    """
    frame, step, backward = case.frame, case.step, kind.endswith("backward")
    factory, shape_of, shared_bytes = WIDE if kind in ("expand", "project_backward") else NARROW
    wide, narrow = (sides[one if one in sides else "out"] for one in ("x", "source"))
    shape, pixels = shape_of(wide.padded, narrow.padded), frame.batch * wide.height * wide.width
    name, products, size = f"{step.node}.weight", 1 + backward, shape.wide * shape.narrow
    resident = 1 if backward and size == MAX_FILTERS else RESIDENT[kind][shape.wide]
    # As many blocks as run at the same time; each computes its share of the tiles.
    blocks = min(resident * frame.processors, blocks_of(pixels, shape.pixels))
    summed, indices = shape.wide if shape_of is shape_to_narrow else shape.narrow, frame.indices(name)
    weight = (
        frame.packed(f"backward:{step.node}", lambda: pack_backward(indices, POINT, frame.element)) if backward else
        frame.packed(name, lambda: pack_forward(indices, Taps((1, 1), summed), frame.element))
    )  # fmt: skip
    addresses = {name: sides[name].address if name in sides else 0 for name in ("x", "g", "source", "out")}
    pitches = {f"ld{name[0]}": sides[name].pitch if name in sides else 0 for name in addresses}
    values = {
        **addresses, **pitches, "saved": saved_of(frame, norm) if norm else 0, "accumulate": int(target.accumulate),
        "partial": frame.use(f"partial:{step.node}", 4 * size * blocks) if backward else 0,
        "sums": place_sums(frame, sums[0], blocks, sums[1]) if sums else 0, "weight": weight,
        "control": frame.block("control"), "pixels": pixels, "hw": wide.height * wide.width,
        "depth": padded_depth(summed, 2),
    }  # fmt: skip
    activation = RELU[norm.activation] if norm and "g" not in sides else -1
    frame.add(make_launch(
        step.node, "backward_input" if backward else "forward", factory,
        (shape.wide, shape.narrow, backward, activation), SIGNATURE, values, (blocks,), (shape.threads,),
        shared_bytes(shape, backward), resident=resident,
        moved=2 * pixels * (shape.narrow * (1 + ("g" in sides) + target.accumulate) + shape.wide * products),
        flops=2 * products * pixels * size,
    ))  # fmt: skip
    if backward:
        filters, _, _, depth = indices.shape
        f, d = np.arange(filters)[:, None], np.arange(depth)
        positions = f * shape.narrow + d if kind == "expand_backward" else d * shape.narrow + f
        add_sum(case.backward, step, blocks, size, lambda bias: positions)
