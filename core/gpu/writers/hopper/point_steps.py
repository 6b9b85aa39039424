"""1x1 convolutions that Hopper computes with its copy engine (`point_launches`), where that is faster."""

from __future__ import annotations

from core.gpu.frame import Frame
from core.gpu.kernels.hopper import point_boxes, point_filters, point_gradients
from core.gpu.kernels.parts.tile import Tile
from core.gpu.launch import Launch, Tensor
from core.gpu.writers import convolution, packing, tiles
from core.gpu.writers.hopper import point_launches
from core.gpu.writers.plain_launches import bias_of
from core.ops.window import POINT, read_window
from core.program import Step


def forward(frame: Frame, step: Step, x: Tensor, out: Tensor) -> Launch | None:
    """The launch of a 1x1 convolution; None where its pixels are no matrix or another kernel is faster."""
    if not _suits(frame, step, x, out):
        return None
    tile = tiles.boxes_forward(frame.batch * out.height * out.width, out.padded, x.padded)
    if tile is None:
        return None
    parts = point_boxes.parts_of(tile)
    weight = frame.packed(f"boxes:{step.node}.weight", lambda: point_launches.pack_points(frame.filters(step), parts))
    launch = point_launches.point(
        step.node, frame.batch, x, out, weight, bias_of(frame, step), step.activation, tile, frame.processors
    )
    return launch if launch.shared <= frame.shared else None


def _suits(frame: Frame, step: Step, x: Tensor, out: Tensor) -> bool:
    if not frame.hopper or frame.arithmetic != "bf16" or read_window(step.attributes) != POINT:
        return False
    return point_launches.lies_in_rows(x) and point_launches.lies_in_rows(out)


def gradients_tile(frame: Frame, step: Step) -> Tile | None:
    """The tile for both gradients of a 1x1 convolution in one pass; None where that does not suit or is slower.

    Nobody else may read the convolution's input: its gradient is written, not added to.
    """
    if step.op != "conv2d" or frame.readers(step.inputs[0]) != [step] or not frame.trains(step, "weight"):
        return None
    x, dy = frame.image(step.inputs[0]), frame.image(step.output, True)
    if not _suits(frame, step, x, dy) or dy.padded > point_gradients.CHANNELS:
        return None
    tile = tiles.boxes_gradients(frame.batch * x.height * x.width, x.padded, dy.padded)
    return tile if tile is not None and point_gradients.shared_bytes(tile) <= frame.shared else None


def gradients(frame: Frame, step: Step, masking: str, tile: Tile) -> tuple[Launch, int]:
    """The launch of the input's gradient, masked by the input's own activation, and of the partial weight gradients."""
    value = step.inputs[0]
    x, dy, dx = frame.image(value), frame.image(step.output, True), frame.image(value, True)
    parts, columns = point_gradients.parts_of(tile), point_launches.gradient_columns(x.padded, tile)
    weight = frame.packed(
        f"boxes backward:{step.node}",
        lambda: point_launches.pack_point_gradients(frame.filters(step), parts, columns),
    )
    size = convolution.partial_size(dy.padded, packing.taps_of(x, POINT, False))
    return point_launches.gradients(step.node, frame.batch, x, dy, dx, weight, masking, size, tile, frame.processors)


def filter_gradients(frame: Frame, step: Step, x: Tensor, dy: Tensor) -> tuple[Launch, int] | None:
    """The partial weight gradients of a 1x1 convolution of few channels; None where another kernel is faster."""
    if step.op != "conv2d" or not _suits(frame, step, x, dy) or x.padded > point_gradients.CHANNELS:
        return None
    tile = tiles.boxes_filters(frame.batch * x.height * x.width, dy.padded, x.padded)
    if tile is None or point_filters.shared_bytes(tile) > frame.shared:
        return None
    size = convolution.partial_size(dy.padded, packing.taps_of(x, POINT, False))
    return point_launches.filter_gradients(step.node, frame.batch, x, dy, size, tile, frame.processors)
