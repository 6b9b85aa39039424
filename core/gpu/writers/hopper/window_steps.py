"""3x3 and photo convolutions that Hopper runs with kernels of its own, where those suit and are faster."""

from __future__ import annotations

from collections.abc import Sequence

from core.gpu.frame import Frame
from core.gpu.launch import Launch, Tensor
from core.gpu.ops.pool.launches import places_of
from core.gpu.writers import convolution, packing, tiles
from core.gpu.writers.hopper import point_launches, row_launches, window_launches
from core.gpu.writers.plain_launches import bias_of
from core.graph import PHOTO
from core.ops.contract import Array
from core.ops.window import Window, read_window
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
        frame.image(step.inputs[0]), _window(frame, step), step.output.shape, frame.program.training, frame.shared
    )


def _window(frame: Frame, step: Step) -> Window:
    window = read_window(step.attributes)
    top, left = window.padding[0] - frame.border[0], window.padding[1] - frame.border[1]
    return Window(window.kernel, window.stride, (top, left, 0, 0))


def _between(frame: Frame, step: Step) -> Tensor:
    """The convolution's output, which is in memory only if somebody looks at it."""
    if frame.whole or step.output.buffer in frame.kept:
        return frame.image(step.output)
    height, width, channels = step.output.shape
    return Tensor(0, height, width, channels, channels, frame.element)


def forward_pooled(frame: Frame, step: Step, following: Step) -> Launch:
    """The launch of both."""
    x, out, window = frame.image(step.inputs[0]), frame.image(following.output), _window(frame, step)
    taps = packing.taps_of(x, window, True)
    weight = frame.packed(
        f"parts:{step.node}.weight", lambda: window_launches.pack_photo(frame.filters(step), taps)
    )
    places = places_of(frame, following, out) if frame.program.training else None
    return window_launches.photo_pool(
        step.node, frame.batch, x, _between(frame, step), out, places, window, taps, weight, bias_of(frame, step),
        step.activation, frame.processors,
    )  # fmt: skip


def gradient_pooled(frame: Frame, step: Step, following: Step) -> tuple[Launch, int]:
    """The launch of the partial weight gradients from the gradient behind the pool, and how many there are."""
    x, window, dy = frame.image(step.inputs[0]), _window(frame, step), frame.image(following.output, True)
    return window_launches.photo_gradient(
        step.node, frame.batch, x, step.output.shape, dy, places_of(frame, following, dy), window,
        packing.taps_of(x, window, True), frame.processors,
    )  # fmt: skip


def halo_forward(frame: Frame, step: Step, x: Tensor, out: Tensor) -> Launch | None:
    """A 3x3 convolution with its filters in shared memory; None where they or their channels do not suit it."""
    if not frame.hopper or frame.arithmetic != "bf16" or x.channels != x.padded or out.channels % 32:
        return None
    tile = tiles.resident_halo(frame.batch * (x.height + 1) * (x.width + 1), out.channels, x.channels)
    if tile is None:
        return None
    name = f"{step.node}.weight"
    weight = frame.packed(
        f"parts:{name}", lambda: window_launches.pack_parts([frame.filters(step)], tile.depth, False)
    )
    launch = window_launches.resident_halo(
        step.node, frame.batch, x, out, weight, bias_of(frame, step), step.activation, tile, frame.processors
    )
    return launch if launch.shared <= frame.shared else None


def fire_backward(
    frame: Frame, step: Step, filters: Sequence[Array], dy: Tensor, dx: Tensor, mask: Tensor | None, masking: str,
    accumulate: bool, second: int,
) -> Launch | None:  # fmt: skip
    """The input gradient of both halves of a fire; None where another kernel does it sooner."""
    if not frame.hopper or frame.arithmetic != "bf16" or second != dy.padded or dx.channels != dx.padded:
        return None
    boxes = _fire_by_boxes(frame, step, filters, dy, dx, mask, masking, accumulate)
    if boxes is not None:
        return boxes
    tile = tiles.parts_backward_input(frame.batch * dy.height * dy.width, dx.padded, dy.padded)
    if tile is None:
        return None
    weight = frame.packed(
        f"parts backward:{step.node}", lambda: window_launches.pack_parts(filters, tile.depth, True)
    )
    launch = window_launches.halo(
        step.node, "backward_input", frame.batch, dy, dx, weight, 0, "", mask, masking, accumulate, second, tile
    )
    return launch if launch.shared <= frame.shared else None


def _fire_by_boxes(
    frame: Frame, step: Step, filters: Sequence[Array], dy: Tensor, dx: Tensor, mask: Tensor | None, masking: str,
    accumulate: bool,
) -> Launch | None:  # fmt: skip
    shape = tiles.halo_boxes(frame.batch, dy.height, dy.width, dx.padded, dy.padded)
    if shape is None or not point_launches.lies_in_rows(dy) or shape.shared > frame.shared:
        return None
    weight = frame.packed(
        f"parts backward:{step.node}", lambda: window_launches.pack_parts(filters, 2 * shape.line, True)
    )
    return row_launches.halo_boxes(
        step.node, frame.batch, dy, dx, weight, mask, masking, accumulate, dy.padded, shape
    )  # fmt: skip


def row_gradient(frame: Frame, step: Step, x: Tensor, dy: Tensor) -> tuple[Launch, int] | None:
    """The partial weight gradients of a 3x3 convolution and their number; None where another kernel is sooner."""
    if not frame.hopper or frame.arithmetic != "bf16" or step.op != "conv2d" or step.inputs[0].buffer == PHOTO:
        return None
    if not convolution.suits_halo(read_window(step.attributes)) or x.channels != x.padded or dy.channels != dy.padded:
        return None
    if not point_launches.lies_in_rows(x) or not point_launches.lies_in_rows(dy):
        return None
    shape = tiles.row_boxes(frame.batch, dy.height, dy.width, dy.padded, x.padded)
    if shape is None or shape.shared > frame.shared:
        return None
    return row_launches.row_boxes(step.node, frame.batch, x, dy, shape, frame.processors)
