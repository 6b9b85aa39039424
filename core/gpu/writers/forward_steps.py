"""Forward launches of convolutions and dense layers that no family of `core.gpu.ops` has taken over yet."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from core.gpu.frame import Frame
from core.gpu.kernels.passes import head_fast
from core.gpu.launch import Launch, Tensor, blocks_of, lanes_of
from core.gpu.writers import convolution, packing
from core.gpu.writers.few import convolutions, halos
from core.gpu.writers.hopper import point_steps as hopper_points
from core.gpu.writers.hopper import window_steps as hopper_windows
from core.gpu.writers.plain_launches import bias_of, simple_launch
from core.graph import PHOTO
from core.ops.window import Window, read_window
from core.program import Step

MERGED_PIXELS: Final = 6000
"""Up to so many pixels both halves of a fire's expand are one launch (13 x 13, batch 32: 18 us against 22)."""

MERGED_ON_HOPPER: Final = 3100
"""The same where the 3x3 half has a kernel with `wgmma` (13 x 13, batch 32: 11 us beside the 1x1 half, merged 24)."""


def is_fire(one: Step, three: Step | None) -> bool:
    """A 1x1 and a 3x3 convolution of one input that fill neighbouring channels of one buffer."""
    if three is None or one.op != "conv2d" or three.op != "conv2d" or one.inputs != three.inputs:
        return False
    first, second = read_window(one.attributes), read_window(three.attributes)
    filters = one.output.shape[-1]
    return (
        first == Window((1, 1), (1, 1), (0, 0, 0, 0))
        and second == Window((3, 3), (1, 1), (1, 1, 1, 1))
        and one.attributes["groups"] == three.attributes["groups"] == 1
        and one.inputs[0].buffer != PHOTO
        and one.output.buffer == three.output.buffer
        and one.output.channel + filters == three.output.channel
        and one.activation == three.activation
        and one.attributes["bias"] == three.attributes["bias"]
        and filters % 64 == 0
    )


def is_small_fire(frame: Frame, step: Step, following: Step) -> bool:
    """Whether a fire's halves are better one launch: few pixels leave the GPU waiting for launches, not for work."""
    if not is_fire(step, following):
        return False
    height, width, _ = step.output.shape
    limit = MERGED_ON_HOPPER if frame.hopper and frame.arithmetic == "bf16" else MERGED_PIXELS
    return frame.batch * height * width <= limit


def expand_launch(frame: Frame, one: Step, three: Step) -> Launch:
    """Both expand layers of a fire in one launch."""
    x, out = frame.image(one.inputs[0]), frame.image(one.output)
    out = replace(out, channels=one.output.shape[-1] + three.output.shape[-1])
    window = read_window(three.attributes)
    taps, point = packing.taps_of(x, window, False), packing.taps_of(x, read_window(one.attributes), False)
    packs = [
        frame.packed(
            f"{s.node}.weight",
            lambda s=s, t=t: packing.pack_forward(frame.filters(s), t, frame.element),  # type: ignore[misc]
        )
        for s, t in ((one, point), (three, taps))
    ]
    depth = packing.padded_depth(point.total, frame.element)
    half = convolution.Half(packs[0], bias_of(frame, one), one.output.shape[-1], depth)
    made = (three.node, frame.batch, x, out, window, taps, packs[1], bias_of(frame, three), three.activation)
    shape = halos.shape_of(frame, x, out, half.filters)
    if shape is not None:
        return halos.halo(*made[:4], *made[5:], shape, half)
    return convolution.forward(made[0], frame.arithmetic, *made[1:], half)


def window_of(frame: Frame, step: Step) -> Window:
    """A convolution's window; the photo's border stands for its padding."""
    window = read_window(step.attributes)
    if step.inputs[0].buffer != PHOTO:
        return window
    top, left = window.padding[0] - frame.border[0], window.padding[1] - frame.border[1]
    return replace(window, padding=(top, left, 0, 0))


def ends_in_head(frame: Frame, step: Step) -> bool:
    """Whether a global average's output is the logits: the head computes it with the loss."""
    return step.output == frame.program.output


def feeds_statistics(step: Step, following: Step | None) -> bool:
    """Whether the next step is a batch norm that wants sums of this step's output."""
    return (
        following is not None and following.op == "batch_norm" and not following.attributes["frozen"]
        and following.inputs[0] == step.output and not step.activation
    )  # fmt: skip


