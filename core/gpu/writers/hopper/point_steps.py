"""1x1 convolutions that Hopper computes with TMA (`point_launches`), where that is faster."""

from __future__ import annotations

from core.gpu.frame import bias_of
from core.gpu.kernels.hopper import point_boxes, point_filters, point_gradients
from core.gpu.kernels.parts.tile import Tile
from core.gpu.launch import Tensor
from core.gpu.ops.conv import backward_weight, forward, packing
from core.gpu.select import Case
from core.gpu.writers import tiles
from core.gpu.writers.hopper import point_launches
from core.gpu.writers.hopper.window_steps import partly
from core.ops.window import POINT, read_window

SLOWER = "It was not measured the fastest for this shape."


def _refuse(case: Case, x: Tensor, y: Tensor) -> str:
    if read_window(case.step.attributes) != POINT:
        return "It computes 1x1 convolutions of stride 1."
    suits = point_launches.lies_in_rows(x) and point_launches.lies_in_rows(y)
    return "" if suits else "Its pixels are not a matrix."


def _gradient_sides(case: Case) -> tuple[Tensor, Tensor]:
    return case.frame.image(case.step.inputs[0]), case.frame.image(case.step.output, True)


def _forward_tile(case: Case) -> Tile | None:
    x, out = forward.sides_of(case)
    return case.configuration or tiles.boxes_forward(case.frame.batch * out.height * out.width, out.padded, x.padded)


def refuse_forward(case: Case) -> str:
    if reason := _refuse(case, *forward.sides_of(case)):
        return reason
    tile = _forward_tile(case)
    if tile is None:
        return SLOWER
    return "" if point_boxes.shared_bytes(tile) <= case.frame.shared else "Its tile does not fit into shared memory."


def forward_points(case: Case) -> None:
    frame, step, (x, out), tile = case.frame, case.step, forward.sides_of(case), _forward_tile(case)
    assert tile is not None
    parts = point_boxes.parts_of(tile)
    weight = frame.packed(f"boxes:{step.node}.weight", lambda: point_launches.pack_points(frame.filters(step), parts))
    launch = point_launches.point(
        step.node, frame.batch, x, out, weight, bias_of(frame, step), step.activation, tile, frame.processors
    )
    forward.add_forward(case, launch)


def _gradients_tile(case: Case) -> Tile | None:
    x, dy = _gradient_sides(case)
    return case.configuration or tiles.boxes_gradients(case.frame.batch * x.height * x.width, x.padded, dy.padded)


def refuse_gradients(case: Case) -> str:
    frame, step, (x, dy) = case.frame, case.step, _gradient_sides(case)
    if not frame.wants(step.inputs[0]) or not frame.trains(step, "weight") or frame.readers(step.inputs[0]) != [step]:
        return "It computes both gradients of a convolution that alone reads its input."
    if reason := _refuse(case, x, dy):
        return reason
    if dy.padded > point_gradients.CHANNELS:
        return f"It takes up to {point_gradients.CHANNELS} filters."
    tile = _gradients_tile(case)
    if tile is None:
        return SLOWER
    fits = point_gradients.shared_bytes(tile) <= frame.shared
    return "" if fits else "Its tile does not fit into shared memory."


def gradients(case: Case) -> None:
    """One launch for the input's gradient, masked by the input's own activation, and the partial weight gradients."""
    frame, step, tile, value = case.frame, case.step, _gradients_tile(case), case.step.inputs[0]
    assert tile is not None
    mask, activation, _ = case.backward.target(value)
    (x, dy), dx = _gradient_sides(case), frame.image(value, True)
    parts, columns = point_gradients.parts_of(tile), point_launches.gradient_columns(x.padded, tile)
    weight = frame.packed(
        f"boxes backward:{step.node}",
        lambda: point_launches.pack_point_gradients(frame.filters(step), parts, columns),
    )
    size = packing.partial_size(dy.padded, packing.taps_of(x, POINT, False))
    launch, splits = point_launches.gradients(
        step.node, frame.batch, x, dy, dx, weight, activation if mask else "", size, tile, frame.processors
    )
    backward_weight.add_partials(case, backward_weight.read_input(case), dy, splits, partly(launch), lane=0)


def _filters_tile(case: Case) -> Tile | None:
    x, dy = _gradient_sides(case)
    return case.configuration or tiles.boxes_filters(case.frame.batch * x.height * x.width, dy.padded, x.padded)


def refuse_filters(case: Case) -> str:
    x, dy = _gradient_sides(case)
    if reason := _refuse(case, x, dy):
        return reason
    if x.padded > point_gradients.CHANNELS:
        return f"It takes up to {point_gradients.CHANNELS} channels."
    tile = _filters_tile(case)
    if tile is None:
        return SLOWER
    fits = point_filters.shared_bytes(tile) <= case.frame.shared
    return "" if fits else "Its tile does not fit into shared memory."


def filters(case: Case) -> None:
    """The partial weight gradients of a 1x1 convolution of few channels."""
    frame, step, tile, (x, dy) = case.frame, case.step, _filters_tile(case), _gradient_sides(case)
    assert tile is not None
    size = packing.partial_size(dy.padded, packing.taps_of(x, POINT, False))
    launch, splits = point_launches.filter_gradients(step.node, frame.batch, x, dy, size, tile, frame.processors)
    backward_weight.add_partials(case, backward_weight.read_input(case), dy, splits, partly(launch))
