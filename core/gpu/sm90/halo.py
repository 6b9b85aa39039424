"""3x3 convolutions of stride 1 by `wgmma`: launches, and why one does not compute a case."""

from __future__ import annotations

from dataclasses import replace

from core.gpu.driver.tensor_map import ActivationMap
from core.gpu.frame import bias_of
from core.gpu.launch import RELU, Launch, Target, Tensor, blocks_of, make_launch
from core.gpu.ops.conv import backward_weight, products
from core.gpu.ops.conv.geometry import is_fire
from core.gpu.parts.tile import Tile
from core.gpu.select import Case
from core.gpu.sm90 import halo_resident, halo_tma, row_weight_gradient
from core.gpu.sm90.filters import pack_parts
from core.gpu.sm90.halo_tma import HaloShape
from core.gpu.sm90.pointwise import is_matrix
from core.gpu.sm90.row_weight_gradient import RowShape


def _map(x: Tensor, batch: int, rows: int, width: int, channels: int) -> ActivationMap:
    """All of `x` in TMA tiles of so many rows, pixels of a row and channels."""
    return ActivationMap(x.address, batch, x.height, x.width, x.padded, x.pitch, rows, width, channels)


def _numbers(x: Tensor, batch: int) -> dict[str, int]:
    """Pixels numbered with one column of zeros after each row and one row after each image."""
    limit = batch * (x.height + 1) * (x.width + 1)
    return {
        "limit": limit, "by_area": (x.height + 1) * (x.width + 1), "by_across": x.width + 1, "height": x.height,
        "width": x.width, "pitch": x.pitch,
    }  # fmt: skip


