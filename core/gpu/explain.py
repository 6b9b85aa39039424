"""Why each step runs the kernel that it runs: every candidate, the reason against it or its cost, and the choice.

Needs no GPU: a compute capability is enough. With one, `inside` says what each choice adds to the captured step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from core.gpu.candidates import CANDIDATES
from core.gpu.compilation.generations import Capability
from core.gpu.frame import Frame
from core.gpu.hardware import typical
from core.gpu.launch import Launch
from core.gpu.lowering import choose_backward, choose_forward
from core.gpu.select import BACKWARD, FORWARD, INPUT, WEIGHT, Case, Choice, Considered, Segment
from core.gpu.tuning import EMPTY, Table
from core.program import Program, Step, lay_out_parameters


@final
@dataclass(frozen=True, slots=True)
class Explained:
    """One or several neighbouring steps in one direction: what was considered, and the name of what was chosen."""

    steps: tuple[str, ...]
    direction: str
    considered: tuple[Considered, ...]
    chosen: str


def frame_for(
    program: Program, batch: int, precision: str, capability: Capability, algorithm: str = "auto",
    tuning: Table = EMPTY,
) -> Frame:  # fmt: skip
    """A frame for a GPU that need not be there. Raises DeviceError for a capability without kernels."""
    layout = lay_out_parameters(program.graph)
    return Frame(program, layout, batch, precision, typical(capability), algorithm=algorithm, tuning=tuning)


def explain(frame: Frame) -> list[Explained]:
    """Every choice of a plan, in the order in which it runs."""
    found = _explain(frame, choose_forward(frame), (FORWARD,))
    if frame.program.training:
        found += _explain(frame, list(reversed(choose_backward(frame))), (BACKWARD, WEIGHT, INPUT))
    return found


DIRECTIONS: Final = {
    FORWARD: (FORWARD,), INPUT: (INPUT,), WEIGHT: (WEIGHT,), BACKWARD: (INPUT, WEIGHT),
}  # fmt: skip
"""Directions of a choice's launches."""


def inside(
    explained: Sequence[Explained], launches: Sequence[tuple[Launch, float]]
) -> tuple[dict[Explained, float], dict[str, float]]:
    """(microseconds of each choice in the captured step, those of what is no choice: the image, loss, update ...)."""
    times = {one: 0.0 for one in explained if one.chosen}
    others: dict[str, float] = {}
    for launch, microseconds in launches:
        owners = [one for one in times if launch.layer in one.steps and launch.direction in DIRECTIONS[one.direction]]
        if owners:
            times[owners[0]] += microseconds
        else:
            others[launch.kernel] = others.get(launch.kernel, 0.0) + microseconds
    return times, others


def _explain(frame: Frame, segments: Sequence[Segment], directions: Sequence[str]) -> list[Explained]:
    """Patterns of several steps that begin at a step and were not chosen are listed there, too."""
    chosen = {_key(c.case.steps, c.case.direction): c for s in segments for c in s.choices}
    order = [step for segment in segments for step in segment.steps]
    found = []
    with frame.comparing():
        for step in order:
            at = next(i for i, other in enumerate(frame.program.steps) if other is step)
            for length in range(1, CANDIDATES.longest + 1):
                steps = frame.program.steps[at : at + length]
                for direction in directions if len(steps) == length else ():
                    rows = tuple(CANDIDATES.consider(Case(frame, steps, direction)))
                    choice = chosen.get(_key(steps, direction))
                    if choice or (length == 1 and rows) or any(not row.reason for row in rows):
                        found.append(Explained(tuple(s.node for s in steps), direction, rows, _name(choice)))
    return found


def _key(steps: Sequence[Step], direction: str) -> tuple[tuple[str, ...], str]:
    return tuple(step.node for step in steps), direction


def _name(choice: Choice | None) -> str:
    return choice.candidate.name if choice else ""