def convolve(frame: Frame, step: Step, following: Step | None) -> None:
    x, out = frame.image(step.inputs[0]), frame.image(step.output)
    window, is_photo = window_of(frame, step), step.inputs[0].buffer == PHOTO
    counted = frame.program.training and feeds_statistics(step, following)
    launch = None
    if is_photo:
        launch = _photo_convolution(frame, step, x, out, window)
    elif not counted:
        launch = convolutions.forward(frame, step, x, out, window)
    if launch is not None or is_photo or counted:
        pass
    elif convolution.suits_halo(window):
        launch = hopper_windows.halo_forward(frame, step, x, out) or halo_forward(frame, step, x, out)
    else:
        launch = hopper_points.forward(frame, step, x, out)
    if launch is None:
        launch = plain_forward(frame, step, following if counted else None, x, out, window)
    if is_fire(step, following):  # the 1x1 half runs beside the 3x3 half
        frame.add(replace(launch, lane=1))
        frame.join_after_next()
    else:
        frame.add(launch)


def _photo_convolution(frame: Frame, step: Step, x: Tensor, out: Tensor, window: Window) -> Launch | None:
    name, taps = f"{step.node}.weight", packing.taps_of(x, window, True)
    weight = frame.packed(name, lambda: packing.pack_forward(frame.filters(step), taps, frame.element))
    return convolution.forward_photo(
        step.node, frame.arithmetic, frame.batch, x, out, window, taps, weight, bias_of(frame, step), step.activation,
        frame.processors, frame.shared,
    )


def halo_forward(frame: Frame, step: Step, x: Tensor, out: Tensor) -> Launch | None:
    """The 3x3 convolution with its pixels in shared memory; None where channels or memory do not suit it."""
    name, size = f"{step.node}.weight", convolution.channel_bytes(x.padded, frame.element, out.padded)
    if not size:
        return None
    weight = frame.packed(
        f"halo:{name}", lambda: packing.pack_halo([frame.filters(step)], size, frame.element, False)
    )
    launch = convolution.halo(
        step.node, "forward", frame.arithmetic, frame.batch, x, out, weight, bias_of(frame, step), step.activation,
        None, "", False, 0, size,
    )  # fmt: skip
    return launch if launch.shared <= frame.shared else None


def plain_forward(
    frame: Frame, step: Step, counting: Step | None, x: Tensor, out: Tensor, window: Window
) -> Launch:
    """The implicit product, with the sums of the batch norm `counting` if there is one."""
    name, taps = f"{step.node}.weight", packing.taps_of(x, window, step.inputs[0].buffer == PHOTO)
    weight = frame.packed(name, lambda: packing.pack_forward(frame.filters(step), taps, frame.element))
    launch = convolution.forward(
        step.node, frame.arithmetic, frame.batch, x, out, window, taps, weight, bias_of(frame, step), step.activation,
        statistics=int(counting is not None), photos=frame.places.control,
    )
    if counting is None:
        return launch
    name = f"sums:{counting.node}"
    frame.partials[name] = launch.grid[0]
    sums = frame.use(name, 8 * launch.grid[0] * out.padded)
    values = list(launch.values)
    values[convolution.STATISTICS] = sums
    return replace(launch, values=tuple(values))


def pack_dense(frame: Frame, step: Step, places: np.ndarray, length: int) -> np.ndarray:
    """A dense layer's weights as 1x1 filters ``(units, 1, 1, length)``: features at the places they have in memory."""
    indices = frame.indices(f"{step.node}.weight")
    wide = np.full((len(indices), 1, 1, length), -1, np.int32)
    wide[:, 0, 0, places] = indices
    return wide


def dense(frame: Frame, step: Step) -> None:
    (x, places), out = frame.flat(step.inputs[0]), frame.image(step.output)
    window = Window((1, 1), (1, 1), (0, 0, 0, 0))
    taps = packing.taps_of(x, window, False)
    name = f"{step.node}.weight"
    weight = frame.packed(
        name, lambda: packing.pack_forward(pack_dense(frame, step, places, x.channels), taps, frame.element)
    )
    made = (step.node, frame.batch, x, out, window, taps, weight, bias_of(frame, step), step.activation)
    shape = convolutions.shape_of(frame, "forward", out, taps)
    if shape is not None:
        frame.add(convolutions.few(*made, shape))
    else:
        frame.add(convolution.forward(made[0], frame.arithmetic, *made[1:]))


def average(frame: Frame, step: Step) -> None:
    x, out = frame.image(step.inputs[0]), frame.image(step.output)
    hw, lanes = x.height * x.width, lanes_of(x)
    frame.add(
        simple_launch(
            step.node, "forward", "fused", "passes.head_fast", "make_average", (frame.element,),
            head_fast.POOL_ARGUMENTS, (blocks_of(lanes, 32), frame.batch, 1), (32, 8, 1),
            (x.address, out.address, 0, hw, lanes, x.pitch, out.pitch, 0, 0, 0, 1 / hw),
        )
    )