def resident_launch(
    layer: str, batch: int, x: Tensor, out: Tensor, weight: int, bias: int, activation: str, tile: Tile, processors: int
) -> Launch:
    """Forward, with all filters of a block in shared memory: the tile's depth are all channels."""
    numbers, groups, across = _numbers(x, batch), tile.warp_rows // 4, out.padded // tile.columns
    tiles, rows = blocks_of(numbers["limit"], tile.rows // groups), batch * x.height * x.width
    values = {
        "x": x.address, "weight": weight, "bias": bias, "out": out.address, **numbers, "tiles": tiles,
        "columns": out.padded, "room": halo_resident.room_of(tile, x.width), "ldo": out.pitch,
        "activation": RELU[activation],
    }  # fmt: skip
    down = min(blocks_of(tiles, groups), max(1, tile.blocks * processors // across))
    return make_launch(
        layer, "forward", "tensor_core", ("sm90.halo_resident", "make_resident_halo", (tile.numbers,)),
        halo_resident.SIGNATURE, values, (down, across, 1), (tile.threads, 1, 1),
        halo_resident.shared_bytes(tile, x.width), 2 * rows * (x.padded + out.padded), tile.blocks,
        flops=2 * rows * out.padded * 9 * x.padded,
    )  # fmt: skip


def fire_launch(
    layer: str, batch: int, dy: Tensor, dx: Tensor, weight: int, target: Target, shape: HaloShape
) -> Launch:
    """The input gradient of a fire; dy is that of the 3x3 half, the 1x1 half's channels are just before it."""
    assert shape.columns == dx.padded
    assert dy.padded == shape.blocks * shape.line
    beside, turns = replace(dy, address=dy.address - 2 * dy.padded), blocks_of(dy.height, shape.rows)
    pixels = batch * dy.height * dy.width
    values = {
        "map_x": _map(dy, batch, shape.rows + 2, shape.pitch, shape.line),
        "map_second": _map(beside, batch, shape.rows, shape.pitch, shape.line), "weight": weight, "turns": turns,
        "height": dy.height, "width": dy.width, "by_turns": turns, "by_pitch": shape.pitch, "out": dx.address,
        "ldo": dx.pitch, **target.values,
    }  # fmt: skip
    return make_launch(
        layer, "backward_input", "tensor_core", ("sm90.halo_tma", "make_halo_tma", shape.numbers), halo_tma.SIGNATURE,
        values, (batch * turns, 1, 1), (shape.threads, 1, 1), shape.shared,
        2 * pixels * (2 * dy.padded + dx.padded * target.passes), 1, flops=20 * pixels * dx.padded * dy.padded,
    )  # fmt: skip


def rows_launch(
    layer: str, batch: int, x: Tensor, dy: Tensor, partial: int, shape: RowShape, processors: int
) -> Launch:
    """The partial weight gradients of a 3x3 convolution, one for each block across."""
    assert shape.channels == x.padded
    assert shape.pitch > x.width
    filters, depth, pixels = dy.padded, 9 * x.padded, batch * x.height * x.width
    across, turns = filters // (64 * shape.tiles), blocks_of(x.height, shape.rows)
    total, size = batch * turns, filters * depth + filters
    each = blocks_of(total, max(1, processors // across))
    splits = blocks_of(total, each)
    values = {
        "map_x": _map(x, batch, shape.rows + 2, shape.pitch, shape.line),
        "map_dy": _map(dy, batch, shape.rows, shape.pitch, row_weight_gradient.FILTER_LINE // 2), "partial": partial,
        "total": total, "each": each, "turns": turns, "by_turns": turns, "filters": filters, "size": size,
    }  # fmt: skip
    return make_launch(
        layer, "backward_weight", "tensor_core",
        ("sm90.row_weight_gradient", "make_row_weight_gradient", shape.numbers), row_weight_gradient.SIGNATURE,
        values, (splits, across, 1), (row_weight_gradient.THREADS, 1, 1), shape.shared,
        2 * pixels * (x.padded + filters) + 4 * splits * size, 1, flops=2 * pixels * filters * depth,
    )  # fmt: skip


def write_resident(case: Case) -> None:
    """A 3x3 convolution with its filters in shared memory."""
    frame, step, (x, out), tile = case.frame, case.step, products.sides_of(case), case.configuration
    weight = frame.packed(f"parts:{step.node}.weight", lambda: pack_parts([frame.filters(step)], tile.depth))
    launch = resident_launch(
        step.node, frame.batch, x, out, weight, bias_of(frame, step), step.activation, tile, frame.processors
    )
    products.add_forward(case, launch)


def fire_sides(case: Case) -> tuple[Tensor, Tensor, int]:
    """Gradients of the 3x3 half's output and of the input, and filters of the 1x1 half."""
    one, three = case.steps
    return case.frame.image(three.output, True), case.frame.image(one.inputs[0], True), one.output.shape[-1]


def refuse_fire(case: Case) -> str:
    if not is_fire(*case.steps):
        return "It computes the expand layers of a fire."
    dy, dx, second = fire_sides(case)
    if second != dy.padded or dx.channels != dx.padded:
        return "It takes halves of one size."
    return "" if is_matrix(dy) else "Its pixels are not a matrix."


def write_fire(case: Case) -> None:
    """The input gradient of both halves of a fire."""
    frame, three, shape = case.frame, case.steps[1], case.configuration
    target = case.backward.target(case.step.inputs[0])
    filters, (dy, dx, _) = [frame.filters(step) for step in (three, case.step)], fire_sides(case)
    weight = frame.packed(f"parts backward:{three.node}", lambda: pack_parts(filters, 2 * shape.line, True))
    frame.add(fire_launch(three.node, frame.batch, dy, dx, weight, target, shape))


def refuse_rows(case: Case) -> str:
    if reason := products.refuse_three(case):
        return reason
    x, dy = case.frame.image(case.step.inputs[0]), case.frame.image(case.step.output, True)
    if x.channels != x.padded or dy.channels != dy.padded:
        return f"It takes multiples of {x.vector} channels and filters."
    return "" if is_matrix(x) and is_matrix(dy) else "Its pixels are not a matrix."


def write_rows(case: Case) -> None:
    """The partial weight gradients of a 3x3 convolution by TMA tiles of its rows."""
    frame, step, shape = case.frame, case.step, case.configuration
    reading, dy = backward_weight.read_input(case), frame.image(step.output, True)

    def make(partial: int) -> Launch:
        return rows_launch(step.node, frame.batch, reading.x, dy, partial, shape, frame.processors)

    backward_weight.add_partials(case, reading, dy, make(0).grid[0], make)
