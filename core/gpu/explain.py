"""Explains the selection: every candidate of each step, the reason against it or its cost, and the choice.

Needs no GPU, only a compute capability. On a GPU, `inside` adds up what each choice adds to the captured step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.gpu.candidates import CANDIDATES
from core.gpu.compilation.generations import Capability
from core.gpu.frame import Frame
from core.gpu.hardware import typical
from core.gpu.launch import Launch
from core.gpu.segments import Segment, backward_segment, cheapest, choose_forward
from core.gpu.select import BACKWARD, FORWARD, INPUT, WEIGHT, Case, Choice, check_level
from core.program import Program


@dataclass(frozen=True, slots=True, eq=False)
class Explained:
    """Neighbouring steps in one direction: the candidates considered, and the name of the chosen one."""

    steps: tuple[str, ...]
    direction: str
    considered: tuple[Choice, ...]
    chosen: str


def frame_for(program: Program, batch: int, precision: str, capability: Capability, algorithm: str = "auto") -> Frame:
    """A frame for a typical GPU of a capability. Raises DeviceError for one without kernels, and KernelUnavailable."""
    check_level(algorithm, precision)
    return Frame(program, batch, precision, typical(capability), algorithm=algorithm)


def explain(frame: Frame) -> list[Explained]:
    """Every choice of a plan, in execution order."""
    explained = _explain(frame, choose_forward(frame), (FORWARD,))
    if frame.program.training:
        explained += _explain(frame, cheapest(frame, backward_segment)[::-1], (BACKWARD, WEIGHT, INPUT))
    return explained


def inside(
    explained: Sequence[Explained], launches: Sequence[tuple[Launch, float]]
) -> tuple[dict[Explained, float], dict[str, float]]:
    """Microseconds in the captured step of each choice, and of all other launches (image, loss, update) by kernel."""
    times = {one: 0.0 for one in explained if one.chosen}
    others: dict[str, float] = {}
    for launch, microseconds in launches:
        # BACKWARD begins the names of both directions that it stands for.
        owners = [one for one in times if launch.layer in one.steps and launch.direction.startswith(one.direction)]
        if owners:
            times[owners[0]] += microseconds
        else:
            others[launch.kernel] = others.get(launch.kernel, 0.0) + microseconds
    return times, others


def _explain(frame: Frame, segments: Sequence[Segment], directions: Sequence[str]) -> list[Explained]:
    """Usable patterns of several steps are listed at their first step, chosen or not."""
    chosen = {
        (tuple(step.node for step in choice.case.steps), choice.case.direction): choice.candidate.name
        for segment in segments for choice in segment.choices
    }  # fmt: skip
    explained = []
    for step in (step for segment in segments for step in segment.steps):
        at = frame.program.steps.index(step)
        for length in range(1, CANDIDATES.longest + 1):
            steps = frame.program.steps[at : at + length]
            names = tuple(step.node for step in steps)
            for direction in directions if len(steps) == length else ():
                considered = tuple(CANDIDATES.consider(Case(frame, steps, direction)))
                name = chosen.get((names, direction), "")
                if name or (length == 1 and considered) or any(not one.reason for one in considered):
                    explained.append(Explained(names, direction, considered, name))
    return explained
