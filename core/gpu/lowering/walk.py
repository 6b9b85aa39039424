"""Writes all launches of a program, forward and backward, into a frame."""

from __future__ import annotations

from core.gpu.lowering.backward_steps import backward_launches
from core.gpu.lowering.few import ends
from core.gpu.lowering.forward_steps import forward_launches
from core.gpu.lowering.frame import Frame
from core.gpu.lowering.plain_launches import head_launch


def walk(frame: Frame, training: bool, accumulate: bool) -> None:
    """Write all launches of a program into the frame."""
    forward_launches(frame)
    steps = frame.program.steps
    if training:
        backward_launches(frame, accumulate)
    elif not (len(steps) > 1 and ends.ends_in_classifier(frame, steps[-2], steps[-1])):
        frame.add(head_launch(frame, None, ""))


def keep_all(frame: Frame) -> list[str]:
    """Every array, for looking at after the step."""
    return list(frame.lifetimes())
