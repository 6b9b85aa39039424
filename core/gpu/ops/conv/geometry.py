"""What a convolution's step is: its window, a fire's pair of halves."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from core.gpu.frame import Frame
from core.graph import PHOTO
from core.ops.window import POINT, Window, read_window
from core.program import Step

THREE: Final = Window((3, 3), (1, 1), (1, 1, 1, 1))
"""The 3x3 window that keeps height and width: its nine taps are constant offsets in a numbering of the pixels."""


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
