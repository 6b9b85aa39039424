"""3x3 and photo convolutions that Hopper runs with kernels of its own, where those suit and are faster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from core.gpu.frame import Frame, bias_of
from core.gpu.kernels.hopper import halo_resident, halo_warpgroup
from core.gpu.kernels.hopper.halo_boxes import HaloBoxes
from core.gpu.kernels.hopper.row_gradient_boxes import RowBoxes
from core.gpu.kernels.parts.tile import Tile
from core.gpu.launch import Launch, Tensor
from core.gpu.ops.conv import backward_input, backward_weight, forward, packing
from core.gpu.ops.conv.geometry import window_of
from core.gpu.ops.pool.launches import max_backward, places_of
from core.gpu.select import INPUT, Case
from core.gpu.writers import tiles
from core.gpu.writers.hopper import point_launches, row_launches, window_launches
from core.graph import PHOTO
from core.ops.window import read_window
from core.program import Step


def pools_photo(frame: Frame, step: Step, following: Step | None) -> bool:
    """Whether a convolution of the photo and the max pool after it are one kernel, and its gradients one more."""
    if not frame.hopper or frame.arithmetic != "bf16" or following is None or step.op != "conv2d":
        return False
    if step.inputs[0].buffer != PHOTO or step.attributes["groups"] != 1 or step.activation not in ("relu", "relu6"):
        return False
    if following.op != "max_pool" or following.inputs != (step.output,):
        return False
    pool = read_window(following.attributes)
    alone = frame.readers(step.output) == [following] and frame.program.buffers[step.output.buffer] == step.output.shape
    alone = alone and frame.program.buffers[following.output.buffer] == following.output.shape
    if (pool.kernel, pool.stride, pool.padding[:2]) != ((3, 3), (2, 2), (0, 0)) or not alone:
        return False
    return window_launches.suits_photo(
        frame.image(step.inputs[0]), window_of(frame, step), step.output.shape, frame.program.training, frame.shared
    )


def _between(frame: Frame, step: Step) -> Tensor:
    """The convolution's output, which is in memory only if somebody looks at it."""
    if frame.whole or step.output.buffer in frame.kept:
        return frame.image(step.output)
    height, width, channels = step.output.shape
    return Tensor(0, height, width, channels, channels, frame.element)


def refuse_pooled(case: Case) -> str:
    suits = pools_photo(case.frame, *case.steps)
    return "" if suits else "It computes a convolution of the image and the 3x3 max pool behind it, on Hopper."


def refuse_pooled_gradient(case: Case) -> str:
    suits = case.frame.wants(case.steps[1].inputs[0]) and pools_photo(case.frame, *case.steps)
    return "" if suits else "It computes gradients of a convolution of the image before a 3x3 max pool, on Hopper."


def forward_pooled(case: Case) -> None:
    frame, (step, following) = case.frame, case.steps
    x, out, window = frame.image(step.inputs[0]), frame.image(following.output), window_of(frame, step)
    taps = packing.taps_of(x, window, True)
    weight = frame.packed(f"parts:{step.node}.weight", lambda: window_launches.pack_photo(frame.filters(step), taps))
    places = places_of(frame, following, out) if frame.program.training else None
    frame.add(
        window_launches.photo_pool(
            step.node,
            frame.batch,
            x,
            _between(frame, step),
            out,
            places,
            window,
            taps,
            weight,
            bias_of(frame, step),
            step.activation,
            frame.processors,
        )
    )


def gradient_pooled(case: Case) -> None:
    """Weight gradients of the image's convolution from what is behind its pool; in between only to be looked at."""
    frame, (step, pool) = case.frame, case.steps
    if frame.whole:
        max_backward(Case(frame, (pool,), INPUT, case.walk))
    else:
        case.backward.claim(pool.inputs[0])
    reading, dy = backward_weight.read_input(case), frame.image(pool.output, True)
    launch, splits = window_launches.photo_gradient(
        step.node, frame.batch, reading.x, step.output.shape, dy, places_of(frame, pool, dy), reading.window,
        reading.taps, frame.processors,
    )  # fmt: skip
    backward_weight.add_partials(case, reading, dy, splits, partly(launch))


def partly(launch: Launch) -> Callable[[int], Launch]:
    """Gives the launch for the address of the partial results, its third argument."""
    return lambda at: replace(launch, values=(*launch.values[:2], at, *launch.values[3:]))


def _resident_tile(case: Case) -> Tile | None:
    x, out = forward.sides_of(case)
    if x.channels != x.padded or out.channels % 32:
        return None
    limit = case.frame.batch * (x.height + 1) * (x.width + 1)
    return case.configuration or tiles.resident_halo(limit, out.channels, x.channels)


def refuse_resident(case: Case) -> str:
    if reason := forward.refuse_three(case):
        return reason
    tile, (x, _) = _resident_tile(case), forward.sides_of(case)
    if tile is None:
        return "No measured tile divides its channels."
    fits = halo_resident.shared_bytes(tile, x.width) <= case.frame.shared
    return "" if fits else "The filters do not fit into shared memory."


