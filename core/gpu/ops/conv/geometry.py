"""The window of a convolution, also as arguments of kernels; the two halves of a fire module."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from core.gpu.arguments import PADDING, Group, divisions, ints, pitches
from core.gpu.frame import Frame
from core.gpu.launch import Tensor
from core.graph import PHOTO
from core.ops.window import POINT, Window, read_window
from core.program import Step

THREE: Final = Window((3, 3), (1, 1), (1, 1, 1, 1))
"""The 3x3 window that keeps height and width: its nine taps are constant offsets in a numbering of the pixels."""

NARROWEST: Final = 16
"""Columns of the narrowest tile."""

WINDOWS: Final = Group("windows", (
    *divisions(area="`area`", across="`across`"),
    *ints(area="windows per image: pixels of out, or of dy", across="windows per row",
          height="rows of x", width="columns of x"),
    *pitches(pitch="x"),
    *ints(row_pitch="elements from a row of x to the next", image_pitch="elements from an image of x to the next",
          stride_y="rows of x from a window to the next; with phases those of out", stride_x="columns, likewise"),
    *PADDING,
))  # fmt: skip
"""Windows of x, one per pixel of out."""


def window_values(x: Tensor, out: Tensor, stride: tuple[int, int], padding: tuple[int, ...]) -> dict[str, int]:
    return {
        "by_area": out.height * out.width, "by_across": out.width, "area": out.height * out.width, "across": out.width,
        "height": x.height, "width": x.width, "pitch": x.pitch, "row_pitch": x.row_pitch, "image_pitch": x.image_pitch,
        "stride_y": stride[0], "stride_x": stride[1], "top": padding[0], "left": padding[1],
    }  # fmt: skip


def reads_image(step: Step) -> bool:
    """Whether it reads the network's input, whose pixels are padded."""
    return step.inputs[0].buffer == PHOTO


def window_of(frame: Frame, step: Step) -> Window:
    """A convolution's window; the input image's border is its padding."""
    window = read_window(step.attributes)
    if not reads_image(step):
        return window
    top, left = window.padding[0] - frame.border[0], window.padding[1] - frame.border[1]
    return replace(window, padding=(top, left, 0, 0))


def slices_of(frame: Frame, step: Step) -> int:
    """Slices of a convolution's groups, each of which is computed as an ordinary convolution.

    A slice has one group, or more with zeros between them: as many as it takes for whole 16-byte vectors of channels
    and filters, and for the columns of a tile. The photo's channels are one slice. 1 for a step without groups.
    """
    groups = int(step.attributes.get("groups", 1))  # type: ignore[arg-type]
    sides = step.inputs[0].shape[-1], step.output.shape[-1]

    def suits(slices: int) -> bool:
        sizes = [side // slices for side in sides]
        return groups % slices == 0 and min(sizes) >= NARROWEST and not any(size % frame.vector for size in sizes)

    return 1 if reads_image(step) else next(filter(suits, range(groups, 1, -1)), 1)


def is_fire(one: Step, three: Step | None) -> bool:
    """A 1x1 and a 3x3 convolution of one input that fill neighbouring channels of one buffer."""
    if three is None or one.op != "conv2d" or three.op != "conv2d" or one.inputs != three.inputs:
        return False
    filters = one.output.shape[-1]
    return (
        read_window(one.attributes) == POINT
        and read_window(three.attributes) == THREE
        and one.attributes["groups"] == three.attributes["groups"] == 1
        and not reads_image(one)
        and one.output.buffer == three.output.buffer
        and one.output.channel + filters == three.output.channel
        and one.activation == three.activation
        and one.attributes["bias"] == three.attributes["bias"]
        and filters % 64 == 0
    )
