"""Chooses the candidates of a program: the cheapest sequence of segments, which is a shortest path over its steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from core.errors import KernelUnavailable
from core.gpu.candidates import CANDIDATES
from core.gpu.frame import Frame
from core.gpu.launch import RELU
from core.gpu.ops.loss.head import is_computed_with_loss
from core.gpu.select import BACKWARD, BY_NAME, FORWARD, INPUT, WEIGHT, Case, Choice
from core.graph import PHOTO
from core.program import Step

READS_IMAGE: Final = ("conv2d", "dense")
"""Ops that may read the network's input, whose pixels are padded for them."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Steps that are written together, and their choices in order."""

    steps: tuple[Step, ...]
    choices: tuple[Choice, ...]

    @property
    def microseconds(self) -> float:
        return sum(choice.microseconds for choice in self.choices)


def choose_forward(frame: Frame) -> list[Segment]:
    """Choose the candidates of every step's forward pass. Raises KernelUnavailable, also where a level that was asked
    for by name computes no step."""
    segments = cheapest(frame, forward_segment)
    choices = [choice for segment in segments for choice in segment.choices]
    if frame.algorithm in BY_NAME and all(one.candidate.level != frame.algorithm for one in choices):
        considered = (one for choice in choices for one in CANDIDATES.consider(choice.case))
        reasons = dict.fromkeys(one.reason for one in considered if one.candidate.level == frame.algorithm)
        network = frame.program.graph.name
        raise KernelUnavailable(" ".join([f"No step of {network} is computed by {frame.algorithm}.", *reasons]))
    return segments


def cheapest(frame: Frame, segment: Callable[[Frame, tuple[Step, ...]], Segment | None]) -> list[Segment]:
    """The cheapest sequence of segments that covers the steps."""
    steps = chosen_steps(frame)
    best: list[tuple[float, list[Segment]]] = [(0.0, [])]
    for end in range(1, len(steps) + 1):
        paths = []
        for first in range(end - 1, max(-1, end - 1 - CANDIDATES.longest), -1):
            last = segment(frame, tuple(steps[first:end]))
            if last is not None:
                paths.append((best[first][0] + last.microseconds, [*best[first][1], last]))
        best.append(min(paths, key=lambda path: path[0]))
    return best[-1][1]


def chosen_steps(frame: Frame) -> list[Step]:
    """The steps that candidates compute. Raises KernelUnavailable, naming the step, if one has no kernel."""
    steps = [step for step in frame.program.steps if not is_computed_with_loss(frame, step)]
    for step in steps:
        if step.op not in READS_IMAGE and any(value.buffer == PHOTO for value in step.inputs):
            raise KernelUnavailable(
                f"On the GPU only convolutions and dense layers read the photo itself, not {step.op} ({step.node}): "
                "its pixels are framed and padded for them. Run this network with --device cpu."
            )
        known = CANDIDATES.of((step.op,), FORWARD)
        missing = step.op if not known else step.activation if step.activation not in RELU else ""
        if missing:
            raise KernelUnavailable(
                f"The GPU has no kernel for {missing} ({step.node}). Run this network with --device cpu."
            )
    return steps


def forward_segment(frame: Frame, steps: tuple[Step, ...]) -> Segment | None:
    """The choice for a pattern; None if a pattern of several steps has no candidate."""
    case = Case(frame, steps, FORWARD)
    choice = CANDIDATES.require(case) if len(steps) == 1 else CANDIDATES.choose(case)
    return Segment(steps, (choice,)) if choice else None


def backward_segment(frame: Frame, steps: tuple[Step, ...]) -> Segment | None:
    """One candidate for all gradients, or one per weight gradient, last step first, then one for the input gradient."""
    wants = any(frame.wants(value) for value in steps[0].inputs)
    trained = [step for step in reversed(steps) if frame.trains_any(step)]
    if not wants and not trained:
        return Segment(steps, ()) if len(steps) == 1 else None
    whole = CANDIDATES.choose(Case(frame, steps, BACKWARD))
    together = Segment(steps, (whole,)) if whole else None
    last = Case(frame, steps, INPUT)
    if (whole and whole.candidate.exclusive) or (len(steps) > 1 and CANDIDATES.choose(last) is None):
        return together
    cases = [*(Case(frame, (step,), WEIGHT) for step in trained), *([last] if wants else [])]
    choose = CANDIDATES.require if together is None and len(steps) == 1 else CANDIDATES.choose
    choices = tuple(choice for choice in map(choose, cases) if choice)
    apart = Segment(steps, choices) if len(choices) == len(cases) else None
    return min(filter(None, (together, apart)), key=lambda one: one.microseconds, default=None)
