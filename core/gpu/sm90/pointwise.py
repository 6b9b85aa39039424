"""1x1 convolutions by TMA and `wgmma`: launches, and why one does not compute a case."""

from __future__ import annotations

from core.gpu.driver.tensor_map import TensorMap
from core.gpu.frame import bias_of
from core.gpu.launch import RELU, Launch, Tensor, blocks_of, make_launch
from core.gpu.ops.conv import launches
from core.gpu.ops.conv.backward_weight import add_with_sum, partial_of
from core.gpu.ops.conv.operands import operands_of, partial_size
from core.gpu.parts.tile import Tile
from core.gpu.select import Case
from core.gpu.sm90 import pointwise_forward, pointwise_gradients
from core.gpu.sm90.filters import pack_vectors
from core.gpu.sm90.pointwise_gradients import CHANNELS
from core.gpu.sm90.tma import matrix_map
from core.gpu.sm90.wgmma import TILE, row_bytes
from core.ops.window import POINT, read_window


def _map(x: Tensor, pixels: int, channels: int) -> TensorMap:
    """Tensor map of tiles that hold so many channels, or 64 of them each."""
    return matrix_map(x.address, pixels, x.padded, x.pitch, TILE, row_bytes(channels) // 2)


def forward_launch(
    layer: str, batch: int, x: Tensor, out: Tensor, weight: int, bias: int, activation: str, tile: Tile, processors: int
) -> Launch:
    """``out = activation(x W + bias)``; the depth of the tile is all channels."""
    pixels, across = batch * out.height * out.width, out.padded // tile.columns
    tiles = blocks_of(pixels, TILE)
    values = {
        "map_x": _map(x, pixels, x.padded), "map_out": _map(out, pixels, tile.columns), "weight": weight, "bias": bias,
        "tiles": tiles, "columns": out.padded,
    }  # fmt: skip
    down = min(blocks_of(tiles, tile.warp_rows // 4), max(1, tile.blocks * processors // across))
    return make_launch(
        layer, "forward", pointwise_forward.make_pointwise_convolution,
        (tile, RELU[activation]), pointwise_forward.SIGNATURE, values, (down, across),
        (pointwise_forward.threads_of(tile),), pointwise_forward.shared_bytes(tile),
        2 * pixels * (x.padded + out.padded), tile.blocks, flops=2 * pixels * out.padded * x.padded,
    )  # fmt: skip


def gradients_launch(
    layer: str, batch: int, x: Tensor, dy: Tensor, dx: Tensor, weight: int, partial: int, masking: str, tile: Tile,
    processors: int,
) -> Launch:  # fmt: skip
    """dx, and partial weight gradients, one for each block; x is also the mask of `masking`."""
    pixels, across, size = batch * x.height * x.width, blocks_of(x.padded, tile.columns), dy.padded * (x.padded + 1)
    tiles = blocks_of(pixels, TILE)
    splits = min(tiles, max(1, tile.blocks * processors // across))
    values = {
        "map_x": _map(x, pixels, CHANNELS), "map_dy": _map(dy, pixels, dy.padded), "partial": partial,
        "map_dx": _map(dx, pixels, CHANNELS), "weight": weight, "tiles": tiles, "columns": across * tile.columns,
        "channels": x.padded, "size": size,
    }  # fmt: skip
    return make_launch(
        layer, "backward_input", pointwise_gradients.make_pointwise_gradients,
        (tile, RELU[masking]), pointwise_gradients.SIGNATURE, values, (splits, across),
        (pointwise_gradients.threads_of(tile),), pointwise_gradients.shared_bytes(tile),
        2 * pixels * (2 * x.padded + dy.padded) + 4 * splits * size, tile.blocks,
        flops=4 * pixels * x.padded * dy.padded,
    )  # fmt: skip


def refuse_forward(case: Case) -> str:
    if read_window(case.step.attributes) != POINT:
        return "It computes 1x1 convolutions of stride 1."
    return launches.refuse_groups(case)


def write_forward(case: Case) -> None:
    frame, step, (x, out, _), tile = case.frame, case.step, case.sides(), case.configuration
    size = 16 * pointwise_forward.vectors_of(tile)
    weight = frame.packed(f"tma:{step.node}.weight", lambda: pack_vectors([frame.filters(step)], size))
    launch = forward_launch(
        step.node, frame.batch, x, out, weight, bias_of(frame, step), step.activation, tile, frame.processors
    )
    launches.add_forward(case, launch)


def refuse_gradients(case: Case) -> str:
    frame, step, value = case.frame, case.step, case.step.inputs[0]
    if not frame.wants(value) or not frame.trains(step, "weight") or frame.only_reader(value) is not step:
        return "It computes both gradients of a convolution that is the only reader of its input."
    if reason := refuse_forward(case):
        return reason
    return f"It takes up to {CHANNELS} filters." if frame.tensor(step.output).padded > CHANNELS else ""


def write_gradients(case: Case) -> None:
    """One launch for the input's gradient, masked by the activation of the input, and the partial weight gradients."""
    frame, step, tile, value = case.frame, case.step, case.configuration, case.step.inputs[0]
    mask, activation, _ = case.backward.target(value)
    (x, dy), dx = case.gradient_sides(), frame.tensor(value, True)
    vectors, columns = pointwise_gradients.vectors_of(tile), blocks_of(x.padded, tile.columns) * tile.columns
    weight = frame.packed(
        f"tma backward:{step.node}", lambda: pack_vectors([frame.filters(step)], 16 * vectors, True, columns)
    )
    of, masking = operands_of(frame, step), activation if mask else ""
    launch = gradients_launch(
        step.node, frame.batch, x, dy, dx, weight, partial_of(case), masking, tile, frame.processors
    )
    add_with_sum(case, of, launch.grid[0], partial_size(dy.padded, of.taps), launch)