def resident(case: Case) -> None:
    """A 3x3 convolution with its filters in shared memory."""
    frame, step, (x, out), tile = case.frame, case.step, forward.sides_of(case), _resident_tile(case)
    assert tile is not None
    weight = frame.packed(
        f"parts:{step.node}.weight", lambda: window_launches.pack_parts([frame.filters(step)], tile.depth, False)
    )
    forward.add_forward(
        case,
        window_launches.resident_halo(
            step.node, frame.batch, x, out, weight, bias_of(frame, step), step.activation, tile, frame.processors
        ),
    )


def _refuse_fire(case: Case) -> str:
    if reason := backward_input.refuse_fire(case):
        return reason
    _, dy, dx, second = backward_input.fire_sides(case)
    return "" if second == dy.padded and dx.channels == dx.padded else "It takes halves of one size."


def _fire_tile(case: Case) -> Tile | None:
    _, dy, dx, _ = backward_input.fire_sides(case)
    return case.configuration or tiles.parts_backward_input(
        case.frame.batch * dy.height * dy.width, dx.padded, dy.padded
    )


def refuse_fire_wgmma(case: Case) -> str:
    if reason := _refuse_fire(case):
        return reason
    tile, (_, dy, _, _) = _fire_tile(case), backward_input.fire_sides(case)
    if tile is None:
        return "It was not measured the fastest for this shape."
    shared = halo_warpgroup.shared_bytes(tile, dy.width, dy.padded * 2 // tile.depth, True)
    return "" if shared <= case.frame.shared else "The image's rows do not fit into shared memory."


def fire_wgmma(case: Case) -> None:
    """The input gradient of both halves of a fire."""
    frame, three, tile = case.frame, case.steps[1], _fire_tile(case)
    assert tile is not None
    mask, activation, add = case.backward.target(three.inputs[0])
    filters, dy, dx, second = backward_input.fire_sides(case)
    weight = frame.packed(f"parts backward:{three.node}", lambda: window_launches.pack_parts(filters, tile.depth, True))
    frame.add(
        window_launches.halo(
            three.node, "backward_input", frame.batch, dy, dx, weight, 0, "", mask, activation, add, second, tile
        )
    )


def _fire_boxes(case: Case) -> HaloBoxes | None:
    _, dy, dx, _ = backward_input.fire_sides(case)
    return case.configuration or tiles.halo_boxes(case.frame.batch, dy.height, dy.width, dx.padded, dy.padded)


def refuse_fire_tma(case: Case) -> str:
    if reason := _refuse_fire(case):
        return reason
    shape = _fire_boxes(case)
    if shape is None:
        return "It was not measured the fastest for this shape."
    if not point_launches.lies_in_rows(backward_input.fire_sides(case)[1]):
        return "Its pixels are not a matrix."
    return "" if shape.shared <= case.frame.shared else "The image's rows do not fit into shared memory."


def fire_tma(case: Case) -> None:
    """The same by TMA tiles."""
    frame, three, shape = case.frame, case.steps[1], _fire_boxes(case)
    assert shape is not None
    mask, activation, add = case.backward.target(three.inputs[0])
    filters, dy, dx, _ = backward_input.fire_sides(case)
    weight = frame.packed(
        f"parts backward:{three.node}", lambda: window_launches.pack_parts(filters, 2 * shape.line, True)
    )
    frame.add(row_launches.halo_boxes(three.node, frame.batch, dy, dx, weight, mask, activation, add, dy.padded, shape))


def _row_shape(case: Case) -> RowBoxes | None:
    x, dy = case.frame.image(case.step.inputs[0]), case.frame.image(case.step.output, True)
    return case.configuration or tiles.row_boxes(case.frame.batch, dy.height, dy.width, dy.padded, x.padded)


def refuse_rows(case: Case) -> str:
    if reason := forward.refuse_three(case):
        return reason
    x, dy = case.frame.image(case.step.inputs[0]), case.frame.image(case.step.output, True)
    if x.channels != x.padded or dy.channels != dy.padded:
        return f"It takes multiples of {x.vector} channels and filters."
    if not point_launches.lies_in_rows(x) or not point_launches.lies_in_rows(dy):
        return "Its pixels are not a matrix."
    shape = _row_shape(case)
    if shape is None:
        return "It was not measured the fastest for this shape."
    return "" if shape.shared <= case.frame.shared else "The image's rows do not fit into shared memory."


def rows(case: Case) -> None:
    """The partial weight gradients of a 3x3 convolution by TMA tiles of its rows."""
    frame, step, shape = case.frame, case.step, _row_shape(case)
    assert shape is not None
    reading, dy = backward_weight.read_input(case), frame.image(step.output, True)
    launch, splits = row_launches.row_boxes(step.node, frame.batch, reading.x, dy, shape, frame.processors)
    backward_weight.add_partials(case, reading, dy, splits, partly(launch))
