"""3x3 convolutions of stride 1 by `wgmma`: launches, and why one does not compute a case."""

from __future__ import annotations

from dataclasses import replace

from core.gpu.frame import bias_of
from core.gpu.launch import RELU, Launch, Target, Tensor, blocks_of, make_launch
from core.gpu.ops.conv import launches
from core.gpu.ops.conv.backward_weight import add_with_sum, partial_of
from core.gpu.ops.conv.geometry import is_fire
from core.gpu.ops.conv.operands import operands_of, partial_size
from core.gpu.select import Case
from core.gpu.sm90 import halo_resident, halo_tma, row_weight_gradient
from core.gpu.sm90.filters import pack_vectors
from core.gpu.sm90.halo_tma import HaloShape
from core.gpu.sm90.row_weight_gradient import RowShape
from core.gpu.sm90.tma import activation_map


def write_resident(case: Case) -> None:
    """A 3x3 convolution with all filters of a block in shared memory; the depth of the tile is all channels."""
    frame, step, (x, out, _), tile = case.frame, case.step, case.sides(), case.configuration
    # Pixels are numbered with one column of zeros after each row and one row after each image.
    limit = frame.batch * (x.height + 1) * (x.width + 1)
    groups, across = tile.warp_rows // 4, out.padded // tile.columns
    tiles, rows = blocks_of(limit, tile.rows // groups), frame.batch * x.height * x.width
    values = {
        "x": x.address,
        "weight": frame.packed(f"vectors:{step.node}.weight", lambda: pack_vectors([frame.filters(step)], tile.depth)),
        "bias": bias_of(frame, step), "out": out.address, "limit": limit, "tiles": tiles, "columns": out.padded,
        "vector_pitch": halo_resident.vector_pitch_of(tile, x.width), "by_area": (x.height + 1) * (x.width + 1),
        "by_across": x.width + 1, "height": x.height, "width": x.width, "pitch": x.pitch, "ldo": out.pitch,
        "activation": RELU[step.activation],
    }  # fmt: skip
    down = min(blocks_of(tiles, groups), max(1, tile.blocks * frame.processors // across))
    launch = make_launch(
        step.node, "forward", halo_resident.make_resident_halo, (tile,),
        halo_resident.SIGNATURE, values, (down, across), (tile.threads,),
        halo_resident.shared_bytes(tile, x.width), 2 * rows * (x.padded + out.padded), tile.blocks,
        flops=2 * rows * out.padded * 9 * x.padded,
    )  # fmt: skip
    launches.add_forward(case, launch)


def fire_launch(
    layer: str, batch: int, dy: Tensor, dx: Tensor, weight: int, target: Target, shape: HaloShape
) -> Launch:
    """The input gradient of a fire; dy is that of the 3x3 half, the channels of the 1x1 half precede it."""
    second, blocks = replace(dy, address=dy.address - 2 * dy.padded), blocks_of(dy.height, shape.rows)
    pixels = batch * dy.height * dy.width
    values = {
        "map_x": activation_map(dy, batch, shape.rows + 2, shape.pitch, shape.channels),
        "map_second": activation_map(second, batch, shape.rows, shape.pitch, shape.channels), "weight": weight,
        "blocks": blocks, "height": dy.height, "width": dy.width, "by_blocks": blocks, "by_pitch": shape.pitch,
        "out": dx.address, "ldo": dx.pitch, **target.values,
    }  # fmt: skip
    return make_launch(
        layer, "backward_input", halo_tma.make_halo_tma, shape, halo_tma.SIGNATURE, values,
        (batch * blocks,), (shape.threads,), shape.shared,
        2 * pixels * (2 * dy.padded + dx.padded * target.passes), 1, flops=20 * pixels * dx.padded * dy.padded,
    )  # fmt: skip


def rows_launch(
    layer: str, batch: int, x: Tensor, dy: Tensor, partial: int, shape: RowShape, processors: int
) -> Launch:
    """The partial weight gradients of a 3x3 convolution, one for each block of the grid."""
    filters, depth, pixels = dy.padded, 9 * x.padded, batch * x.height * x.width
    across, image_blocks = filters // 64, blocks_of(x.height, shape.rows)
    total, size = batch * image_blocks, filters * depth + filters
    per_block = blocks_of(total, max(1, processors // across))
    splits = blocks_of(total, per_block)
    values = {
        "map_x": activation_map(x, batch, shape.rows + 2, shape.pitch, shape.tile_channels),
        "map_dy": activation_map(dy, batch, shape.rows, shape.pitch, row_weight_gradient.FILTER_ROW // 2),
        "partial": partial, "total": total, "per_block": per_block, "image_blocks": image_blocks,
        "by_image_blocks": image_blocks, "filters": filters, "size": size,
    }  # fmt: skip
    return make_launch(
        layer, "backward_weight", row_weight_gradient.make_row_weight_gradient, shape,
        row_weight_gradient.SIGNATURE, values, (splits, across), (row_weight_gradient.THREADS,), shape.shared,
        2 * pixels * (x.padded + filters) + 4 * splits * size, 1, flops=2 * pixels * filters * depth,
        stream=1,
    )  # fmt: skip


def fire_sides(case: Case) -> tuple[Tensor, Tensor]:
    """Gradients of the 3x3 half's output and of the input."""
    return case.frame.tensor(case.steps[1].output, True), case.frame.tensor(case.step.inputs[0], True)


def refuse_fire(case: Case) -> str:
    if not is_fire(*case.steps):
        return "It computes the expand layers of a fire."
    (dy, dx), filters = fire_sides(case), case.step.output.shape[-1]
    return "It takes halves of equal size." if filters != dy.padded or dx.channels != dx.padded else ""


def write_fire(case: Case) -> None:
    frame, three, shape = case.frame, case.steps[1], case.configuration
    target = case.backward.target(case.step.inputs[0])
    filters, (dy, dx) = [frame.filters(step) for step in (three, case.step)], fire_sides(case)
    weight = frame.packed(f"vectors backward:{three.node}", lambda: pack_vectors(filters, 2 * shape.channels, True))
    frame.add(fire_launch(three.node, frame.batch, dy, dx, weight, target, shape))


def refuse_rows(case: Case) -> str:
    if reason := launches.refuse_three(case):
        return reason
    whole = all(side.channels == side.padded for side in case.gradient_sides())
    return "" if whole else f"It takes multiples of {case.frame.vector} channels and filters."


def write_rows(case: Case) -> None:
    frame, step, shape = case.frame, case.step, case.configuration
    of, dy = operands_of(frame, step), frame.tensor(step.output, True)
    launch = rows_launch(step.node, frame.batch, of.x, dy, partial_of(case), shape, frame.processors)
    add_with_sum(case, of, launch.grid[0], partial_size(dy.padded, of.taps), launch)
