"""Lowers a program to launches: the cheapest candidates forward, then backward, and the lists that a plan captures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from core.gpu.candidates import CANDIDATES
from core.gpu.compilation.generations import HOPPER
from core.gpu.frame import Frame
from core.gpu.gradients import Backward
from core.gpu.launch import Launch
from core.gpu.ops.elementwise.combine import apply_mask
from core.gpu.ops.image.image import image_launch
from core.gpu.ops.loss.head import head_launch, write_loss
from core.gpu.ops.update.optimizer import norm_launch, pack_launch, result_launch, update_launch
from core.gpu.segments import Segment, backward_segment, cheapest, choose_forward
from core.gpu.select import FORWARD, Case
from core.optim.optimizer import Optimizer
from core.program import Step


def write_launches(frame: Frame, accumulate: bool = False) -> None:
    """Write all launches of a program into the frame; `accumulate` adds to the gradients of weights."""
    write_forward(frame)
    if frame.program.training:
        write_backward(frame, accumulate)
    else:
        frame.add(head_launch(frame, None, ""))


def write_forward(frame: Frame) -> None:
    frame.add(image_launch(frame))
    for segment in choose_forward(frame):
        for choice in segment.choices:
            choice.write()


def write_backward(frame: Frame, accumulate: bool) -> None:
    """Write the loss with its gradient, then the gradients of every step."""
    backward = Backward(frame, accumulate)
    write_loss(backward)
    for chosen in reversed(cheapest(frame, backward_segment)):
        for segment in _reached(backward, chosen):
            for step in reversed(segment.steps):
                if backward.lacks_mask(step):
                    apply_mask(frame, step)
            for choice in segment.choices:
                choice.write(backward)


def _reached(backward: Backward, segment: Segment) -> Iterator[Segment]:
    """The segment, or each of its steps that leads to the loss if some do not."""
    inside = {value for step in segment.steps[1:] for value in step.inputs}
    if all(backward.reached(step) for step in segment.steps if step.output not in inside):
        yield segment
        return
    for step in reversed(segment.steps):
        if backward.reached(step) and (alone := backward_segment(backward.frame, (step,))):
            yield alone


def write_step(frame: Frame, step: Step) -> None:
    CANDIDATES.require(Case(frame, (step,), FORWARD)).write()


PDL_IMAGES: Final = 2
"""Largest batch of a prediction with dependent launches: larger ones gain nothing, and training becomes slower."""


def write_lists(
    frame: Frame, at: Mapping[str, int], arrays: Mapping[str, int], optimizer: Optimizer, averages: bool = False
) -> dict[str, list[Launch]]:
    """The lists of launches that a plan captures, by name, with real addresses.

    at, arrays: addresses of the plan's blocks and of the arena's arrays. averages: whether the lists "step" and
    "average" average the gradient over ranks.
    """
    frame.restart(at, arrays)
    write_launches(frame)
    lists = {"pack": [pack_launch(frame)]}
    if not frame.program.training:
        return {**lists, "predict": overlap_launches(frame, frame.launches)}
    first = frame.launches
    frame.restart(at, arrays)
    write_launches(frame, accumulate=True)
    norm, score = norm_launch(at, frame.layout.trained), result_launch(at, frame.batch)
    update = [update_launch(at, frame.layout.trained, frame.processors, optimizer), pack_launch(frame)]
    end = [norm, score]
    lists |= {"gradient": [*first, *end], "accumulate": [*frame.launches, *end], "update": update}
    if not averages:
        return {**lists, "step": [*first, *end, *update]}
    average = [norm, result_launch(at, frame.batch, False)]
    return {**lists, "average": average, "step": [*first, score, *average, *update]}


def overlap_launches(frame: Frame, launches: list[Launch]) -> list[Launch]:
    """The launches of a plan; if it predicts one or two images on Hopper, each may begin while the previous one runs
    (`core.gpu.compilation.generations`), and the first waits for all work before the graph. Not those on two streams.
    """
    few = frame.hardware.kernel_capability == HOPPER and frame.batch <= PDL_IMAGES and not frame.program.training
    if not few or any(launch.stream for launch in launches):
        return launches
    waiting = [replace(launch, recipe=replace(launch.recipe, dependent=True)) for launch in launches]
    return [waiting[0], *(replace(launch, dependent=True) for launch in waiting[1:])]
